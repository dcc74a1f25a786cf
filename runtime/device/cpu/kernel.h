// SPDX-License-Identifier: Apache-2.0
// A kernel on the CPU: machine code or a formula, and the threads that run its tasks.
#pragma once

#include "artifact/cpu_abi.h"
#include "backend/portable/program.h"
#include "device/cpu/executable_memory.h"
#include "device/cpu/threads.h"
#include "kernel_impl.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace normjit::cpu {

struct CpuKernel final : Kernel::Impl {
    CpuKernel(Artifact made, ExecutableMemory memory, std::shared_ptr<const Threads> workers);
    CpuKernel(Artifact made, PortableProgram formula, std::shared_ptr<const Threads> workers);
    Status launch(const LaunchArguments& arguments) const override;
    /// Of arguments with one slice.
    Status launch_plain(const LaunchArguments& arguments) const;
    /// Whether all threads share the columns of each row, as of so many rows.
    bool splits_columns(const LaunchArguments& arguments) const;
    bool final_reduces() const { return operands.has_shared_sums(); }
    bool reduces_slices() const { return operands.has_sums_per_slice(); }

    const std::optional<ExecutableMemory> code;
    const std::optional<PortableProgram> program;  ///< instead of code
    const std::shared_ptr<const Threads> threads;
    const int64_t rows_to_share;     ///< fewer are for the calling thread alone
    const int64_t rows_past_caches;  ///< fewer are written through the caches
    RowsFunction rows = nullptr;
    RowsFunction rows_nontemporal = nullptr;          ///< null when the artifact has none
    RowsFunction rows_realign = nullptr;              ///< null when the artifact has none
    const Operand* realigned = nullptr;               ///< the matrix that rows_realign puts together in lines
    FinalFunction final_reduce = nullptr;             ///< null without column sums over all slices
    FinalFunction slice_reduce = nullptr;             ///< null without column sums over each slice
    std::vector<SweepFunction> sweeps;                ///< empty when the artifact splits no columns
    SweepFunction last_sweep_nontemporal = nullptr;   ///< null when the artifact has none
    SweepFunction both_sweeps = nullptr;              ///< null when the artifact has none
    SweepFunction both_sweeps_nontemporal = nullptr;  ///< null when the artifact has none

  private:
    CpuKernel(Artifact made, std::shared_ptr<const Threads> workers, std::optional<ExecutableMemory> memory,
              std::optional<PortableProgram> formula);
};

}  // namespace normjit::cpu
