// SPDX-License-Identifier: Apache-2.0
// openmp_host [--neighbours N,N,...] [--threads N] [--host-us T] [--seconds S] [--only POLICY] [SPEC ...]: measures an
// engine's thread policies in a program with its own OpenMP regions, like a PyTorch process, and next to other
// programs. A step is one such region, of T us on all threads, and one launch. Policies take turns, with the same
// neighbours: N processes that never sleep. They are compared with one thread, and with a parallel_for that assigns the
// tasks statically, as at::parallel_for does. Prints the median, mean and 95th percentile of a launch in microseconds,
// how much longer the mean is than the mean of the best policy, and the time of a step on all CPUs.
#include "support/aligned_memory.h"
#include "support/try.h"

#include "normjit/engine.h"
#include "normjit/spec.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <omp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

using namespace normjit;

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Options {
    std::vector<int> neighbours = {0};
    int threads = omp_get_max_threads();
    double host_us = 100;
    double seconds = 3;
    std::string only;  ///< the only contender to measure; if empty, all are
    std::vector<std::string> specs = {"layernorm rows=512 cols=768", "layernorm rows=8192 cols=768",
                                      "layernorm rows=8192 cols=4096 x=bf16", "layernorm rows=512 cols=65536",
                                      "layernorm rows=64 cols=1024 x=bf16"};
};

void busy_for(double us) {
    const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(us * 1000));
    while (Clock::now() < end) {
    }
}

/// Processes that never sleep.
class Neighbours {
  public:
    explicit Neighbours(int count) {
        for (int i = 0; i < count; ++i) {
            const pid_t child = fork();
            if (child != 0) {
                children_.push_back(child);
                continue;
            }
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) busy_for(1e6);
        }
    }
    ~Neighbours() {
        for (const pid_t child : children_) kill(child, SIGKILL);
        for (const pid_t child : children_) waitpid(child, nullptr, 0);
    }
    Neighbours(const Neighbours&) = delete;
    Neighbours& operator=(const Neighbours&) = delete;

  private:
    std::vector<pid_t> children_;
};

/// Runs tasks with a static assignment to threads.
void run_static(void* self, int64_t count, void (*task)(void* context, int64_t i), void* context) {
#pragma omp parallel for schedule(static) num_threads(*static_cast<int*>(self))
    for (int64_t i = 0; i < count; ++i) task(context, i);
}

void host_region(double us) {
#pragma omp parallel
    busy_for(us);
}

/// The tensors of a launch: x, dy, statistics and weights are filled with ones; outputs only have memory.
class Tensors {
  public:
    Tensors(const Kernel& kernel, int64_t rows) {
        const Spec& spec = kernel.artifact().spec;
        arguments.rows = rows;
        for (const Tensor tensor : all_tensors) {
            if (!spec.takes_part(tensor)) continue;
            const Axes axes = info(tensor).axes;
            const int64_t count = axes.is_rows() ? rows : axes.is_columns() ? spec.cols : rows * spec.cols;
            void* memory = take(count * static_cast<int64_t>(size_of(spec.dtype(tensor))));
            arguments[tensor] = {memory, spec.dtype(tensor), axes.column ? spec.cols : 0};
        }
        arguments.workspace_bytes = kernel.preferred_workspace(rows);
        arguments.workspace = take(arguments.workspace_bytes);
    }
    Arguments arguments;

  private:
    /// Returns memory that was touched by the threads that will work on it. All bytes are 0x3c: 0.0115 as bf16 and as
    /// f32.
    void* take(int64_t bytes) {
        memory_.push_back(allocate_aligned(4096, bytes));
        auto* memory = static_cast<char*>(memory_.back().get());
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < bytes; ++i) memory[i] = 0x3c;
        return memory;
    }
    std::vector<AlignedMemory> memory_;
};

struct Contender {
    std::string name;
    Kernel kernel;
    std::vector<double> times;
    double cpu_us = 0;  ///< CPU time of all threads during those launches
};

double cpu_us_so_far() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto us = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    };
    return us(used.ru_utime) + us(used.ru_stime);
}

double at(const std::vector<double>& sorted, double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size()))];
}

Status step(const Kernel& kernel, const Arguments& arguments, const Options& options, std::vector<double>* times) {
    if (options.host_us > 0) host_region(options.host_us);
    const Clock::time_point begin = Clock::now();
    NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
    if (times != nullptr) times->push_back(Microseconds(Clock::now() - begin).count());
    return {};
}

/// Runs a block of steps with each contender in turn. Uncounted steps before each block let the previous contender's
/// threads go to sleep.
Status measure(std::vector<Contender>& contenders, const Arguments& arguments, const Options& options) {
    using namespace std::chrono_literals;
    constexpr int least = 3;
    constexpr auto warm_up = 20ms, block = 100ms;
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(options.seconds * 1e6));
    for (int round = 0; round < 2 || Clock::now() < end; ++round) {
        for (Contender& each : contenders) {
            const Clock::time_point begin = Clock::now();
            while (Clock::now() < begin + warm_up)
                NORMJIT_RETURN_IF_ERROR(step(each.kernel, arguments, options, nullptr));
            const double cpu_us = cpu_us_so_far();
            for (int i = 0; i < least || Clock::now() < begin + warm_up + block; ++i)
                NORMJIT_RETURN_IF_ERROR(step(each.kernel, arguments, options, &each.times));
            each.cpu_us += cpu_us_so_far() - cpu_us;
        }
    }
    return {};
}

Expected<std::vector<Contender>> contenders_for(const Spec& spec, const Options& options) {
    std::vector<Contender> contenders;
    const auto add = [&](std::string name, const EngineOptions& engine_options) -> Status {
        if (!options.only.empty() && options.only != name) return {};
        NORMJIT_TRY(const Engine engine, Engine::create(engine_options));
        NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
        contenders.push_back({std::move(name), kernel, {}});
        return {};
    };
    for (const ThreadPolicy policy : all_thread_policies) {
        EngineOptions engine_options;
        engine_options.thread_policy = policy;
        engine_options.threads = options.threads;
        NORMJIT_RETURN_IF_ERROR(add(std::string(name(policy)), engine_options));
    }
    static int threads = 0;
    threads = options.threads;
    EngineOptions engine_options;
    engine_options.threads = threads;
    engine_options.parallel_for = {run_static, &threads};
    NORMJIT_RETURN_IF_ERROR(add("static", engine_options));
    EngineOptions alone;
    alone.threads = 1;
    alone.thread_policy = ThreadPolicy::own;
    NORMJIT_RETURN_IF_ERROR(add("one", alone));
    return contenders;
}

Status run(const std::string& text, const Options& options) {
    NORMJIT_TRY(const Spec spec, parse_spec(text));
    if (!spec.rows) return invalid_argument(text + ": needs rows=");
    NORMJIT_TRY(std::vector<Contender> contenders, contenders_for(spec, options));
    if (contenders.empty()) return invalid_argument("--only: allowed: automatic own openmp static one");
    const Tensors tensors(contenders.front().kernel, *spec.rows);
    NORMJIT_RETURN_IF_ERROR(measure(contenders, tensors.arguments, options));
    double best = 1e300;
    const auto mean = [](const std::vector<double>& times) {
        return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    };
    for (Contender& each : contenders) {
        std::sort(each.times.begin(), each.times.end());
        best = std::min(best, mean(each.times));
    }
    std::printf("%s\n", text.c_str());
    for (const Contender& each : contenders) {
        std::printf("  %-10s %9.1f %9.1f %9.1f %8.2f %9.1f\n", each.name.c_str(), at(each.times, 0.5), mean(each.times),
                    at(each.times, 0.95), mean(each.times) / best,
                    each.cpu_us / static_cast<double>(each.times.size()));
    }
    std::fflush(stdout);
    return {};
}

Status run_all(const Options& options) {
    for (const int count : options.neighbours) {
        const Neighbours neighbours(count);
        std::printf("%d threads, %d neighbours, %.0f us of the host's between launches\n", options.threads, count,
                    options.host_us);
        std::printf("  %-10s %9s %9s %9s %8s %9s\n", "policy", "median", "mean", "p95", "of best", "cpu");
        for (const std::string& text : options.specs) NORMJIT_RETURN_IF_ERROR(run(text, options));
    }
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("What an engine's thread policies cost in a program with its own OpenMP regions");
    Options options;
    app.add_option("SPEC", options.specs, "specs with rows");
    app.add_option("--neighbours", options.neighbours, "numbers of processes that never sleep, joined by commas")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(CLI::Range(0, 1024));
    app.add_option("--threads", options.threads, "of a launch")->check(CLI::Range(1, 1024));
    app.add_option("--host-us", options.host_us, "of the program's region between two launches");
    app.add_option("--seconds", options.seconds, "for each spec");
    app.add_option("--only", options.only, "measure only automatic, own, openmp, static or one");
    CLI11_PARSE(app, argc, argv);
    const Status status = run_all(options);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
}
