// SPDX-License-Identifier: Apache-2.0
// What the fastest CUDA schedule of a problem depends on, as numbers that can be compared.
#pragma once

#include "plan/cuda.h"

#include "normjit/operand.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>
#include <string_view>

namespace normjit::schedule {

/// The sizes of the elements of all matrices, in bytes.
struct MatrixBytes {
    int64_t least = 8, most = 1;  ///< least: an output of 8 bits counts as 16
    bool are_alike = true;        ///< all have the same size, of more than 8 bits
};
MatrixBytes matrix_bytes(const OperandList& operands);

/// True if slices have their own column values and the schedule may depend on that. With `invariant` it may not: a
/// kernel for one slice cannot tell such values from shared ones, and must give rows the same bits.
bool depends_on_slices(const Spec& spec);

struct CudaFeatures {
    int64_t cols = 0;
    int width = 1;                 ///< elements of a vector: 16 bytes of the narrowest matrix
    int alignment = 1;             ///< the largest power of two, at most `width`, that divides cols
    int element_bytes = 2;         ///< size of the narrowest matrix's elements
    bool can_shift = false;        ///< a vector may begin before its row
    double rows_of_processor = 0;  ///< rows of all slices per multiprocessor; a large number if the rows are not known,
                                   ///< or if the schedule may not depend on them
    int64_t slice_rows = 0;        ///< rows of a slice with its own columns; 0 if no slice has any, or if they are not
                                   ///< known
    bool has_slices = false;       ///< slices have their own columns
    int matrices_read = 0;
    int matrices_written = 0;
    int columns_read = 0;
    int column_bytes = 0;  ///< bytes of one element of all column inputs together
    int sums = 0;          ///< sums over the rows
    bool reduces = false;  ///< some outputs have no rows: column sums, or sums over everything
    bool is_formula = false;
    uint64_t norm = 0;            ///< hash of a formula's name, which distinguishes norms with the same amount of work
    plan::ElementWork work = {};  ///< for LayerNorm and RMSNorm, only the sweeps are set

    /// Returns the number of vectors in a row, where a part of a vector counts as one.
    int64_t vectors() const;
    /// Returns the most elements that one load can read.
    int widest_load() const { return can_shift ? width : alignment; }
};

/// Return the number of vectors in a block's share of a row, and the most of them that one thread gets.
int64_t vectors_of_block(int64_t cols, const CudaSchedule& s);
int64_t vectors_of_thread(int64_t cols, const CudaSchedule& s);
/// Returns how many lanes have no vector in the last step of a row, as a fraction of all vectors.
double idle_lanes(int64_t cols, const CudaSchedule& s);

CudaFeatures cuda_features(const Spec& spec, const OperandList& operands, const Target& target);

/// Returns how different two problems are; 0 if the same schedule should be the fastest for both.
double distance(const CudaFeatures& a, const CudaFeatures& b);

/// What a quick look at a problem's text reveals, in a hundredth of the time that parsing takes.
struct CudaGlance {
    enum class Sums { none, some, unknown };  ///< whether there are outputs without rows
    bool is_formula = false;
    Sums sums = Sums::unknown;
    double least_vectors = 0, most_vectors = 64;  ///< bounds of the binary logarithm of CudaFeatures::vectors()
};
CudaGlance glance(std::string_view spec);
CudaGlance glance(const CudaFeatures& features);

/// Returns a lower bound of distance() for two problems at which only a quick look was taken.
double least_distance(const CudaGlance& a, const CudaGlance& b);

}  // namespace normjit::schedule
