// SPDX-License-Identifier: Apache-2.0
// Converts between the structs of normjit.h and the classes of C++.
#pragma once

#include "normjit/engine.h"
#include "normjit/kernel.h"
#include "normjit/normjit.h"
#include "normjit/operand.h"
#include "normjit/spec.h"
#include "normjit/status.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace normjit::c_abi {

/// Returns the part of a struct that the caller knows, with zeros for the rest, because the struct of an older program
/// is shorter. With `default_if_null`, NULL is a struct of zeros.
template <class Struct>
Expected<Struct> read_struct(const Struct* given, const char* name, bool default_if_null = false) {
    Struct copy{};
    copy.size = sizeof copy;
    if (given == nullptr && default_if_null) return copy;
    if (given == nullptr) return invalid_argument(std::string(name) + ": null pointer");
    if (given->size < sizeof given->size) return invalid_argument(std::string(name) + ": size is not set");
    std::memcpy(&copy, given, std::min(given->size, sizeof copy));
    return copy;
}

/// Writes the part of a struct that the caller knows. `known` is what read_struct() returned.
template <class Struct>
void write_struct(Struct full, const Struct& known, Struct* to) {
    full.size = std::min(known.size, sizeof full);
    std::memcpy(to, &full, full.size);
}

Expected<Spec> to_cpp(const normjit_spec* spec);
normjit_spec to_c(const Spec& spec);
normjit_operand to_c(const Operand& operand, int64_t cols);

/// Converts everything except the log, which belongs to the handle.
Expected<EngineOptions> to_cpp(const normjit_engine_options& options);
Expected<PrepareOptions> to_cpp(const normjit_prepare_options& options);
/// Converts the arguments of a launch of this problem, and ignores other tensors. launch() checks the rest.
Expected<Arguments> to_cpp(const normjit_arguments& arguments, const Spec& spec);

/// Converts a number of slices: in normjit_arguments, 0 is one slice, and NORMJIT_NO_SLICES is none.
inline int64_t to_slices(int64_t slices) { return slices == 0 ? 1 : slices == NORMJIT_NO_SLICES ? 0 : slices; }

/// Implements normjit_set_dlpack().
Status set_dlpack(const Artifact& artifact, normjit_arguments& arguments, Tensor tensor, const void* dl_tensor);

/// Returns the tensor with this number.
Expected<Tensor> to_tensor(int number);

}  // namespace normjit::c_abi
