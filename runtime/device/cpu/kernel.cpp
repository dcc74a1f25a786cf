// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/kernel.h"

#include "artifact/nontemporal_staging.h"
#include "device/cpu/perf_map.h"
#include "system/environment.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::cpu {

CpuKernel::CpuKernel(Artifact made, std::shared_ptr<const Threads> workers, std::optional<ExecutableMemory> memory,
                     std::optional<PortableProgram> formula)
    : Impl(std::move(made)),
      code(std::move(memory)),
      program(std::move(formula)),
      threads(std::move(workers)),
      rows_to_share(Geometry::rows_to_share(spec.cols, threads->count())),
      rows_past_caches(
          artifact.geometry.rows_past_caches(operands, spec.cols, artifact.target.cpu.cores, threads->count())) {
    if (!code) return;
    const auto& cpu = std::get<CpuSchedule>(artifact.schedule.device);
    staged_output = normjit::staged_output(spec.cols, operands, cpu);
    const auto find = [&]<class Function>(const char* entry, Function& function) {
        if (const EntryPoint* found = artifact.find(entry)) function = code->function<Function>(found->offset);
    };
    find("rows", rows);
    find("rows_nontemporal", rows_nontemporal);
    find("rows_staged", rows_staged);
    find("final_reduce", final_reduce);
    find("last_sweep_nontemporal", last_sweep_nontemporal);
    find("both_sweeps", both_sweeps);
    find("both_sweeps_nontemporal", both_sweeps_nontemporal);
    SweepFunction sweep = nullptr;
    for (int64_t i = 0; i < artifact.geometry.cpu.sweeps; ++i) {
        find(fmt::format("sweep{}", i).c_str(), sweep);
        if (sweep != nullptr) sweeps.push_back(sweep);
    }
    if (environment().ok() && environment()->perf_map) write_perf_map(artifact, code->data());
}

Status CpuKernel::launch(const LaunchArguments& arguments) const {
    return arguments.slices == 1 ? launch_plain(*this, arguments) : launch_slices(*this, arguments);
}

bool CpuKernel::splits_columns(const LaunchArguments& arguments) const {
    const int64_t workspace_bytes = arguments.workspace == nullptr ? 0 : arguments.workspace_bytes;
    return !sweeps.empty() && artifact.geometry.is_split(arguments.batch().all_rows(), workspace_bytes);
}

}  // namespace normjit::cpu
