// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target is one source file with LLVMFuzzerTestOneInput(). It accepts any bytes, and
// stops the process if an answer breaks its oracle, which is stated in the header comment.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace normjit::fuzz {

/// Stops the process unless `holds`, as a sanitizer would, so that the fuzzer keeps the input. The printed line says
/// what is wrong with the answer.
void require(bool holds, std::string_view what, std::string_view detail = {});

/// Requires an error to be one printable line that starts with `subject`.
void require_error(const Status& status, std::string_view subject);

inline std::string_view as_text(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

}  // namespace normjit::fuzz
