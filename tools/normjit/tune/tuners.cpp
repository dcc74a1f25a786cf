// SPDX-License-Identifier: Apache-2.0
#include "tune/tuners.h"

#include "command_line/console.h"
#include "support/try.h"

#include <algorithm>
#include <atomic>

#include <fmt/core.h>
#include <poll.h>
#include <sys/mman.h>

namespace normjit::cli::tune {

namespace {

using Clock = DeviceTuner::Clock;

/// The work that tuners share: each takes the next problem. It is in memory that all processes see.
struct Queue {
    std::atomic<int> next;
    static_assert(std::atomic<int>::is_always_lock_free);

    static Expected<Queue*> create() {
        void* memory = ::mmap(nullptr, sizeof(Queue), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return failed("no shared memory");
        return new (memory) Queue{};  // stays as long as the program runs
    }
};

/// Returns when the time for one problem ends, if all remaining problems get equal shares of the remaining time.
Clock::time_point end_of(Clock::time_point deadline, int at, size_t problems, size_t tuners) {
    if (deadline == Clock::time_point::max()) return deadline;
    const auto left = deadline - Clock::now();
    const auto rest = static_cast<int64_t>((problems - static_cast<size_t>(at) + tuners - 1) / tuners);
    return Clock::now() + left / std::max<int64_t>(rest, 1);
}

Json error_event(std::string_view event, const Status& status) {
    Json message = error_message(status);
    message["event"] = event;
    return message;
}

/// Runs in the process of a tuner. If the worker cannot start, leaves the problems to the other tuners.
void run_tuner(const TunerOptions& options, const std::vector<Spec>& specs, Queue& queue, size_t tuners,
               Clock::time_point deadline, Channel& parent) {
    DeviceTuner tuner(options, [&](Channel& channel) { serve(options.device, channel); });
    const auto most = static_cast<int>(specs.size());
    while (queue.next < most && Clock::now() < deadline) {
        if (const Status started = tuner.start(); !started.ok())
            return static_cast<void>(parent.send(error_event("gone", started)));
        const int at = queue.next++;
        if (at >= most) return;
        const Spec& spec = specs[static_cast<size_t>(at)];
        const auto progress = [&](size_t measured) {
            static_cast<void>(parent.send({{"event", "progress"}, {"spec", to_text(spec)}, {"measured", measured}}));
        };
        const auto outcome = tuner.tune(spec, end_of(deadline, at, specs.size(), tuners), progress);
        Json event = outcome.ok() ? Json{{"event", "done"},
                                         {"record", to_text(*outcome->record)},
                                         {"was_done", outcome->was_done},
                                         {"failures", outcome->failures}}
                                  : error_event("done", outcome.status());
        event["at"] = at;
        if (!parent.send(event).ok()) return;
    }
}

/// Takes what a tuner says about a problem that it has finished.
void take(const Json& event, const std::vector<Spec>& specs, Results& results) {
    const auto at = event["at"].get<size_t>();
    const std::string spec = to_text(specs[at]);
    if (event.contains("error")) {
        const Status error = error_of(event);
        return results.errors.push_back(Status(error.code(), spec + ": " + error.message()));
    }
    if (auto record = parse_record(event["record"].get<std::string>())) results.records[at] = *std::move(record);
    if (event["was_done"]) ++results.done_before;
    for (const std::string how : event["failures"]) results.failures.push_back(fmt::format("{}: {}", spec, how));
}

/// Watches until every tuner has ended.
Results watch(std::vector<Child>& tuners, const std::vector<Spec>& specs, size_t most) {
    Results results;
    results.records.resize(specs.size());
    Progress progress(static_cast<double>(specs.size()));
    for (;;) {
        std::vector<Child*> running;
        std::vector<pollfd> ready;
        for (Child& tuner : tuners) {
            if (!tuner.running()) continue;
            running.push_back(&tuner);
            ready.push_back({tuner.channel().socket(), POLLIN, 0});
        }
        if (ready.empty()) return results;
        if (::poll(ready.data(), ready.size(), -1) < 0) continue;
        for (size_t i = 0; i < ready.size(); ++i) {
            if (ready[i].revents == 0) continue;
            Child& tuner = *running[i];
            const auto event = tuner.channel().receive(Clock::now() + std::chrono::seconds(10));
            if (!event.ok()) {
                const std::string how = tuner.kill();
                if (how != "exit code 0") results.errors.push_back(failed("a process of the tuner ended: " + how));
            } else if ((*event)["event"] == "progress") {
                progress.show(fmt::format("{}: {} of {} candidates", (*event)["spec"].get<std::string>(),
                                          (*event)["measured"].get<size_t>(), most));
            } else if ((*event)["event"] == "gone") {
                ++results.gone;
                results.errors.push_back(error_of(*event));
            } else {
                take(*event, specs, results);
                progress.advance(1);
            }
        }
    }
}

}  // namespace

Expected<Results> tune_all(const std::vector<TunerOptions>& tuners, const std::vector<Spec>& specs,
                           Clock::time_point deadline) {
    NORMJIT_TRY(Queue * queue, Queue::create());
    std::vector<Child> children;
    for (const TunerOptions& tuner : tuners) {
        const auto work = [&](Channel& parent) { run_tuner(tuner, specs, *queue, tuners.size(), deadline, parent); };
        NORMJIT_TRY(Child child, Child::start(work));
        children.push_back(std::move(child));
    }
    return watch(children, specs, tuners.front().most);
}

}  // namespace normjit::cli::tune
