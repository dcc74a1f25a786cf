// SPDX-License-Identifier: Apache-2.0
// The record files of runtime/tuning/shipped. The list in runtime/CMakeLists.txt embeds them at build time.
#pragma once

#include <span>
#include <string_view>

namespace normjit::tuning {

struct Shipped {
    std::string_view name;  ///< "cpu_records.jsonl"
    std::string_view text;
};

std::span<const Shipped> shipped();

}  // namespace normjit::tuning
