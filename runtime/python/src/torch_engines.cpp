// SPDX-License-Identifier: Apache-2.0
#include "torch_engines.h"

#include "torch_shim.h"

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include <pthread.h>

namespace normjit::torch {

namespace {

constexpr int most_gpus = 64;

constexpr int policies = NORMJIT_THREADS_OPENMP + 1;

std::atomic<normjit_thread_policy> cpu_threads = NORMJIT_THREADS_DEFAULT;

normjit_log engine_log{};  // protected by `making`

normjit_engine* make(int cuda_index, normjit_thread_policy policy) {
    const std::string device = cuda_index < 0 ? "cpu" : "cuda:" + std::to_string(cuda_index);
    normjit_engine_options options{};
    options.size = sizeof options;
    options.device = device.c_str();
    options.log = engine_log;
    if (cuda_index < 0) {
        uint32_t threads = 0;  // this call makes torch set the number of threads of its OpenMP runtime
        NORMJIT_TORCH_CALL(torch_get_num_threads, &threads);
        options.thread_policy = policy;
        options.openmp_user = libtorch();
    }
    normjit_engine* made = nullptr;
    if (normjit_engine_create(&options, &made) != NORMJIT_OK) throw Error(normjit_last_error());
    return made;
}

std::mutex making;
/// Makes the lock anew in a child of fork(), where a thread that does not exist may hold it.
[[maybe_unused]] const int forks_are_safe =
    pthread_atfork([] { making.lock(); }, [] { making.unlock(); }, [] { making.unlock(); });

}  // namespace

void set_log(normjit_log log) {
    const std::lock_guard lock(making);
    engine_log = log;
}

void choose_threads(normjit_thread_policy policy) { cpu_threads = policy; }

normjit_engine* engine(int cuda_index) {
    static std::array<std::atomic<normjit_engine*>, most_gpus + policies> engines;
    if (cuda_index >= most_gpus) throw Error("normjit knows GPUs up to cuda:" + std::to_string(most_gpus - 1));
    const normjit_thread_policy policy = cpu_threads;
    const int i = cuda_index >= 0 ? cuda_index : most_gpus + policy;
    auto& place = engines[static_cast<size_t>(i)];
    if (normjit_engine* made = place.load(std::memory_order_acquire)) return made;
    const std::lock_guard lock(making);
    if (place.load(std::memory_order_acquire) == nullptr)
        place.store(make(cuda_index, policy), std::memory_order_release);
    return place.load(std::memory_order_acquire);
}

}  // namespace normjit::torch
