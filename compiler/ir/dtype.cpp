// SPDX-License-Identifier: Apache-2.0
#include "normjit/dtype.h"

#include "support/text.h"

#include <iterator>

namespace normjit {

std::string_view name(DType type) {
    constexpr std::string_view names[] = {"f32", "bf16", "f16", "f64", "e4m3", "e5m2", "e8m0", "i8"};
    return static_cast<size_t>(type) < std::size(names) ? names[static_cast<size_t>(type)] : "invalid";
}

std::optional<DType> parse_dtype(std::string_view text) { return text::find_by_name(text, all_dtypes); }

}  // namespace normjit
