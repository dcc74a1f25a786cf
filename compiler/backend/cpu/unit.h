// SPDX-License-Identifier: Apache-2.0
// Vocabulary of the code generators for CPUs. A unit is the piece of a row that is computed at once: 1 or 2 registers.
#pragma once

#include <cstdint>

namespace normjit::backend::cpu {

/// How the columns of a unit are arranged in registers.
///   one        as in memory, in one register
///   even_odd   twice as many columns in two registers: the even ones and the odd ones. Rows of bf16 use this: one load
///              as wide as a register, a shift and a mask give both, while widening in order takes two loads and four
///              instructions
enum class Packing { one, even_odd };

enum class Lanes { all, tail };

/// How output matrices are stored.
///   nontemporal   past the caches; every row starts at a line boundary
///   staged        normally or, through another entry point, one of them past the caches by way of the stack. Its
///                 rows have no gaps, and the first may start anywhere, or all start at line boundaries
enum class Caching { normal, nontemporal, staged };

/// A unit of columns within a step or strip.
struct Columns {
    int64_t elements;  ///< counted from the step's first column
    Lanes lanes;
};

}  // namespace normjit::backend::cpu
