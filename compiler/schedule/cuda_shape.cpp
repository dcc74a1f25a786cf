// SPDX-License-Identifier: Apache-2.0
// The properties that the tables of CUDA schedules depend on, and how they count threads.
#include "schedule/cuda_features.h"
#include "schedule/cuda_table.h"
#include "support/divide.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

int whole_warps(int64_t threads) { return static_cast<int>(round_up(threads, 32)); }

/// Returns the fewest vectors a thread, from `least` on, that leave no lane idle, or else `least`.
int64_t vectors_without_idle_lanes(int64_t of_block, int64_t least) {
    for (int64_t steps = least; steps <= least + 3; ++steps) {
        if (of_block % (32 * steps) == 0) return steps;
    }
    return least;
}

/// Returns how many vectors each of about `threads` threads takes: the fewest possible, or one more where that leaves
/// far fewer lanes idle.
int64_t vectors_near(int64_t of_block, int64_t threads) {
    const int64_t steps = divide_up(of_block, threads);
    const auto lanes = [of_block](int64_t each) { return each * round_up(divide_up(of_block, each), 32); };
    return lanes(steps + 1) * 16 < lanes(steps) * 15 ? steps + 1 : steps;
}

/// Returns the divisor of a vector's width, 2 or 4, with which loads divide a row exactly and cost less than shifting,
/// or 1. Quarters pay only in short launches (NOTES N-708).
int choose_load_divisor(const Spec& spec, int width, int64_t element_bytes) {
    constexpr int64_t least_of_quarters = 65 * 8, most_of_quarters = 1024 * 8, short_launch = 32 << 20;
    if (spec.cols % width == 0 || width * element_bytes != 16) return 1;
    if (spec.cols % (width / 2) == 0) return 2;
    const bool is_short = spec.batch() && bytes_moved(spec, *spec.batch()) <= short_launch;
    const bool has_pairs = width == 8 && spec.cols % 2 == 0;
    return is_short && has_pairs && spec.cols >= least_of_quarters && spec.cols <= most_of_quarters ? 4 : 1;
}

/// True for narrow rows that start anywhere in a vector, and for wider ones in short launches: points predict their
/// schedules better than the tables, which have no loads of single elements (NOTES N-713).
bool starts_anywhere_and_is_short(const Spec& spec, const CudaShape& shape, int64_t element_bytes) {
    constexpr int64_t narrow = 1 << 10, widest = 8 << 10, short_launch = 64 << 20;
    const int64_t row_bytes = spec.cols * element_bytes;
    if (spec.invariant || spec.cols % shape.width == 0 || row_bytes >= widest) return false;
    return row_bytes < narrow || (spec.batch() && bytes_moved(spec, *spec.batch()) < short_launch);
}

/// With more than 256 threads, each would get 168 registers instead of 255.
int busy_threads(int64_t of_block) {
    const auto lanes = [of_block](int64_t threads) { return divide_up(of_block, threads) * threads; };
    return of_block <= 1536 && lanes(224) < lanes(256) ? 224 : 256;
}

}  // namespace

int64_t CudaShape::vectors_of_block(int cluster) const { return divide_up(vectors, cluster); }

int CudaShape::blocks_of_wide_row() const {
    constexpr int64_t most_vectors = 1024, most_of_8_blocks = 16384;
    int cluster = 1;
    while (cluster < most_cluster && vectors > most_vectors * cluster) cluster *= 2;
    return !two_sums && cluster == 16 && vectors <= most_of_8_blocks ? 8 : cluster;
}

/// Chooses vectors that have 16 bytes in the narrowest matrix, where elements count as at least 16 bits. If these do
/// not divide a row, and either the matrices have different types or rows must not start within a vector, it chooses
/// the widest that do. The tables cover sums over the rows of one slice (NOTES N-712), except for short rows that start
/// anywhere in a vector (N-713).
CudaShape find_cuda_shape(const Spec& spec, const Target& target) {
    const OperandList operands(spec);
    const auto [least, most, are_alike] = matrix_bytes(operands);
    CudaShape shape{.cols = spec.cols, .width = static_cast<int>(16 / std::max<int64_t>(least, 2))};
    while ((!are_alike || spec.invariant || spec.has_neighbours()) && spec.cols % shape.width != 0) shape.width /= 2;
    shape.width = std::max(shape.width, narrowest_of_groups(spec));
    shape.load_divisor = choose_load_divisor(spec, shape.width, least);
    shape.shifted = spec.cols % shape.loaded_width() != 0;
    shape.vectors = shape.shifted ? plan::vectors_of_row(spec.cols, shape.width) : divide_up(spec.cols, shape.width);
    shape.aligned = shape.loaded_width() * least == 16;
    shape.copyable = shape.loaded_width() * least >= 4;
    const bool has_short_rows = starts_anywhere_and_is_short(spec, shape, least);
    shape.is_in_tables = !operands.reductions().empty() && !depends_on_slices(spec) && !has_short_rows;
    shape.two_sums = operands.column_outputs().size() >= 2;
    shape.forward_like = operands.matrices().size() == 1 && operands.reductions().empty();
    shape.wide_columns =
        std::ranges::any_of(operands.columns(), [widest = most](const Operand& c) { return c.bytes() > widest; });
    shape.most_cluster = plan::largest_cluster(target);
    return shape;
}

std::string to_text(const Range& range) {
    if (range.from == range.to) return fmt::format("{}", range.from);
    return range.to == INT64_MAX ? fmt::format("{} or more", range.from)
                                 : fmt::format("{} to {}", range.from, range.to);
}

std::string_view name(Sums sums) {
    constexpr std::string_view names[] = {"any", "one or none", "two"};
    return names[static_cast<size_t>(sums)];
}

bool holds(Sums sums, bool two_sums) { return sums == Sums::any || (sums == Sums::two) == two_sums; }

int count_threads(Threads threads, const CudaShape& shape, const CudaSchedule& s) {
    const int64_t vectors = divide_up(plan::vectors_of_row(shape.cols, s.vector_width), s.cluster);
    int64_t steps = threads.number;
    switch (threads.rule) {
        case Threads::Rule::unchanged:
            return s.threads_per_row;
        case Threads::Rule::exactly:
            return threads.number;
        case Threads::Rule::busy:
            return busy_threads(vectors);
        case Threads::Rule::vectors:
            break;
        case Threads::Rule::near:
            steps = vectors_near(vectors, threads.number);
            break;
        case Threads::Rule::within:
            steps = divide_up(vectors, threads.number);
            break;
        case Threads::Rule::even:
            steps = vectors_without_idle_lanes(vectors, threads.number);
            break;
        case Threads::Rule::even_rows:
        case Threads::Rule::half_even_rows:
            steps = std::max<int64_t>(2, divide_up(vectors, 512));
            if (shape.vectors % s.cluster == 0) steps = vectors_without_idle_lanes(vectors, steps);
            if (threads.rule == Threads::Rule::half_even_rows) steps *= 2;
            break;
    }
    return whole_warps(divide_up(vectors, steps));
}

}  // namespace normjit::schedule
