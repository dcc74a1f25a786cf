// SPDX-License-Identifier: Apache-2.0
// Uses normjit.h as C code does. tests/embed/example.c is a C program.
#include "c_abi/convert.h"
#include "c_objects.h"
#include "temporary_folder.h"

#include "normjit/engine.h"
#include "normjit/normjit.h"
#include "normjit/space.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>

using namespace normjit::test;

TEST_CASE("c: specs are structs and texts") {
    const normjit_spec spec = parsed("layernorm cols=4096 x=bf16 gamma=f32");
    CHECK(spec.norm == NORMJIT_LAYERNORM);
    CHECK(spec.rows == -1);
    CHECK(spec.cols == 4096);
    CHECK(spec.dtypes[NORMJIT_X] == NORMJIT_BF16);
    CHECK(spec.dtypes[NORMJIT_DGAMMA] == NORMJIT_F32);
    CHECK(spec.dtypes[NORMJIT_DRESIDUAL] == NORMJIT_NONE);
    for (const char* text :
         {"layernorm cols=4096 x=bf16 gamma=f32", "rmsnorm rows=7 cols=9 x=f64 out=dgamma",
          "rmsnorm cols=3 stats=recompute eps=0.25 gamma_offset=1", "layernorm cols=3 accumulate=dgamma,dbeta",
          "layernorm pass=forward cols=3 x=bf16 residual=f32 rowscale=f32 out=mean,y,h stats=bf16 eps=0.25",
          "rmsnorm cols=3 invariant=1",

          "rmsnorm cols=3 x=f16 rounding=llama"}) {
        CHECK(text_of(parsed(text)) == text);
    }
    normjit_spec edited = spec;
    edited.dtypes[NORMJIT_X] = 9;
    CHECK(text_of(edited) == "spec: dtypes: 9; must be 0 to 7");
    edited = spec;
    edited.accumulate = 1u << 31;
    CHECK(text_of(edited) == "spec: accumulate: 0x80000000; there are no such tensors");
    edited = spec;
    edited.rounding = 3;
    CHECK(text_of(edited) == "spec: rounding: 3; must be 0 to 1");
    edited = spec;
    edited.invariant = 3;
    CHECK(text_of(edited) == "spec: invariant: 3; must be 0 or 1");
    edited = spec;
    edited.norm = -1;
    CHECK(text_of(edited) == "spec: norm: -1; must be 0 to 1");
    edited = spec;
    edited.cols = 0;
    CHECK(text_of(edited) == "spec: cols=0: must be at least 1");
    edited.size = 0;
    CHECK(text_of(edited) == "spec: size is not set");
    CHECK(normjit_spec_parse("layernorm", &edited) == NORMJIT_INVALID_ARGUMENT);
    CHECK(normjit_spec_parse(nullptr, &edited) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "text: null pointer");
}

TEST_CASE("c: zero fields of a spec take their defaults") {
    normjit_spec spec = {};
    spec.size = sizeof spec, spec.norm = NORMJIT_RMSNORM, spec.rows = -1, spec.cols = 8;
    std::fill(std::begin(spec.dtypes), std::end(spec.dtypes), NORMJIT_NONE);
    for (const int tensor : {NORMJIT_X, NORMJIT_DY, NORMJIT_RSTD, NORMJIT_DX}) spec.dtypes[tensor] = NORMJIT_F32;
    CHECK(text_of(spec) == "rmsnorm cols=8 gamma=none");
}

TEST_CASE("c: an engine names its code generator") {
    const EngineHandle engine = engine_with({});
    char backend[32];
    REQUIRE(normjit_engine_backend(engine.get(), backend, sizeof backend, nullptr) == NORMJIT_OK);
    CHECK(std::string(backend) == *normjit::backend_of(*normjit::host_target()));
    CHECK(normjit_engine_backend(nullptr, backend, sizeof backend, nullptr) == NORMJIT_INVALID_ARGUMENT);
}

TEST_CASE("c: texts say how long they are") {
    const normjit_spec spec = parsed("rmsnorm cols=8");
    size_t bytes = 0;
    CHECK(normjit_spec_text(&spec, nullptr, 0, &bytes) == NORMJIT_OK);
    CHECK(bytes == sizeof "rmsnorm cols=8");
    std::string buffer(bytes, 'x');
    CHECK(normjit_spec_text(&spec, buffer.data(), bytes - 1, &bytes) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "buffer: has 14 bytes; 15 are needed");
    CHECK(buffer == std::string(15, 'x'));
    CHECK(normjit_spec_text(&spec, buffer.data(), bytes, nullptr) == NORMJIT_OK);
    CHECK(buffer.c_str() == std::string("rmsnorm cols=8"));
}

TEST_CASE("c: each thread has its own error message") {
    CHECK(normjit_engine_create(nullptr, nullptr) == NORMJIT_INVALID_ARGUMENT);
    std::thread([] {
        CHECK(std::string(normjit_last_error()).empty());
        CHECK(normjit_launch(nullptr, nullptr) == NORMJIT_INVALID_ARGUMENT);
        CHECK(std::string(normjit_last_error()) == "kernel: null pointer");
    }).join();
    CHECK(std::string(normjit_last_error()) == "engine: null pointer");
    CHECK(normjit_version() == NORMJIT_VERSION);
    CHECK(normjit_tensor_name(NORMJIT_DX) == std::string("dx"));
    CHECK(normjit_tensor_name(-1) == nullptr);
    CHECK(normjit_tensor_name(NORMJIT_TENSORS) == nullptr);
    normjit_engine_options options{};
    options.size = sizeof options;
    options.device = "toaster";
    normjit_engine* engine = nullptr;
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(engine == nullptr);
    CHECK(std::string(normjit_last_error()) == "engine: device: 'toaster'; must be cpu or cuda:<number>");
    options.device = "a\nb";
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "engine: device: 'a\\x0ab'; must be cpu or cuda:<number>");
    normjit_engine_destroy(nullptr);
    normjit_kernel_destroy(nullptr);
    normjit_artifact_destroy(nullptr);
}

TEST_CASE("c: a thread has its error message until its end") {
    static std::string kept;
    pthread_key_t key;
    const auto at_end = [](void*) {  // this runs after the destructors of the thread's objects
        normjit_spec spec{};
        spec.size = sizeof spec;
        normjit_spec_parse("layernorm cols=0", &spec);
        std::vector<std::string> others;  // one of them takes memory that was freed too early
        for (size_t size = 32; size < 1024; size += 8) others.emplace_back(size, 'x');
        kept = normjit_last_error();
    };
    REQUIRE(pthread_key_create(&key, at_end) == 0);
    std::thread([key] {
        normjit_spec spec{};
        spec.size = sizeof spec;
        normjit_spec_parse("layernorm cols=8 nonsense=1", &spec);  // a longer message, which lists all keys
        pthread_setspecific(key, &kept);
    }).join();
    pthread_key_delete(key);
    CHECK(kept == "spec: cols=0: must be at least 1");
}

TEST_CASE("c: lists of files with a missing name") {
    const char* const files[] = {"a", nullptr};
    normjit_engine_options options{};
    options.size = sizeof options;
    options.packs = files;
    options.pack_count = 2;
    normjit_engine* engine = nullptr;
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "engine options: packs[1]: null pointer, of 2 files");
    options.packs = nullptr;
    options.record_files = files;
    options.record_file_count = 2;
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "engine options: record_files[1]: null pointer, of 2 files");
}

TEST_CASE("c: a missing list of files comes from the environment, an empty one is empty") {
    const char* const files[] = {"a"};
    normjit_engine_options options{};
    options.size = sizeof options;
    options.pack_count = options.record_file_count = 1;  // without lists, these counts have no meaning
    CHECK_FALSE(normjit::c_abi::to_cpp(options)->cache.packs);
    CHECK_FALSE(normjit::c_abi::to_cpp(options)->record_files);
    options.packs = options.record_files = files;
    for (const size_t count : {0, 1}) {
        options.pack_count = options.record_file_count = count;
        const std::vector<std::string> wanted(files, files + count);
        CHECK(normjit::c_abi::to_cpp(options)->cache.packs == wanted);
        CHECK(normjit::c_abi::to_cpp(options)->record_files == wanted);
    }
}

TEST_CASE("c: flags of an engine are 0 or 1") {
    const auto message = [](int32_t normjit_engine_options::* flag, int32_t value) {
        normjit_engine_options options{};
        options.*flag = value;
        return normjit::c_abi::to_cpp(options).status().message();
    };
    CHECK(message(&normjit_engine_options::cache_trust_others, 1) == "");
    CHECK(message(&normjit_engine_options::cache_trust_others, 2) ==
          "engine options: cache_trust_others: 2; must be 0 or 1");
    CHECK(message(&normjit_engine_options::no_shipped_records, -1) ==
          "engine options: no_shipped_records: -1; must be 0 or 1");
}

TEST_CASE("c: structs of an older program are shorter") {
    struct {
        size_t size;
        const char* device;
        char beyond[64];
    } old{offsetof(normjit_engine_options, threads), "cpu", {}};
    std::memset(old.beyond, 0x7f, sizeof old.beyond);  // this version did not have options
    normjit_engine* engine = nullptr;
    const normjit_status status = normjit_engine_create(reinterpret_cast<normjit_engine_options*>(&old), &engine);
    CHECK((status == NORMJIT_OK || status == NORMJIT_UNAVAILABLE));
    normjit_engine_destroy(engine);
}

TEST_CASE("c: schedules come from record files or measurements") {
    using namespace normjit;
    std::vector<std::string> lines;
    normjit_engine_options options{};
    options.threads = 1;
    options.log = {
        [](void* self, int32_t, const char* line) { static_cast<std::vector<std::string>*>(self)->emplace_back(line); },
        &lines};
    const auto heard = [&](const std::string& part) {
        return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(part) != line.npos; });
    };
    const auto digest_of = [](const EngineHandle& engine) {
        uint64_t digest = 0;
        CHECK(normjit_plan_digest(engine.get(), &digest) == NORMJIT_OK);
        return digest;
    };
    const char* text = "layernorm rows=300 cols=64";
    const EngineHandle plain = engine_with(options);
    if (!plain) return;
    CHECK(digest_of(plain) == 0);
    prepared(plain, text);

    EngineOptions same;
    same.threads = 1;
    const auto twin = Engine::create(same);
    TuningRecord record;
    record.spec = *parse_spec(text);
    record.device = twin->device_class();
    record.heuristic = record.schedule = heuristic(record.spec, twin->target());
    record.schedule.row_groups += 2;
    record.times = record.heuristic_times = {1e-6, 1e-6, 1e-6};
    record.gain = 1.1;
    const TemporaryFolder folder;
    test::write_text(folder / "records.jsonl", to_text(record) + "\n");
    const std::string path = folder / "records.jsonl";
    const char* files[] = {path.c_str()};
    options.record_files = files;
    options.record_file_count = 1;
    options.no_shipped_records = 1;
    lines.clear();
    const EngineHandle recorded = engine_with(options);
    prepared(recorded, text);
    CHECK(heard("'" + to_text(record.schedule) + "'"));
    CHECK(digest_of(recorded) != digest_of(plain));

    options.tune = NORMJIT_TUNE_ON_MISS;
    options.tune_seconds = 0.5;
    lines.clear();
    const EngineHandle measured = engine_with(options);
    prepared(measured, "rmsnorm rows=300 cols=64");  // no record gives this schedule
    CHECK(heard("tuned 'rmsnorm rows=300 cols=64': "));

    normjit_engine* engine = nullptr;
    options.size = sizeof options;
    options.tune_seconds = -1;
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "engine: tune_seconds: -1; must be at least 0");
    options.tune = 3;
    CHECK(normjit_engine_create(&options, &engine) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "engine options: tune: 3; must be 0 to 2");
    CHECK(normjit_plan_digest(nullptr, nullptr) == NORMJIT_INVALID_ARGUMENT);
}

TEST_CASE("c: a repeated row, and rows with gaps") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, sums);
    Ones ones(10, 40);
    std::vector<char> workspace(1 << 16);
    ones.arguments.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    ones.arguments.workspace_bytes = 1 << 15;
    for (float& value : ones.matrix) value = 0;
    for (int j = 0; j < 40; ++j) ones.matrix[static_cast<size_t>(j)] = 1;  // the first row
    ones.arguments.tensors[NORMJIT_X].row_stride = NORMJIT_REPEAT_ROW;
    ones.arguments.tensors[NORMJIT_DY].row_stride = NORMJIT_REPEAT_ROW;
    CHECK_MESSAGE(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK, normjit_last_error());
    CHECK(ones.dgamma == std::vector<float>(40, 10));
    ones.arguments.rows = 4;
    ones.arguments.tensors[NORMJIT_X].row_stride = 80;
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK);
    CHECK(ones.dgamma == std::vector<float>(40, 1));
}

TEST_CASE("c: an output whose rows or slices are one") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, "rmsnorm slices=any cols=40 gamma=none out=dx");
    Ones ones(10, 40);
    std::vector<float> dx(400);
    normjit_argument& output = ones.arguments.tensors[NORMJIT_DX] = {dx.data(), 40, 0, NORMJIT_F32, 0};
    ones.arguments.rows = 5;
    ones.arguments.slices = 2;
    const auto refused = [&] {
        CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_INVALID_ARGUMENT);
        return std::string(normjit_last_error());
    };
    output.row_stride = NORMJIT_REPEAT_ROW;
    CHECK(refused() == "launch: dx: row_stride is NORMJIT_REPEAT_ROW, which repeats a row; only inputs may do so");
    output.row_stride = 0;
    ones.arguments.slice_strides[NORMJIT_DX] = NORMJIT_REPEAT_ROW;
    CHECK(refused() == "launch: dx: slice_stride is NORMJIT_REPEAT_ROW, which repeats a slice; only inputs may do so");
    ones.arguments.slices = 1;
    CHECK_MESSAGE(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK, normjit_last_error());
    ones.arguments.rows = 1;
    output.row_stride = NORMJIT_REPEAT_ROW;
    CHECK_MESSAGE(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK, normjit_last_error());
}

TEST_CASE("c: a kernel that is not ready is refused or pending, and a schedule can be given") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const normjit_spec spec = parsed("rmsnorm cols=17");
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.on_miss = NORMJIT_ERROR;
    normjit_kernel* kernel = nullptr;
    CHECK(normjit_prepare(engine.get(), &spec, &options, &kernel) == NORMJIT_UNAVAILABLE);
    options.on_miss = NORMJIT_LOAD;
    CHECK(normjit_prepare(engine.get(), &spec, &options, &kernel) == NORMJIT_UNAVAILABLE);
    options.on_miss = 4;
    CHECK(normjit_prepare(engine.get(), &spec, &options, &kernel) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "prepare options: on_miss: 4; must be 0 to 3");
    options.on_miss = NORMJIT_SYNC;
    options.schedule = "cpu row_groups=0";
    CHECK(normjit_prepare(engine.get(), &spec, &options, &kernel) == NORMJIT_INVALID_ARGUMENT);
    options.schedule = "cpu row_groups=2";
    CHECK(normjit_prepare(engine.get(), &spec, &options, &kernel) == NORMJIT_OK);
    normjit_kernel_destroy(kernel);
}

TEST_CASE("c: artifacts travel as bytes") {
    const normjit_spec spec = parsed("rmsnorm cols=17");
    normjit_artifact *made = nullptr, *read = nullptr;
    CHECK(normjit_compile("z80", &spec, nullptr, &made) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()).find("allowed: host x86-64-avx512") != std::string::npos);
    REQUIRE(normjit_compile("x86-64-avx512", &spec, nullptr, &made) == NORMJIT_OK);
    const ArtifactHandle artifact(made);
    REQUIRE(normjit_compile("host", &spec, nullptr, &made) == NORMJIT_OK);
    normjit_artifact_destroy(made);
    size_t bytes = 0;
    CHECK(normjit_artifact_serialise(artifact.get(), nullptr, 0, &bytes) == NORMJIT_OK);
    std::string buffer(bytes, '\0');
    CHECK(normjit_artifact_serialise(artifact.get(), buffer.data(), buffer.size(), nullptr) == NORMJIT_OK);
    REQUIRE(normjit_artifact_deserialise(buffer.data(), buffer.size(), &read) == NORMJIT_OK);
    const ArtifactHandle copy(read);
    buffer[buffer.size() / 2] ^= 1;
    CHECK(normjit_artifact_deserialise(buffer.data(), buffer.size(), &read) == NORMJIT_INVALID_ARGUMENT);
}
