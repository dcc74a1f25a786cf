// SPDX-License-Identifier: Apache-2.0
#include "normjit/dtype.h"

namespace normjit {

std::string_view name(DType type) {
    switch (type) {
        case DType::f32:
            return "f32";
        case DType::bf16:
            return "bf16";
        case DType::f16:
            return "f16";
        case DType::f64:
            return "f64";
        case DType::e4m3:
            return "e4m3";
        case DType::e5m2:
            return "e5m2";
        case DType::e8m0:
            return "e8m0";
        case DType::i8:
            return "i8";
    }
    return "invalid";
}

std::optional<DType> parse_dtype(std::string_view text) {
    for (DType type : all_dtypes) {
        if (name(type) == text) return type;
    }
    return std::nullopt;
}

}  // namespace normjit
