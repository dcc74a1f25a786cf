// SPDX-License-Identifier: Apache-2.0
// What the system reports about the machine and this process.
#pragma once

#include <string>
#include <vector>

namespace normjit::cpu {

/// Returns the first line of a file; empty if there is no such file.
std::string first_line(const std::string& path);

/// Returns the numbers of the processors that the calling thread may run on, at least one.
std::vector<int> usable_processors();

}  // namespace normjit::cpu
