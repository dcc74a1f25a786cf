// SPDX-License-Identifier: Apache-2.0
// What the system says of the machine and of this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace normjit::cpu {

/// Of a file; empty without one.
std::string first_line(const std::string& path);

/// The numbers of the processors that the calling thread may run on, at least one.
std::vector<int> usable_processors();

/// Bytes that the machine has.
int64_t physical_memory();

/// A quarter of the memory that is free, and of what control groups allow.
int64_t spare_memory();

/// "2048K"; 0 for what is no size.
int64_t read_size(std::string text);

}  // namespace normjit::cpu
