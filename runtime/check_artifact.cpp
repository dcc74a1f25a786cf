// SPDX-License-Identifier: Apache-2.0
#include "check_artifact.h"

#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit {

namespace {

Status lacking(const Target& needed, std::string_view missing) {
    if (missing.empty()) return {};
    return unavailable(
        fmt::format("load: the artifact was made for '{}'; this device lacks {}", to_text(needed), missing));
}

Status does_not_fit(const Artifact& artifact, std::string_view part) {
    return invalid_argument(fmt::format("load: the artifact's {} does not fit '{}'", part, to_text(artifact.spec)));
}

/// The geometry may choose how much to do at a time, not how much there is.
Status check_geometry(const Artifact& artifact) {
    const Geometry& geometry = artifact.geometry;
    const Spec& spec = artifact.spec;
    const auto element = static_cast<int64_t>(size_of(spec.compute()));
    const int64_t sums = (spec.has(Tensor::dgamma) ? 1 : 0) + (spec.has(Tensor::dbeta) ? 1 : 0);
    const bool fits = geometry.row_groups >= 1 && geometry.column_sums == sums && geometry.final_cols >= 1 &&
                      geometry.partial_cols >= spec.cols && geometry.partial_cols <= 2 * max_cols &&
                      geometry.group_bytes >= sums * geometry.partial_cols * element &&
                      geometry.row_groups <= INT64_MAX / (geometry.group_bytes + 1) && geometry.row_bytes >= 0;
    return fits ? Status() : does_not_fit(artifact, "geometry");
}

/// What CPU code keeps beside its partials is columns too.
Status check_cpu_geometry(const Artifact& artifact) {
    const Geometry& geometry = artifact.geometry;
    const int64_t array_bytes = geometry.partial_cols * static_cast<int64_t>(size_of(artifact.spec.compute()));
    const bool fits = geometry.group_bytes % array_bytes == 0 && geometry.group_bytes % workspace_alignment == 0;
    return fits ? Status() : does_not_fit(artifact, "geometry");
}

Status check_entry(const Artifact& artifact, std::string_view name, bool needed) {
    const EntryPoint* entry = artifact.find(name);
    if (entry == nullptr) {
        return needed ? invalid_argument(fmt::format("load: the artifact lacks the entry point {}", name)) : Status();
    }
    if (entry->offset >= 0 && entry->offset < static_cast<int64_t>(artifact.code.size())) return {};
    return invalid_argument(
        fmt::format("load: entry point {} at {}; the code has {} bytes", name, entry->offset, artifact.code.size()));
}

/// x86-64 with more instructions runs what was made for fewer.
bool runs(Isa machine, Isa needed) {
    constexpr Isa x86[] = {Isa::x86_64, Isa::x86_64_v3, Isa::x86_64_avx512};
    const auto machine_at = std::ranges::find(x86, machine), needed_at = std::ranges::find(x86, needed);
    return machine == needed || (machine_at != std::end(x86) && needed_at < machine_at);
}

/// Either all sweeps or none: without them no launch splits columns.
Status check_sweeps(const Artifact& artifact) {
    const Geometry& geometry = artifact.geometry;
    const bool has_sweeps = artifact.find("sweep0") != nullptr;
    for (int64_t i = 0; i < geometry.sweeps && has_sweeps; ++i) {
        NORMJIT_RETURN_IF_ERROR(check_entry(artifact, fmt::format("sweep{}", i), true));
    }
    for (const char* name : {"last_sweep_stream", "both_sweeps", "both_sweeps_stream"}) {
        NORMJIT_RETURN_IF_ERROR(check_entry(artifact, name, false));
    }
    const bool overlaps = artifact.find("both_sweeps") != nullptr;
    const bool streams = artifact.find("last_sweep_stream") != nullptr;
    if (overlaps && streams) NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "both_sweeps_stream", true));
    if (geometry.split_rows == 0) return {};
    constexpr int64_t most_sweeps = 8, most_block_rows = 64, most_teams = 1024, most_means = 4;  // means: of a sweep
    constexpr int64_t most_group_bytes = INT64_MAX / 4 / most_teams;  // with sums and progress no overflow either
    const auto element = static_cast<int64_t>(size_of(artifact.spec.compute()));
    const int64_t rows_bytes = geometry.column_parts * geometry.part_sums_bytes(element);
    const bool fits = geometry.sweeps >= 1 && geometry.sweeps <= (overlaps ? 2 : most_sweeps) &&
                      geometry.part_cols >= 1 && geometry.block_rows <= most_block_rows &&
                      geometry.teams <= most_teams &&
                      geometry.column_parts == (artifact.spec.cols - 1) / geometry.part_cols + 1 &&
                      geometry.group_bytes <= most_group_bytes && geometry.sums_bytes % workspace_alignment == 0 &&
                      geometry.sums_bytes >= (geometry.sweeps - 1) * rows_bytes &&
                      geometry.sums_bytes <= geometry.sweeps * most_means * rows_bytes;
    return fits ? Status() : does_not_fit(artifact, "geometry");
}

std::string_view missing_in_cpu(const Target& needed, const Target& machine) {
    if (!runs(machine.isa, needed.isa)) return "that kind of processor";
    if (needed.avx512_fp16 && !machine.avx512_fp16) return "AVX512-FP16";
    if (needed.avx512_bf16 && !machine.avx512_bf16) return "AVX512-BF16";
    return {};
}

/// Machine code runs on its generation of GPUs from its own number on, PTX on everything newer.
std::string_view missing_in_gpu(const Artifact& artifact, const Target& machine) {
    const Target& needed = artifact.target;
    if (needed.isa != machine.isa) return "that kind of processor";
    const bool same_generation = needed.sm / 10 == machine.sm / 10;
    if (needed.sm > machine.sm || (artifact.format == CodeFormat::cubin && !same_generation))
        return "that architecture";
    for (const CudaPath& path : artifact.cuda_paths) {
        for (const CudaLaunch& launch : path.launches) {
            if (launch.shared_bytes > machine.shared_bytes) return "as much shared memory for a block";
        }
    }
    return {};
}

bool is_launchable(const CudaLaunch& launch) {
    constexpr int most_threads = 1024, most_cluster = 16;
    return !launch.entry.empty() && launch.blocks >= 1 && launch.blocks <= INT32_MAX && launch.threads >= 1 &&
           launch.threads <= most_threads && launch.cluster >= 1 && launch.cluster <= most_cluster &&
           launch.shared_bytes >= 0;
}

Status check_paths(const Artifact& artifact) {
    const bool for_gpus = artifact.format == CodeFormat::cubin || artifact.format == CodeFormat::ptx;
    if (!for_gpus || artifact.code.empty()) return does_not_fit(artifact, "code");
    for (const CudaPath& path : artifact.cuda_paths) {
        if (path.vector_width < 1 || path.rows_per_block < 1) return does_not_fit(artifact, "path");
        if (!std::all_of(path.launches.begin(), path.launches.end(), is_launchable)) {
            return does_not_fit(artifact, "launch");
        }
    }
    const bool takes_all = !artifact.cuda_paths.empty() && artifact.cuda_paths.back().vector_width == 1;
    return takes_all ? Status() : does_not_fit(artifact, "last path");
}

}  // namespace

Status check_cpu_artifact(const Artifact& artifact, const Target& machine) {
    NORMJIT_RETURN_IF_ERROR(validate(artifact.spec));
    const bool anywhere = artifact.format == CodeFormat::portable && !artifact.target.is_cuda();
    if (!anywhere) NORMJIT_RETURN_IF_ERROR(lacking(artifact.target, missing_in_cpu(artifact.target, machine)));
    NORMJIT_RETURN_IF_ERROR(check_geometry(artifact));
    NORMJIT_RETURN_IF_ERROR(check_cpu_geometry(artifact));
    if (artifact.format == CodeFormat::portable) return {};  // the rest is PortableProgram::make()'s to find
    const CodeFormat format = artifact.target.isa == Isa::aarch64 ? CodeFormat::aarch64 : CodeFormat::x86_64;
    if (artifact.format != format) return does_not_fit(artifact, "code");
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows", true));
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows_stream", false));
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows_realign", false));
    NORMJIT_RETURN_IF_ERROR(check_sweeps(artifact));
    return check_entry(artifact, "final_reduce", artifact.geometry.column_sums > 0);
}

Status check_cuda_artifact(const Artifact& artifact, const Target& machine) {
    NORMJIT_RETURN_IF_ERROR(validate(artifact.spec));
    NORMJIT_RETURN_IF_ERROR(lacking(artifact.target, missing_in_gpu(artifact, machine)));
    NORMJIT_RETURN_IF_ERROR(check_geometry(artifact));
    return check_paths(artifact);
}

}  // namespace normjit
