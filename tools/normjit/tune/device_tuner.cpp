// SPDX-License-Identifier: Apache-2.0
#include "tune/device_tuner.h"

#include "kernel/timed_problem.h"
#include "support/try.h"
#include "tune/compilers.h"
#include "tuning/statistics.h"

#include "normjit/artifact.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/core.h>

namespace normjit::cli::tune {
namespace {

/// The least gain that counts. The rounds of a final cannot distinguish a smaller gain from noise, and users would not
/// notice it.
constexpr double least_gain = 0.01;

/// How much slower than the heuristic a candidate may appear and still enter the final.
constexpr double final_slack = 0.005;
constexpr size_t final_places = 3;

/// The time allowed for making the data and expected gradients of a problem.
constexpr double open_seconds = 300;

std::vector<std::string> texts_of(const std::vector<Schedule>& schedules) {
    std::vector<std::string> texts;
    for (const Schedule& schedule : schedules) texts.push_back(to_text(schedule));
    return texts;
}

TunedTimes times_of(const Json& kernel) { return {kernel["median"], kernel["p20"], kernel["p80"]}; }

}  // namespace

DeviceTuner::DeviceTuner(TunerOptions options, Child::Main work)
    : options_(std::move(options)),
      work_(std::move(work)),
      compilers_(Compilers::usual_count(options_.device.device)),
      journal_(options_.journal) {
    std::ifstream file(options_.records);
    for (std::string line; std::getline(file, line);) {
        if (auto record = parse_record(line)) known_.push_back(*std::move(record));
    }
}

Status DeviceTuner::start() {
    if (worker_.running()) return {};
    NORMJIT_TRY(worker_, Child::start(work_));
    NORMJIT_TRY(const Json hello, ask(nullptr, options_.timeout_seconds));
    if (hello.contains("error")) {
        worker_.kill();
        return error_of(hello);
    }
    device_.model = hello["model"];
    NORMJIT_TRY(device_.target, parse_target(hello["target"].get<std::string>()));
    device_.threads = hello["threads"];
    can_be_cold_ = hello["cold"];
    return {};
}

/// Sends a request and returns the answer; null only waits for the greeting. If the worker does not answer, it is
/// ended.
Expected<Json> DeviceTuner::ask(const Json& request, double seconds) {
    if (!request.is_null()) NORMJIT_RETURN_IF_ERROR(worker_.channel().send(request));
    auto answer = worker_.channel().receive(Deadline::after(Clock::now(), seconds));
    if (answer.ok()) return answer;
    if (answer.status().code() == Code::failed) {
        worker_.kill();
        return failed(fmt::format("no answer within {:.0f} s", seconds));
    }
    return failed(fmt::format("the process ended: {}", worker_.kill()));
}

Status DeviceTuner::open(const Spec& spec, const std::vector<Schedule>& ahead) {
    NORMJIT_RETURN_IF_ERROR(start());
    const Json request = {{"op", "open"}, {"spec", to_text(spec)}, {"ahead", texts_of(ahead)}};
    NORMJIT_TRY(const Json answer, ask(request, open_seconds));
    if (answer.contains("error")) return error_of(answer);
    caches_ = answer["caches"];
    copies_ = answer["copies"];
    return {};
}

const TuningRecord* DeviceTuner::done_before(const Spec& spec) const {
    const Schedule today = heuristic(spec, device_.target);
    const auto found = std::find_if(known_.rbegin(), known_.rend(), [&](const TuningRecord& record) {
        return record.spec == spec && record.device == device_ && record.generator == generator_version &&
               record.heuristic == today && record.candidates >= options_.deepen &&
               (record.caches == "cold" || !can_be_cold_) && usability(spec, record.schedule, device_.target).ok();
    });
    return found == known_.rend() ? nullptr : &*found;
}

/// Returns the schedules to try first: the fastest for this problem with any number of rows, as measured by any
/// version; those of the nearest points; and the heuristic's choices for similar problems.
std::vector<Schedule> DeviceTuner::hints(const Spec& spec, const ScheduleSpace& space) const {
    std::vector<Schedule> hints;
    for (const TuningRecord& record : known_) {
        Spec same_rows = record.spec;
        same_rows.rows = spec.rows;
        const bool similar = same_rows == spec && record.is_tuned();
        if (similar && usability(spec, record.schedule, device_.target).ok()) hints.push_back(record.schedule);
    }
    std::ranges::copy(space.of_points(), std::back_inserter(hints));
    std::ranges::copy(space.relatives(), std::back_inserter(hints));
    return hints;
}

/// Returns the worker's answer. If the worker dies before it answers, tries once more with nothing else running.
Expected<Json> DeviceTuner::try_once(const Json& request, const Spec& spec, const Schedule& schedule) {
    auto answer = ask(request, options_.timeout_seconds);
    if (answer.ok()) return answer;
    NORMJIT_RETURN_IF_ERROR(open(spec));
    if (request["ahead"].empty()) return answer;
    Json alone = request;
    alone["ahead"] = Json::array();
    NORMJIT_RETURN_IF_ERROR(journal_.start(spec, device_, schedule));
    answer = ask(alone, options_.timeout_seconds);
    if (!answer.ok()) NORMJIT_RETURN_IF_ERROR(open(spec));
    return answer;
}

/// Returns the gain of a schedule over the heuristic's; nothing if it does not run or is wrong.
std::optional<double> DeviceTuner::measure(const Search& search, const Spec& spec, const Schedule& schedule,
                                           Outcome& outcome) {
    const Journal::Entry before = journal_.find(spec, device_, schedule);
    if (before.finished) return before.gain < 0 ? std::nullopt : std::optional(before.gain);
    constexpr int most_starts = 2;
    if (before.starts >= most_starts) return std::nullopt;
    static_cast<void>(journal_.start(spec, device_, schedule));
    const Json request = {{"op", "trial"},
                          {"schedule", to_text(schedule)},
                          {"seconds", options_.trial_seconds},
                          {"best", search.best_gain()},
                          {"ahead", texts_of(search.ahead(compilers_))}};
    const auto answer = try_once(request, spec, schedule);
    std::optional<double> gain;
    double seconds = 0;
    std::string how;
    if (!answer.ok()) {
        how = answer.status().message();
    } else if (answer->contains("error")) {
        how = (*answer)["error"];
    } else if ((*answer)["outcome"] != "measured") {
        how = fmt::format("{}: {}", (*answer)["outcome"].get<std::string>(), (*answer)["message"].get<std::string>());
    } else {
        gain = (*answer)["gain"].get<double>();
        seconds = (*answer)["time"];
    }
    if (!gain) outcome.failures.push_back(fmt::format("{}: {}", to_text(schedule), how));
    static_cast<void>(journal_.finish(spec, device_, schedule, gain, seconds));
    return gain;
}

/// Returns the times of the schedules, the most promising first. Removes those that did not run from `schedules`.
Expected<Json> DeviceTuner::time_finalists(const Spec& spec, std::vector<Schedule>& schedules, double seconds,
                                           bool warm) {
    for (;;) {
        if (!worker_.running()) NORMJIT_RETURN_IF_ERROR(open(spec));
        const Json request = {
            {"op", "final"}, {"schedules", texts_of(schedules)}, {"seconds", seconds}, {"warm", warm}};
        auto result = ask(request, options_.timeout_seconds + seconds);
        if (result.ok() && result->contains("error")) result = error_of(*result);
        if (result.ok() || schedules.empty()) return result;
        schedules.pop_back();  // one of them may have caused it
    }
}

/// Returns the fastest of the schedules if it beats the heuristic's by more than the noise; otherwise the heuristic's,
/// which wins ties.
Expected<DeviceTuner::Verdict> DeviceTuner::final_round(const Spec& spec, const Schedule& heuristic,
                                                        std::vector<Schedule> schedules, double seconds) {
    NORMJIT_TRY(const Json result, time_finalists(spec, schedules, seconds, false));
    const Json& kernels = result["kernels"];
    const TunedTimes usual = times_of(kernels[0]);
    Verdict verdict{heuristic, 1, usual, usual, result["share"]};
    const double margin = 1 + std::max(result["noise"].get<double>(), least_gain);
    for (size_t i = 0; i < schedules.size(); ++i) {
        const Json& each = kernels[i + 1];
        if (each["low"] <= margin || each["gain"] <= verdict.gain) continue;
        verdict.schedule = schedules[i];
        verdict.gain = each["gain"];
        verdict.times = times_of(each);
    }
    return verdict;
}

/// Returns how many times as fast as the heuristic's schedule another one is with its data in the caches.
Expected<double> DeviceTuner::warm_gain(const Spec& spec, const Schedule& schedule) {
    std::vector<Schedule> schedules = {schedule};
    NORMJIT_TRY(const Json result, time_finalists(spec, schedules, options_.final_seconds / 2, true));
    return schedules.empty() ? 0.0 : result["kernels"][1]["gain"].get<double>();
}

/// Compares the fastest in fresh measurements, and confirms the winner. A program may have its data in the caches, so a
/// schedule that gains without data there must not lose with it.
Expected<TuningRecord> DeviceTuner::decide(const Spec& spec, const Search& search) {
    const Schedule& usual = search.heuristic();
    NORMJIT_TRY(Verdict verdict,
                final_round(spec, usual, search.best(final_places, final_slack), options_.final_seconds));
    for (int i = 0; i < tuning::confirmations && verdict.schedule != usual; ++i) {
        NORMJIT_RETURN_IF_ERROR(open(spec));
        NORMJIT_TRY(const Verdict again, final_round(spec, usual, {verdict.schedule}, options_.final_seconds / 2));
        if (i == 0 || again.gain < verdict.gain) verdict = again;
    }
    if (copies_ > 1 && verdict.schedule != usual) {
        NORMJIT_TRY(verdict.warm_gain, warm_gain(spec, verdict.schedule));
        if (verdict.gain * verdict.warm_gain < 1)
            verdict = {usual, 1, verdict.heuristic_times, verdict.heuristic_times, verdict.share / verdict.gain};
    }
    TuningRecord record;
    record.spec = spec;
    record.device = device_;
    record.heuristic = usual;
    record.schedule = verdict.schedule;
    record.gain = verdict.gain;
    record.warm_gain = verdict.warm_gain;
    record.times = verdict.times;
    record.heuristic_times = verdict.heuristic_times;
    record.share = verdict.share;
    record.candidates = static_cast<int>(search.measured()) + 1;
    record.caches = caches_;
    record.verified = "double";
    record.generator = generator_version;
    record.version = options_.version;
    record.date = options_.date;
    return record;
}

Expected<DeviceTuner::Outcome> DeviceTuner::tune(const Spec& spec, Clock::time_point end,
                                                 const std::function<void(size_t measured)>& progress) {
    NORMJIT_RETURN_IF_ERROR(start());
    Outcome outcome;
    if (const TuningRecord* done = done_before(spec)) {
        outcome.record = *done;
        outcome.was_done = true;
        return outcome;
    }
    const ScheduleSpace space(spec, device_.target);
    Search search(space, options_.most, hints(spec, space));
    progress(search.measured());
    NORMJIT_RETURN_IF_ERROR(open(spec, search.ahead(compilers_)));
    while (const auto schedule = search.next()) {
        if (Clock::now() > end) break;
        search.report(measure(search, spec, *schedule, outcome));
        progress(search.measured());
        if (!worker_.running()) NORMJIT_RETURN_IF_ERROR(open(spec));
    }
    NORMJIT_TRY(outcome.record, decide(spec, search));
    NORMJIT_RETURN_IF_ERROR(append_line(options_.records, to_text(*outcome.record)));
    known_.push_back(*outcome.record);
    return outcome;
}

}  // namespace normjit::cli::tune
