// SPDX-License-Identifier: Apache-2.0
#include "normjit/kernel_name.h"

#include "normjit/kernel_spec.h"

#include <fmt/format.h>

namespace normjit {

std::string kernel_name(const Spec& of, std::string_view phase) {
    const Spec& spec = whole_spec(of);
    const DType x = spec.dtype_if(Tensor::x).value_or(spec.compute());
    return fmt::format("normjit_{}_{}_{}_{}_{}", spec.norm_name(), name(spec.pass), name(x), spec.cols, phase);
}

}  // namespace normjit
