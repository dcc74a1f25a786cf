// SPDX-License-Identifier: Apache-2.0
#include "kernel/check_artifact.h"

#include "support/try.h"

#include "normjit/kernel_spec.h"
#include "normjit/operand.h"

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

Status check_entry(const Artifact& artifact, std::string_view name, bool needed) {
    const EntryPoint* entry = artifact.find(name);
    if (entry == nullptr) {
        return needed ? invalid_argument(fmt::format("load: the artifact lacks the entry point {}", name)) : Status();
    }
    if (entry->offset >= 0 && entry->offset < static_cast<int64_t>(artifact.code.size())) return {};
    return invalid_argument(
        fmt::format("load: entry point {} at {}; the code has {} bytes", name, entry->offset, artifact.code.size()));
}

/// True if the machine runs code for `needed`: an x86-64 also runs code for an x86-64 with fewer instructions.
bool runs(Isa machine, Isa needed) {
    constexpr Isa x86[] = {Isa::x86_64, Isa::x86_64_v3, Isa::x86_64_avx512};
    const auto machine_at = std::ranges::find(x86, machine), needed_at = std::ranges::find(x86, needed);
    return machine == needed || (machine_at != std::end(x86) && needed_at < machine_at);
}

/// Checks that there are as many functions for rows, sweeps and the final reduce as the geometry requires.
Status check_entries(const Artifact& artifact) {
    const Geometry& geometry = artifact.geometry;
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows", true));
    for (int64_t i = 0; geometry.cpu.split_rows > 0 && i < geometry.cpu.sweeps; ++i) {
        NORMJIT_RETURN_IF_ERROR(check_entry(artifact, fmt::format("sweep{}", i), true));
    }
    for (const char* name : {"rows_nontemporal", "rows_staged", "last_sweep_nontemporal", "both_sweeps"}) {
        NORMJIT_RETURN_IF_ERROR(check_entry(artifact, name, false));
    }
    const bool overlaps = artifact.find("both_sweeps") != nullptr;
    if (overlaps && geometry.cpu.sweeps != 2) return does_not_fit(artifact, "entry point both_sweeps");
    const bool streams = artifact.find("last_sweep_nontemporal") != nullptr;
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "both_sweeps_nontemporal", overlaps && streams));
    const OperandList operands(kernel_spec(artifact.spec));
    return check_entry(artifact, "final_reduce", !operands.reductions().empty());
}

std::string_view missing_in_cpu(const Target& needed, const Target& machine) {
    if (!runs(machine.isa, needed.isa)) return "that kind of processor";
    if (needed.cpu.avx512_fp16 && !machine.cpu.avx512_fp16) return "AVX512-FP16";
    if (needed.cpu.avx512_bf16 && !machine.cpu.avx512_bf16) return "AVX512-BF16";
    return {};
}

/// Returns what the GPU lacks. Machine code runs on GPUs of the same major version and the same or a higher minor
/// version; PTX runs on all newer GPUs.
std::string_view missing_in_gpu(const Artifact& artifact, const Target& machine) {
    const Target& needed = artifact.target;
    if (needed.isa != machine.isa) return "that kind of processor";
    const bool same_generation = needed.cuda.sm / 10 == machine.cuda.sm / 10;
    if (needed.cuda.sm > machine.cuda.sm || (artifact.format == CodeFormat::cubin && !same_generation))
        return "that architecture";
    for (const CudaPath& path : artifact.cuda_paths) {
        for (const CudaLaunch& launch : path.launches) {
            if (launch.shared_bytes > machine.cuda.shared_bytes) return "as much shared memory for a block";
        }
    }
    return {};
}

}  // namespace

Status check_cpu_artifact(const Artifact& artifact, const Target& machine) {
    NORMJIT_RETURN_IF_ERROR(validate(artifact.spec));
    NORMJIT_RETURN_IF_ERROR(validate(artifact.target));
    const bool anywhere = artifact.format == CodeFormat::portable && !artifact.target.is_cuda();
    if (!anywhere) NORMJIT_RETURN_IF_ERROR(lacking(artifact.target, missing_in_cpu(artifact.target, machine)));
    if (artifact.format == CodeFormat::portable) return {};  // PortableProgram::make() checks the rest
    const CodeFormat format = artifact.target.isa == Isa::aarch64 ? CodeFormat::aarch64 : CodeFormat::x86_64;
    return artifact.format == format ? check_entries(artifact) : does_not_fit(artifact, "code");
}

Status check_cuda_artifact(const Artifact& artifact, const Target& machine) {
    NORMJIT_RETURN_IF_ERROR(validate(artifact.spec));
    NORMJIT_RETURN_IF_ERROR(validate(artifact.target));
    NORMJIT_RETURN_IF_ERROR(lacking(artifact.target, missing_in_gpu(artifact, machine)));
    const bool for_gpus = artifact.format == CodeFormat::cubin || artifact.format == CodeFormat::ptx;
    return for_gpus && !artifact.code.empty() ? Status() : does_not_fit(artifact, "code");
}

}  // namespace normjit
