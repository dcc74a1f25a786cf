// SPDX-License-Identifier: Apache-2.0
// Does a random mix of what programs do with normjit, right and wrong, for a given time. At the end, memory, mappings,
// descriptors and threads must be what they were early on.
#include "c_problem.h"
#include "check.h"
#include "failing_calls.h"
#include "stress.h"
#include "temporary_folder.h"

#include <cerrno>
#include <map>
#include <optional>

#include <doctest/doctest.h>
#include <malloc.h>

using namespace normjit;
using namespace normjit::test;

namespace {

/// A program that runs for days. One engine stays, and others come and go.
class Program {
  public:
    explicit Program(uint64_t start) : random_(start), staying_(create(0)) {}

    /// Does one thing. Returns what was wrong; empty if nothing was.
    std::string step() {
        using Action = std::string (Program::*)();
        constexpr std::pair<const char*, Action> actions[] = {
            {"prepare", &Program::prepare},      {"prepare", &Program::prepare},
            {"engine", &Program::short_engine},  {"fault", &Program::with_fault},
            {"refused", &Program::wrong_launch}, {"random case", &Program::random_problem},
            {"background", &Program::later}};
        const auto& [name, action] = random_.pick(actions);
        ++counts_[name];
        const std::string wrong = (this->*action)();
        return wrong.empty() ? wrong : std::string(name) + ": " + wrong;
    }

    std::string counts() const {
        std::string text;
        for (const auto& [name, count] : counts_) text += " " + name + "=" + std::to_string(count);
        return text;
    }

  private:
    static constexpr int64_t specs = 60;

    Engine create(int64_t kind) const {
        EngineOptions options = plain_options();
        options.most_kernels = 20;
        options.threads = 2;
        if (kind > 0) {
            options.cache.folder = folder_ / "cache";
            options.cache.bytes = 100 << 10;
        }
        if (kind > 1) {
            options.tune = TunePolicy::background;
            options.tune_seconds = 0.001;
        }
        return *Engine::create(options);
    }
    Spec any_spec() { return small_spec(random_.between(0, specs - 1)); }

    std::string used(const Expected<Kernel>& kernel) {
        return kernel.ok() ? wrong_gradients(*kernel) : kernel.status().message();
    }
    std::string prepare() { return used(staying_.prepare(any_spec())); }
    std::string short_engine() { return used(create(random_.between(0, 2)).prepare(any_spec())); }
    std::string later() {
        const auto kernel = staying_.prepare(any_spec(), {.on_miss = OnMiss::background});
        return kernel.status().code() == Code::pending ? "" : used(kernel);
    }
    std::string random_problem() {
        Case drawn = random_case(random_);
        drawn.target = *machine();
        drawn.schedule = random_legal_schedule(random_, drawn.spec, drawn.target);
        return check_against_reference(drawn);
    }
    std::string with_fault() {
        const Engine engine = create(1);
        const Spec spec = any_spec();
        std::optional<Expected<Kernel>> kernel;
        {
            const FailingCall failing(random_.between(0, 40), FailingCall::How::once,
                                      random_.pick({EIO, ENOSPC, EINTR, EMFILE}));
            kernel = engine.prepare(spec);
        }
        if (kernel->ok()) return wrong_gradients(**kernel);
        return FailingCall::was_reached() ? "" : kernel->status().message();
    }
    std::string wrong_launch() {
        const auto kernel = staying_.prepare(any_spec());
        if (!kernel.ok()) return kernel.status().message();
        const Status status = kernel->launch({.rows = random_.between(-3, 3), .tensors = {}});
        return status.code() == Code::invalid_argument ? "" : "a launch without tensors was not refused";
    }

    Random random_;
    const TemporaryFolder folder_;
    const Engine staying_;
    std::map<std::string, int64_t> counts_;
};

Holdings settled() {
    malloc_trim(0);
    return holdings();
}

}  // namespace

TEST_CASE("a long-running program takes no more than at first") {
    Program program(seed());
    int64_t steps = 0;
    const auto run = [&](double seconds) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
        while (std::chrono::steady_clock::now() < end) {
            const std::string wrong = program.step();
            REQUIRE_MESSAGE(wrong == "", wrong);
            ++steps;
        }
    };
    const double seconds = stress_seconds(4);
    run(seconds / 4);
    for (int i = 0; i < 300; ++i) REQUIRE(program.step() == "");
    const Holdings first = settled();
    run(seconds * 3 / 4);
    const Holdings last = settled();
    MESSAGE(steps, " steps:", program.counts());
    MESSAGE("resident ", first.resident_bytes >> 10, " -> ", last.resident_bytes >> 10, " KiB, mappings ",
            first.mappings, " -> ", last.mappings, ", descriptors ", first.descriptors, " -> ", last.descriptors,
            ", threads ", first.threads, " -> ", last.threads);
    CHECK(last.descriptors == first.descriptors);
    CHECK(last.threads <= first.threads + 1);  // the engine's background thread starts with the first job
    if (keeps_freed_memory()) return;
    CHECK(last.mappings < first.mappings + 60);  // the code of at most 20 kernels, and the heap's mappings
    CHECK(last.resident_bytes < first.resident_bytes + (int64_t{24} << 20));
}
