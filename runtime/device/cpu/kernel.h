// SPDX-License-Identifier: Apache-2.0
// A kernel that is loaded on the CPU: machine code or a formula, and the threads that run its launches.
#pragma once

#include "artifact/cpu_abi.h"
#include "backend/portable/program.h"
#include "device/cpu/executable_memory.h"
#include "device/cpu/threads.h"
#include "kernel/kernel_impl.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace normjit::cpu {

/// A loaded kernel.
struct CpuKernel : Kernel::Impl {
    /// Takes either code in memory or a formula.
    CpuKernel(Artifact made, std::shared_ptr<const Threads> workers, std::optional<ExecutableMemory> memory,
              std::optional<PortableProgram> formula);
    Status launch(const LaunchArguments& arguments) const override;
    /// True if all threads share the columns of each row.
    bool splits_columns(const LaunchArguments& arguments) const;

    const std::optional<ExecutableMemory> code;
    const std::optional<PortableProgram> program;  ///< evaluates the formula if there is no code
    const std::shared_ptr<const Threads> threads;
    const int64_t rows_to_share;     ///< launches with fewer rows run on the calling thread alone
    const int64_t rows_past_caches;  ///< launches with fewer rows write through the caches
    RowsFunction rows = nullptr;
    RowsFunction rows_nontemporal = nullptr;          ///< null if the artifact has none
    RowsFunction rows_staged = nullptr;               ///< null if the artifact has none
    const Operand* staged_output = nullptr;           ///< the matrix whose lines rows_staged fills
    FinalFunction final_reduce = nullptr;             ///< null without reductions over the rows
    std::vector<SweepFunction> sweeps;                ///< empty if the artifact splits no columns
    SweepFunction last_sweep_nontemporal = nullptr;   ///< null if the artifact has none
    SweepFunction both_sweeps = nullptr;              ///< null if the artifact has none
    SweepFunction both_sweeps_nontemporal = nullptr;  ///< null if the artifact has none
};

/// Launches rows in one slice (plain_launch.cpp).
Status launch_plain(const CpuKernel& kernel, const LaunchArguments& arguments);
/// Launches rows in several slices, or in none (sliced_launch.cpp).
Status launch_slices(const CpuKernel& kernel, const LaunchArguments& arguments);

}  // namespace normjit::cpu
