// SPDX-License-Identifier: Apache-2.0
// Text files that variables name: lines that people write and merge.
#pragma once

#include "normjit/status.h"

#include <string>

namespace normjit::tuning {

/// The whole of a regular file of at most 64 MiB: what is larger is something else. Waits for no pipe's other end, and
/// reads nothing that has none, like a device. Errors have no subject: "is no regular file".
Expected<std::string> read_text_file(const std::string& path);

}  // namespace normjit::tuning
