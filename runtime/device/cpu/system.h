// SPDX-License-Identifier: Apache-2.0
// What the system reports about the machine and this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace normjit::cpu {

/// Returns the first line of a file; empty if there is no such file.
std::string first_line(const std::string& path);

/// Returns the numbers of the processors that the calling thread may run on, at least one.
std::vector<int> usable_processors();

/// Reads a size such as "2048K"; returns 0 for malformed text.
int64_t read_size(std::string text);

}  // namespace normjit::cpu
