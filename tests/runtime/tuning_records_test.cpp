// SPDX-License-Identifier: Apache-2.0
#include "mutate.h"
#include "random_spec.h"

#include "normjit/artifact.h"
#include "normjit/tuning.h"

#include <doctest/doctest.h>

using namespace normjit;

namespace {

constexpr const char* record_text =
    "cuda row_groups=264 threads_per_row=128 rows_per_block=2 blocks_per_sm=2 vector_width=8 pipeline_depth=2";

DeviceClass h200() { return {"NVIDIA H200", *parse_target("sm_90"), 1}; }

TuningRecord record_of(std::string_view spec, std::string_view schedule, double gain) {
    TuningRecord record;
    record.spec = *parse_spec(spec);
    record.device = h200();
    record.heuristic = heuristic(record.spec, record.device.target);
    record.schedule = schedule.empty() ? record.heuristic : *parse_schedule(schedule);
    record.times = {2e-6, 1.9e-6, 2.1e-6};
    record.heuristic_times = {2e-6 * gain, 1.9e-6 * gain, 2.1e-6 * gain};
    record.gain = gain;
    record.share = 0.93;
    record.candidates = 40;
    record.caches = "cold";
    record.verified = "double";
    record.generator = generator_version;
    record.version = "0.1.0";
    record.date = "2026-11-21";
    return record;
}

TuningRecords records_of(const std::vector<TuningRecord>& all) {
    TuningRecords records;
    std::string text;
    for (const TuningRecord& record : all) text += to_text(record) + "\n";
    CHECK(records.add(text, "r.jsonl").empty());
    return records;
}

}  // namespace

TEST_CASE("records round trip through a line of JSON") {
    TuningRecord record = record_of("layernorm rows=4096 cols=1024 x=bf16", record_text, 1.25);
    record.device.model = "a \"strange\" \\ n\303\244me\t";
    const std::string line = to_text(record);
    CAPTURE(line);
    CHECK(line.find('\n') == std::string::npos);
    const auto back = parse_record(line);
    REQUIRE(back.status().message() == "");
    CHECK(to_text(*back) == line);
    CHECK(back->spec == record.spec);
    CHECK(back->device == record.device);
    CHECK(back->schedule == record.schedule);
    CHECK(back->heuristic == record.heuristic);
    CHECK(back->caches == "cold");
    CHECK(back->is_tuned());
    CHECK(!record_of("layernorm rows=4096 cols=1024", "", 1).is_tuned());
}

TEST_CASE("a record may come from any JSON writer") {
    std::string line = to_text(record_of("layernorm rows=8 cols=64", "", 1));
    line.replace(line.find("\"threads\":1"), 11, "\"extra\" : null , \"note\":\"\\u00e9\\n\\/\",\"threads\" :\t1");
    CHECK(parse_record(line).status().message() == "");
}

TEST_CASE("a record without caches means the former default") {
    TuningRecord record = record_of("layernorm rows=8 cols=64", "", 1);
    const auto caches_of = [&](const char* caches) {
        record.caches = "soon gone";
        std::string line = to_text(record);
        const std::string_view key = "\"caches\":\"soon gone\",";
        line.replace(line.find(key), key.size(), caches);
        return parse_record(line)->caches;
    };
    CHECK(caches_of("") == "cold");
    CHECK(caches_of("\"caches\":\"warm\",") == "warm");
    record.device = {"Model T", *parse_target("x86-64-avx512"), 2};
    record.heuristic = record.schedule = heuristic(record.spec, record.device.target);
    CHECK(caches_of("") == "warm");
    CHECK(caches_of("\"caches\":\"cold\",") == "cold");
}

TEST_CASE("the error of a bad line names the key") {
    const std::string good = to_text(record_of("layernorm rows=8 cols=64", "", 1));
    const auto error = [&](std::string_view what, std::string_view with) {
        std::string line = good;
        line.replace(line.find(what), what.size(), with);
        return parse_record(line).status().message();
    };
    CHECK(parse_record("").status().message() == "not a record: no JSON at column 1");
    CHECK(parse_record("[1]").status().message() == "not a record: no JSON object");
    CHECK(parse_record(good + "}").status().message().starts_with("not a record: no JSON at column "));
    CHECK(parse_record("{\"normjit_record\":[1]}").status().message() ==
          "normjit_record: array: must be a whole number");
    CHECK(error("\"share\":0.93", "\"share\":1e999") == "not a record: a number is beyond double");
    CHECK(error("\"threads\":1,", "") == "threads: missing");
    CHECK(error("\"threads\":1", "\"threads\":0") == "threads: 0: must be 1 to 2147483647");
    CHECK(error("\"median\":2e-06", "\"median\":0") == "median: must be more than 0");
    CHECK(error("\"heuristic_median\":2e-06", "\"heuristic_median\":0") == "heuristic_median: must be more than 0");
    CHECK(error("\"median\":2e-06", "\"median\":\"fast\"") == "median: \"fast\": must be a number");
    CHECK(error("rows=8 ", "") == "spec: rows is missing");
    CHECK(error("rows=8 ", "rows=8 slices=any ") == "spec: slices=any; must be a number");
    CHECK(error("cols=64", "cols=0").starts_with("spec: cols=0"));
    CHECK(error("\"normjit_record\":1", "\"normjit_record\":7") == "normjit_record: 7: this program reads 1");
}

TEST_CASE("damaged lines are refused or remain records, and never affect other lines") {
    test::Random random(test::seed());
    const std::string good = to_text(record_of("layernorm rows=4096 cols=1024 x=bf16", record_text, 1.2));
    const int64_t count = test::rounds(3000);
    for (int64_t i = 0; i < count; ++i) {
        const std::string damaged = test::mutate(random, good);
        CAPTURE(damaged);
        TuningRecords records;
        const auto warnings = records.add(damaged + "\n" + good + "\n", "r.jsonl");
        CHECK(records.find(*parse_spec("layernorm rows=4096 cols=1024 x=bf16"), h200()).tier == TuningTier::exact);
        for (const std::string& warning : warnings) CHECK(warning.starts_with("r.jsonl:"));
    }
}

TEST_CASE("a bad line causes one warning with its position; many are counted") {
    TuningRecords records;
    const std::string good = to_text(record_of("layernorm rows=8 cols=64", "", 1));
    const auto warnings = records.add("# a comment\n\n" + good + "\r\nrubbish\n" + good, "dir/r.jsonl");
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] == "dir/r.jsonl:4: not a record: no JSON at column 1; the line is ignored");
    CHECK(records.size() == 1);
    std::string garbage;
    for (int i = 0; i < 1000; ++i) garbage += "\x01\xff garbage\n";
    const auto many = TuningRecords().add(garbage, "g");
    CHECK(many.size() == 21);
    CHECK(many.back() == "g: 980 more lines are not records");
}

TEST_CASE("the tiers answer in their order and say why") {
    const TuningRecords records = records_of({
        record_of("layernorm rows=4096 cols=1024 x=bf16", record_text, 1.2),
        record_of("layernorm rows=16384 cols=1024 x=bf16", record_text, 1.02),
        record_of("layernorm rows=64 cols=1024 x=bf16", "", 1),
    });
    const auto find = [&](std::string_view spec, const DeviceClass& device) {
        return records.find(*parse_spec(spec), device);
    };
    const Schedule tuned = *parse_schedule(record_text);

    const auto exact = find("layernorm rows=4096 cols=1024 x=bf16", h200());
    CHECK(exact.tier == TuningTier::exact);
    CHECK(exact.schedule == tuned);
    CHECK(exact.reason == "r.jsonl:1: 1.20 times as fast as the heuristic there");
    CHECK(find("layernorm rows=4096 cols=1024 x=bf16 stats=recompute eps=0.5", h200()).tier == TuningTier::heuristic);

    const auto near = find("layernorm rows=5000 cols=1024 x=bf16", h200());
    CHECK(near.tier == TuningTier::nearest_rows);
    CHECK(near.reason == "r.jsonl:1, measured with rows=4096: 1.20 times as fast as the heuristic there");
    CHECK(find("layernorm rows=8193 cols=1024 x=bf16", h200()).reason.starts_with("r.jsonl:2,"));
    CHECK(find("layernorm rows=1000 cols=1024 x=bf16", h200()).tier == TuningTier::heuristic);
    CHECK(find("layernorm rows=0 cols=1024 x=bf16", h200()).tier == TuningTier::heuristic);
    CHECK(find("layernorm cols=1024 x=bf16", h200()).reason.starts_with("r.jsonl:2, measured with rows=16384"));

    const auto lost = find("layernorm rows=64 cols=1024 x=bf16", h200());
    CHECK(lost.tier == TuningTier::exact);
    CHECK(lost.schedule == heuristic(*parse_spec("layernorm rows=64 cols=1024 x=bf16"), h200().target));
    CHECK(lost.reason == "r.jsonl:3: nothing was faster than the heuristic there");

    DeviceClass smaller = h200();
    smaller.model = "NVIDIA H100 PCIe";
    smaller.target.cuda.sm_count = 66;
    const auto cousin = find("layernorm rows=4096 cols=1024 x=bf16", smaller);
    CHECK(cousin.tier == TuningTier::architecture);
    CHECK(cousin.schedule.row_groups == 132);
    CHECK(cousin.reason.starts_with("r.jsonl:1, measured on NVIDIA H200 (sm_90 sms=132"));
    CHECK(find("layernorm rows=16384 cols=1024 x=bf16", smaller).tier == TuningTier::heuristic);  // 2 % is not enough

    DeviceClass other = h200();
    other.target = *parse_target("sm_80");
    CHECK(find("layernorm rows=4096 cols=1024 x=bf16", other).tier == TuningTier::heuristic);
    const DeviceClass cpu{"", *parse_target("x86-64-avx512"), 4};
    const auto none = find("layernorm rows=4096 cols=1024 x=bf16", cpu);
    CHECK(none.tier == TuningTier::heuristic);
    CHECK(none.reason == "no record of this problem is for such a device and M; for others: 3");
    const std::string other_norm = "rmsnorm rows=4096 cols=1024 x=bf16";
    const std::string why = heuristic_reasons(*parse_spec(other_norm), h200().target).front();
    CHECK(find(other_norm, h200()).reason.starts_with("no record of this problem; " + why));
}

TEST_CASE("records of slices apply to other numbers of slices, and to any") {
    const std::string adaln = "layernorm rows=1024 cols=1024 x=bf16 per_slice=gamma,beta slices=";
    const TuningRecords records =
        records_of({record_of(adaln + "8", record_text, 1.2), record_of(adaln + "64", record_text, 1.1)});
    const auto find = [&](const std::string& spec) { return records.find(*parse_spec(spec), h200()); };
    CHECK(records.size() == 2);
    CHECK(find(adaln + "8").tier == TuningTier::exact);
    CHECK(find(adaln + "12").reason.starts_with("r.jsonl:1, measured with slices=8"));
    CHECK(find(adaln + "12").tier == TuningTier::nearest_rows);
    CHECK(find(adaln + "24").tier == TuningTier::heuristic);
    CHECK(find(adaln + "any").reason.starts_with("r.jsonl:2, measured with slices=64"));
    CHECK(find("layernorm slices=any cols=1024 x=bf16 per_slice=gamma,beta")
              .reason.starts_with("r.jsonl:2, measured with rows=1024, measured with slices=64"));
    CHECK(find("layernorm slices=8 rows=1024 cols=1024 x=bf16").tier == TuningTier::heuristic);
    CHECK(find("layernorm rows=1024 cols=1024 x=bf16").tier == TuningTier::heuristic);
}

TEST_CASE("eps and the value of gamma_offset make no difference") {
    const TuningRecords records =
        records_of({record_of("layernorm rows=4096 cols=1024 stats=recompute gamma_offset=1",
                              "cuda row_groups=132 threads_per_row=256 vector_width=4", 1.1)});
    const auto tier = [&](const char* spec) { return records.find(*parse_spec(spec), h200()).tier; };
    CHECK(tier("layernorm rows=4096 cols=1024 stats=recompute gamma_offset=0.5 eps=1e-6") == TuningTier::exact);
    CHECK(tier("layernorm rows=4096 cols=1024 stats=recompute") == TuningTier::heuristic);
}

TEST_CASE("a later line about the same replaces an earlier one") {
    TuningRecord late = record_of("layernorm rows=4096 cols=1024 x=bf16", record_text, 1.3);
    const TuningRecords records = records_of({record_of("layernorm rows=4096 cols=1024 x=bf16", "", 1), late});
    CHECK(records.size() == 1);
    CHECK(records.find(late.spec, h200()).reason == "r.jsonl:2: 1.30 times as fast as the heuristic there");
}

TEST_CASE("unread lines give the same answers as read ones, once their cols are requested") {
    const Spec spec = *parse_spec("layernorm rows=4096 cols=1024 x=bf16");
    const auto line = [](const char* spec_text, double gain) {
        return to_text(record_of(spec_text, record_text, gain)) + "\n";
    };
    const std::string shipped = "# of the library\n" + line("layernorm rows=4096 cols=1024 x=bf16", 1.2) +
                                line("layernorm rows=4096 cols=1024 x=bf16", 1.3) +
                                line("layernorm rows=4096 cols=10240 x=bf16", 1.4) + "{ cols=77\n";
    const std::string own = line("layernorm rows=4096 cols=1024 x=bf16", 1.5);
    TuningRecords records;
    records.add_unread(shipped, "shipped");
    CHECK(records.size() == 0);
    CHECK(records.find(spec, h200()).reason == "shipped:3: 1.30 times as fast as the heuristic there");
    CHECK(records.size() == 1);
    CHECK(records.find(*parse_spec("layernorm rows=4096 cols=77"), h200()).warnings ==
          std::vector<std::string>{"shipped:5: not a record: no JSON at column 3; the line is ignored"});

    TuningRecords both;  // files that were added later take precedence, whichever was read first
    both.add_unread(shipped, "shipped");
    CHECK(both.add(own, "own").empty());
    CHECK(both.find(spec, h200()).reason == "own:1: 1.50 times as fast as the heuristic there");
    CHECK(both.size() == 1);
    TuningRecords reversed;
    CHECK(reversed.add(own, "own").empty());
    reversed.add_unread(shipped, "shipped");
    CHECK(reversed.find(spec, h200()).reason == "shipped:3: 1.30 times as fast as the heuristic there");
}

TEST_CASE("an illegal schedule is ignored with a warning, and an old generator's is checked and named") {
    TuningRecord illegal = record_of("layernorm rows=4096 cols=1024 x=bf16", "cuda threads_per_row=7", 1.3);
    TuningRecord old = record_of("layernorm rows=4000 cols=1024 x=bf16", record_text, 1.1);
    old.generator = 1;
    const TuningRecords records = records_of({illegal, old});
    const auto chosen = records.find(illegal.spec, h200());
    CHECK(chosen.tier == TuningTier::nearest_rows);
    CHECK(chosen.reason.find("; made with code generator 1, this is") != std::string::npos);
    REQUIRE(chosen.warnings.size() == 1);
    CHECK(chosen.warnings[0].starts_with("r.jsonl:1: schedule: threads_per_row=7: must be"));
    CHECK(chosen.warnings[0].ends_with("; the record is ignored"));
}

TEST_CASE("with invariant=1 a record of another order is ignored with a warning") {
    const auto found = [](const char* spec) {
        TuningRecord record = record_of(spec, "", 1.2);
        auto& cuda = std::get<CudaSchedule>(record.schedule.device);
        cuda.threads_per_row *= 2;
        CHECK(legality(record.spec, record.schedule, h200().target).message() == "");
        CHECK(usability(record.spec, record.schedule, h200().target).ok() == !record.spec.invariant);
        return records_of({record}).find(record.spec, h200());
    };
    CHECK(found("layernorm rows=4096 cols=1024 x=bf16").tier == TuningTier::exact);
    const ChosenSchedule chosen = found("layernorm rows=4096 cols=1024 x=bf16 invariant=1");
    CHECK(chosen.tier == TuningTier::heuristic);
    CHECK(chosen.warnings ==
          std::vector<std::string>{"r.jsonl:1: schedule: invariant=1: adds a row's elements in another order than in "
                                   "other batches; the record is ignored"});
}

TEST_CASE("the schedule found is legal for random problems") {
    test::Random random(test::seed());
    TuningRecords records;
    const Target target = h200().target;
    const int64_t count = test::rounds(100);
    for (int64_t i = 0; i < count; ++i) {
        Spec spec = test::random_spec(random, {.dynamic_percent = 0});
        if (spec.rows == 0 || spec.slices == 0) continue;
        if (!spec.slices) spec.slices = random.between(2, 9);
        TuningRecord record = record_of(to_text(spec), "", 1);
        record.schedule = random.chance(50) ? test::random_cuda_schedule(random) : test::random_schedule(random);
        static_cast<void>(records.add(to_text(record), "r"));
        const auto chosen = records.find(spec, h200());
        CAPTURE(to_text(spec));
        CHECK(legality(spec, chosen.schedule, target).message() == "");
        CHECK((chosen.tier == TuningTier::exact) == chosen.warnings.empty());
    }
}
