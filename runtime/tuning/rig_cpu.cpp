// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/system.h"
#include "support/try.h"
#include "tuning/rig.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace normjit::tuning {

namespace {

using Clock = std::chrono::steady_clock;

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<void, Free>;

Expected<Memory> allocate(int64_t bytes) {
    constexpr int64_t page = 4096;
    Memory memory(std::aligned_alloc(page, static_cast<size_t>(bytes / page + 1) * page));
    if (memory == nullptr) return unavailable(fmt::format("tuning: no memory for {} bytes", bytes));
    return memory;
}

class CpuRig final : public Rig {
  public:
    Status allocate_tensors(const Spec& spec, int64_t rows) {
        arguments_.rows = rows;
        for (const Tensor tensor : all_tensors) {
            if (!spec.has(tensor)) continue;
            const int64_t bytes = bytes_of(spec, tensor, rows);
            NORMJIT_TRY(memory_[tensor], allocate(bytes));
            fill_with_numbers(*spec.dtypes[tensor], memory_[tensor].get(), bytes);
            const bool is_rows = info(tensor).shape == TensorShape::rows;
            arguments_[tensor].data = memory_[tensor].get();
            arguments_[tensor].dtype = *spec.dtypes[tensor];
            arguments_[tensor].cols = is_rows ? 0 : spec.cols;
        }
        return {};
    }

    Expected<std::vector<std::vector<double>>> time(std::span<const Kernel> kernels, int rounds) override {
        for (const Kernel& kernel : kernels) NORMJIT_RETURN_IF_ERROR(fit(kernel));
        double shortest = 1;
        for (const Kernel& kernel : kernels) {
            NORMJIT_TRY(const double seconds, seconds_of(kernel, 1));
            shortest = std::min(shortest, seconds);
        }
        constexpr double readable = 20e-6;  // of the clock
        const auto launches = static_cast<int>(std::clamp(readable / std::max(shortest, 1e-9), 1.0, 1000.0));
        std::vector<std::vector<double>> seconds(kernels.size());
        for (int round = 0; round < rounds; ++round) {
            for (size_t i = 0; i < kernels.size(); ++i) {
                const size_t k = (i + static_cast<size_t>(round)) % kernels.size();
                NORMJIT_TRY(const double each, seconds_of(kernels[k], launches));
                seconds[k].push_back(each);
            }
        }
        return seconds;
    }

  private:
    Status fit(const Kernel& kernel) {
        const int64_t bytes = kernel.preferred_workspace(arguments_.rows);
        if (workspace_ != nullptr && bytes <= arguments_.workspace_bytes) return {};
        NORMJIT_TRY(workspace_, allocate(bytes));
        std::memset(workspace_.get(), 0, static_cast<size_t>(bytes));
        arguments_.workspace = workspace_.get();
        arguments_.workspace_bytes = bytes;
        return {};
    }

    Expected<double> seconds_of(const Kernel& kernel, int launches) const {
        const auto start = Clock::now();
        for (int i = 0; i < launches; ++i) NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments_));
        return std::chrono::duration<double>(Clock::now() - start).count() / launches;
    }

    PerTensor<Memory> memory_;
    Memory workspace_;
    Arguments arguments_;
};

}  // namespace

OpenedRig open_cpu_rig(const Spec& spec, int64_t rows) {
    const double present = static_cast<double>(cpu::physical_memory());
    const int64_t needed = bytes_moved(spec, rows);
    if (static_cast<double>(needed) > present / 4) {
        return unavailable(fmt::format("tuning: '{}' takes {} bytes, more than a quarter of this machine's memory",
                                       to_text(spec), needed));
    }
    auto rig = std::make_unique<CpuRig>();
    NORMJIT_RETURN_IF_ERROR(rig->allocate_tensors(spec, rows));
    return std::unique_ptr<Rig>(std::move(rig));
}

}  // namespace normjit::tuning
