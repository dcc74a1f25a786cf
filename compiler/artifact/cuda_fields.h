// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "normjit/schedule.h"

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace normjit {

/// A field of a CUDA schedule: its key in the text, and a number or a choice.
struct CudaField {
    std::string_view name;
    std::variant<int64_t, CudaForm, CudaStaging, CudaMemory> value;
};

/// Returns all fields in the order of the text, but the row groups, which belong to every schedule.
std::vector<CudaField> fields(const CudaSchedule& schedule);

}  // namespace normjit
