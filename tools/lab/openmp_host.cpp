// SPDX-License-Identifier: Apache-2.0
// openmp_host [--neighbours N] [--host-us T] [--seconds S] [SPEC ...]: what the thread policies of an engine cost in a
// program that has OpenMP regions of its own, as a PyTorch process does. A step is one such region, of T us with all
// threads, and one launch; policies take turns, and all see the same neighbours: N processes that never sleep. Prints
// the median, mean and 90th percentile of a launch, in microseconds, and how much longer than with the best policy.
#include "support/text.h"
#include "support/try.h"

#include "normjit/engine.h"
#include "normjit/spec.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <omp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

using namespace normjit;

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

struct Options {
    int neighbours = 0;
    double host_us = 100;
    double seconds = 3;
    std::vector<std::string> specs;
};

void busy_for(double us) {
    const Clock::time_point end = Clock::now() + std::chrono::nanoseconds(static_cast<int64_t>(us * 1000));
    while (Clock::now() < end) {
    }
}

/// Before the process has any threads.
void start_neighbours(int count) {
    for (int i = 0; i < count; ++i) {
        if (fork() != 0) continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) busy_for(1e6);
    }
}

void host_region(double us) {
#pragma omp parallel
    busy_for(us);
}

/// x, dy, statistics and weights of ones, and room for the outputs.
class Tensors {
  public:
    Tensors(const Kernel& kernel, int64_t rows) {
        const Spec& spec = kernel.artifact().spec;
        arguments.rows = rows;
        for (const Tensor tensor : all_tensors) {
            if (!spec.takes_part(tensor)) continue;
            const TensorShape shape = info(tensor).shape;
            const int64_t count = shape == TensorShape::rows   ? rows
                                  : shape == TensorShape::cols ? spec.cols
                                                               : rows * spec.cols;
            void* memory = take(count * static_cast<int64_t>(size_of(*spec.dtypes[tensor])));
            arguments[tensor] = {memory, *spec.dtypes[tensor], shape == TensorShape::rows ? 0 : spec.cols};
        }
        arguments.workspace_bytes = kernel.preferred_workspace(rows);
        arguments.workspace = take(arguments.workspace_bytes);
    }
    Arguments arguments;

  private:
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    /// Touched by the threads that will work on it. All bytes 0x3c: a bf16 of 0.0115 and an f32 of as much.
    void* take(int64_t bytes) {
        const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1) + 4095) / 4096 * 4096;
        auto* memory = static_cast<char*>(std::aligned_alloc(4096, size));
#pragma omp parallel for schedule(static)
        for (size_t i = 0; i < size; ++i) memory[i] = 0x3c;
        memory_.emplace_back(memory);
        return memory;
    }
    std::vector<std::unique_ptr<void, Free>> memory_;
};

struct Contender {
    ThreadPolicy policy;
    Kernel kernel;
    std::vector<double> times;
};

double at(const std::vector<double>& sorted, double share) {
    return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size()))];
}

/// A block of steps with each in turn, long enough that what one left awake does not count for the next.
Status measure(std::vector<Contender>& contenders, const Arguments& arguments, const Options& options) {
    constexpr int block = 25;
    const Clock::time_point end = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(options.seconds * 1e6));
    for (int round = -2; round < 4 || Clock::now() < end; ++round) {
        for (Contender& each : contenders) {
            for (int i = -2; i < block; ++i) {
                if (options.host_us > 0) host_region(options.host_us);
                const Clock::time_point begin = Clock::now();
                NORMJIT_RETURN_IF_ERROR(each.kernel.launch(arguments));
                const double took = Microseconds(Clock::now() - begin).count();
                if (round >= 0 && i >= 0) each.times.push_back(took);
            }
        }
    }
    return {};
}

Status run(const std::string& text, const Options& options) {
    NORMJIT_TRY(const Spec spec, parse_spec(text));
    if (!spec.rows) return invalid_argument(text + ": needs rows=");
    std::vector<Contender> contenders;
    for (const ThreadPolicy policy : all_thread_policies) {
        EngineOptions engine_options;
        engine_options.thread_policy = policy;
        NORMJIT_TRY(const Engine engine, Engine::create(engine_options));
        NORMJIT_TRY(const Kernel kernel, engine.prepare(spec));
        contenders.push_back({policy, kernel, {}});
    }
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
        std::printf("  %-10s %9.1f %9.1f %9.1f %8.2f\n", std::string(name(each.policy)).c_str(), at(each.times, 0.5),
                    mean(each.times), at(each.times, 0.9), mean(each.times) / best);
    }
    return {};
}

Expected<Options> read(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (!word.starts_with("--")) {
            options.specs.push_back(word);
            continue;
        }
        if (i + 1 == argc) return invalid_argument(word + ": needs a number");
        const double number = std::atof(argv[++i]);
        if (word == "--neighbours") {
            options.neighbours = static_cast<int>(number);
        } else if (word == "--host-us") {
            options.host_us = number;
        } else if (word == "--seconds") {
            options.seconds = number;
        } else {
            return invalid_argument(word + ": allowed: --neighbours --host-us --seconds");
        }
    }
    if (options.specs.empty()) {
        options.specs = {"layernorm rows=32 cols=768", "layernorm rows=512 cols=768",
                         "layernorm rows=2048 cols=768 x=bf16", "layernorm rows=8192 cols=768",
                         "layernorm rows=4 cols=65536"};
    }
    return options;
}

Status run_all(int argc, char** argv) {
    NORMJIT_TRY(const Options options, read(argc, argv));
    start_neighbours(options.neighbours);
    std::printf("%d OpenMP threads, %d neighbours, %.0f us of the host's between launches\n", omp_get_max_threads(),
                options.neighbours, options.host_us);
    std::printf("  %-10s %9s %9s %9s %8s\n", "policy", "median", "mean", "p90", "of best");
    for (const std::string& text : options.specs) NORMJIT_RETURN_IF_ERROR(run(text, options));
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    const Status status = run_all(argc, argv);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
}
