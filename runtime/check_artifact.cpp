// SPDX-License-Identifier: Apache-2.0
#include "check_artifact.h"

#include "support/try.h"

#include <fmt/format.h>

namespace normjit {

namespace {

Status check_target(const Target& needed, const Target& machine) {
    std::string_view missing;
    if (needed.avx512_fp16 && !machine.avx512_fp16) missing = "AVX512-FP16";
    if (needed.avx512_bf16 && !machine.avx512_bf16) missing = "AVX512-BF16";
    if (needed.isa != machine.isa) missing = "that kind of processor";
    if (missing.empty()) return {};
    return unavailable(
        fmt::format("load: the artifact was made for '{}'; this machine lacks {}", to_text(needed), missing));
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

/// The geometry may choose how much to do at a time, not how much there is.
Status check_geometry(const Artifact& artifact) {
    const Geometry& geometry = artifact.geometry;
    const Spec& spec = artifact.spec;
    const auto element = static_cast<int64_t>(size_of(spec.compute()));
    const int64_t sums = (spec.has(Tensor::dgamma) ? 1 : 0) + (spec.has(Tensor::dbeta) ? 1 : 0);
    const int64_t array_bytes =
        geometry.partial_cols * element;  // partials, and columns that the code keeps beside them
    const bool fits = geometry.row_groups >= 1 && geometry.column_sums == sums && geometry.final_cols >= 1 &&
                      geometry.partial_cols >= spec.cols && geometry.partial_cols <= 2 * max_cols &&
                      geometry.group_bytes >= sums * array_bytes && geometry.group_bytes % array_bytes == 0 &&
                      geometry.group_bytes % workspace_alignment == 0 &&
                      geometry.row_groups <= INT64_MAX / (geometry.group_bytes + 1);
    if (fits) return {};
    return invalid_argument(fmt::format("load: the artifact's geometry does not fit '{}'", to_text(spec)));
}

}  // namespace

Status check_artifact(const Artifact& artifact, const Target& machine) {
    NORMJIT_RETURN_IF_ERROR(validate(artifact.spec));
    NORMJIT_RETURN_IF_ERROR(check_target(artifact.target, machine));
    NORMJIT_RETURN_IF_ERROR(check_geometry(artifact));
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows", true));
    NORMJIT_RETURN_IF_ERROR(check_entry(artifact, "rows_stream", false));
    return check_entry(artifact, "final_reduce", artifact.geometry.column_sums > 0);
}

}  // namespace normjit
