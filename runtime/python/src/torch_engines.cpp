// SPDX-License-Identifier: Apache-2.0
#include "torch_engines.h"

#include "torch_shim.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string>

namespace normjit::torch {

namespace {

constexpr int most_gpus = 64;

std::atomic<Threads> cpu_threads = Threads::torch;

/// Torch's threads: OpenMP's, which spin between parallel regions and would fight for the cores with others of ours.
void run_on_torch_threads(void*, int64_t count, void (*task)(void* context, int64_t i), void* context) {
    struct Tasks {
        void (*task)(void* context, int64_t i);
        void* context;
    } tasks{task, context};
    const auto run = [](int64_t begin, int64_t end, void* all) {
        for (int64_t i = begin; i < end; ++i) static_cast<Tasks*>(all)->task(static_cast<Tasks*>(all)->context, i);
    };
    shim().torch_parallel_for(0, count, 1, run, &tasks);  // a launch whose tasks have not all run fails
}

normjit_engine* make(int cuda_index) {
    const std::string device = cuda_index < 0 ? "cpu" : "cuda:" + std::to_string(cuda_index);
    normjit_engine_options options{};
    options.size = sizeof options;
    options.device = device.c_str();
    if (cuda_index < 0 && cpu_threads == Threads::torch) {
        uint32_t threads = 0;
        NORMJIT_TORCH_CALL(torch_get_num_threads, &threads);
        options.threads = static_cast<int32_t>(threads);
        options.parallel_for = {run_on_torch_threads, nullptr};
    }
    normjit_engine* made = nullptr;
    if (normjit_engine_create(&options, &made) != NORMJIT_OK) throw Error(normjit_last_error());
    return made;
}

}  // namespace

void choose_threads(Threads threads) { cpu_threads = threads; }

normjit_engine* engine(int cuda_index) {
    static std::array<std::atomic<normjit_engine*>, most_gpus + 2> engines;
    static std::mutex making;
    if (cuda_index >= most_gpus) throw Error("normjit knows GPUs up to cuda:" + std::to_string(most_gpus - 1));
    const int own_cpu = most_gpus, torch_cpu = most_gpus + 1;
    const int i = cuda_index >= 0 ? cuda_index : cpu_threads == Threads::own ? own_cpu : torch_cpu;
    auto& place = engines[static_cast<size_t>(i)];
    if (normjit_engine* made = place.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(making);
    if (place.load(std::memory_order_acquire) == nullptr) place.store(make(cuda_index), std::memory_order_release);
    return place.load(std::memory_order_acquire);
}

}  // namespace normjit::torch
