// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_features.h"

#include "spec/formula.h"
#include "support/divide.h"
#include "support/text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

namespace normjit::schedule {

namespace {

/// The weight of each difference, chosen so that points predict each other (NOTES N-712). A factor of two is one unit
/// of difference.
struct Weights {
    double vectors = 1.4, rows = 0.25, work = 0.5, alignment = 2, narrow_alignment = 1, width = 0.5, sums = 1.5;
    double reduces = 4, reads_one = 3, matrix = 0.5, columns = 0.5, slices = 0.5, slice_rows = 0.25, formula = 0.5;
    double norm = 0.1, sweeps = 0.5, functions = 0.5, group_maxima = 1;
};
constexpr Weights weight;

constexpr double many_rows = 1e9;              // rows per multiprocessor
constexpr double most_rows = 8;                // rows per multiprocessor: more rows only add work
constexpr double most_work = 1 << 15;          // vectors per multiprocessor
constexpr double most_work_of_sums = 1 << 18;  // larger, because the best `pace` still changes for longer launches
constexpr int64_t most_slice_rows = 128;
constexpr int64_t narrow_vectors = 64;  // rows up to this length share a block, wherever they start

double log2_of(int64_t value) { return std::log2(static_cast<double>(value)); }

int64_t read_cols(std::string_view text) {
    const auto cols = text::parse_int(text, 1, INT64_MAX / 8);
    return cols ? *cols : 0;
}

double log_up_to(double value, double most) { return std::log2(std::clamp(value, 1e-4, most)); }

double rows_distance(const CudaFeatures& a, const CudaFeatures& b) {
    const auto rows = [](const CudaFeatures& f) { return log_up_to(f.rows_of_processor, most_rows); };
    const auto work = [](const CudaFeatures& f) {
        return log_up_to(f.rows_of_processor * static_cast<double>(f.vectors()),
                         f.reduces ? most_work_of_sums : most_work);
    };
    return weight.rows * std::fabs(rows(a) - rows(b)) + weight.work * std::fabs(work(a) - work(b));
}

double alignment_distance(const CudaFeatures& a, const CudaFeatures& b) {
    const auto parts = [](const CudaFeatures& f) { return std::log2(f.width / f.alignment); };
    const bool are_narrow = std::max(a.vectors(), b.vectors()) <= narrow_vectors;
    double sum = (are_narrow ? weight.narrow_alignment : weight.alignment) * std::fabs(parts(a) - parts(b));
    if (a.can_shift != b.can_shift && parts(a) + parts(b) > 0) sum += weight.alignment;
    return sum;
}

double tensors_distance(const CudaFeatures& a, const CudaFeatures& b) {
    const auto columns = [](const CudaFeatures& f) { return static_cast<double>(f.column_bytes) / f.element_bytes; };
    double sum = weight.sums * std::abs(std::min(a.sums, 2) - std::min(b.sums, 2));
    if (a.reduces != b.reduces) sum += weight.reduces;
    if ((a.matrices_read > 1) != (b.matrices_read > 1)) sum += weight.reads_one;
    sum += weight.matrix *
           (std::abs(a.matrices_read - b.matrices_read) + std::abs(a.matrices_written - b.matrices_written));
    sum += weight.columns * std::fabs(columns(a) - columns(b));
    const auto functions = [](const CudaFeatures& f) { return std::log2(1.0 + f.work.functions); };
    if (!a.is_formula && !b.is_formula) return sum;
    if (a.is_formula != b.is_formula) sum += weight.formula;
    if (a.norm != b.norm) sum += weight.norm;
    sum += weight.sweeps * std::abs(a.work.sweeps - b.work.sweeps) +
           weight.functions * std::fabs(functions(a) - functions(b)) +
           weight.group_maxima * std::abs(a.work.group_maxima - b.work.group_maxima);
    return sum;
}

/// Returns the number of passes over a row: one for each statistic that is computed, one for the sums of a backward
/// pass, and one that stores. A plan says the same, but takes much longer to make.
int sweeps_of_layer(const Spec& spec) {
    const bool has_mean = spec.norm == Norm::layernorm;
    const int statistics = spec.reads(Tensor::rstd) ? 0 : has_mean ? 2 : 1;
    return statistics + (spec.has(Tensor::dy) ? 1 : 0) + 1;
}

double slices_distance(const CudaFeatures& a, const CudaFeatures& b) {
    if (a.has_slices != b.has_slices) return weight.slices;
    if (a.slice_rows == 0 || b.slice_rows == 0) return 0;
    const auto rows = [](const CudaFeatures& f) {
        return std::log2(static_cast<double>(std::min(f.slice_rows, most_slice_rows)));
    };
    return weight.slice_rows * std::fabs(rows(a) - rows(b));
}

}  // namespace

MatrixBytes matrix_bytes(const OperandList& operands) {
    MatrixBytes found;
    for (const Operand& operand : operands) {
        if (!operand.is_matrix() || operand.axes.has_groups()) continue;
        found.least =
            std::min(found.least, operand.is_written() ? std::max<int64_t>(operand.bytes(), 2) : operand.bytes());
        found.most = std::max(found.most, operand.bytes());
        found.are_alike = found.are_alike && operand.bytes() > 1;
    }
    found.are_alike = found.are_alike && found.least == found.most;
    return found;
}

int64_t CudaFeatures::vectors() const { return divide_up(cols, int64_t{width}); }

int64_t vectors_of_block(int64_t cols, const CudaSchedule& s) {
    return divide_up(plan::vectors_of_row(cols, s.vector_width), s.cluster);
}

int64_t vectors_of_thread(int64_t cols, const CudaSchedule& s) {
    return divide_up(vectors_of_block(cols, s), s.threads_per_row);
}

double idle_lanes(int64_t cols, const CudaSchedule& s) {
    const double lanes = static_cast<double>(vectors_of_thread(cols, s) * s.threads_per_row);
    return lanes / static_cast<double>(vectors_of_block(cols, s)) - 1;
}

bool depends_on_slices(const Spec& spec) { return spec.has_per_slice() && !spec.invariant; }

CudaFeatures cuda_features(const Spec& spec, const OperandList& operands, const Target& target) {
    CudaFeatures features{.cols = spec.cols, .rows_of_processor = many_rows, .has_slices = depends_on_slices(spec)};
    // With `invariant`, a schedule may not depend on the number of rows.
    if (const auto rows = spec.all_rows(); rows && !spec.invariant) {
        features.rows_of_processor = static_cast<double>(*rows) / target.cuda.sm_count;
        if (features.has_slices) features.slice_rows = spec.rows.value_or(0);
    }
    features.is_formula = static_cast<bool>(spec.formula);
    if (features.is_formula) {
        features.norm = text::hash(spec.formula->name);
        features.work = plan::element_work(spec, target);
    } else {
        features.work.sweeps = sweeps_of_layer(spec);
        features.work.sum_runs = plan::runs_of_own_sums(operands);
    }
    const MatrixBytes bytes = matrix_bytes(operands);
    features.element_bytes = static_cast<int>(bytes.least);
    features.width = static_cast<int>(16 / std::max<int64_t>(bytes.least, 2));
    // A warp must be able to hold a group of columns.
    features.width = std::max(features.width, static_cast<int>(spec.group_columns() / 32));
    features.alignment = features.width;
    while (spec.cols % features.alignment != 0) features.alignment /= 2;
    features.can_shift = bytes.are_alike && !spec.invariant && !spec.has_neighbours();
    features.matrices_read = static_cast<int>(operands.matrices().size());
    features.matrices_written = static_cast<int>(std::ranges::count_if(
        operands.matrix_outputs(), [](const Operand& output) { return !output.axes.has_groups(); }));
    features.columns_read = static_cast<int>(operands.columns().size());
    for (const Operand& column : operands.columns()) features.column_bytes += static_cast<int>(column.bytes());
    features.sums = static_cast<int>(features.work.sum_runs.size());
    features.reduces = !operands.reductions().empty();
    return features;
}

double distance(const CudaFeatures& a, const CudaFeatures& b) {
    return weight.vectors * std::fabs(log2_of(a.vectors()) - log2_of(b.vectors())) +
           weight.width * std::fabs(log2_of(a.width) - log2_of(b.width)) + rows_distance(a, b) +
           alignment_distance(a, b) + tensors_distance(a, b) + slices_distance(a, b);
}

namespace {

/// Returns what the text of a forward pass says about the formula's sums over the rows.
CudaGlance::Sums sums_of_forward(std::string_view spec) {
    const std::string_view formula = library_formula(text::first_word(spec)).value_or(spec);
    const auto has = [formula](std::string_view function) { return formula.find(function) != formula.npos; };
    return has("col_sum") || has("max_abs") ? CudaGlance::Sums::unknown : CudaGlance::Sums::none;
}

}  // namespace

CudaGlance glance(std::string_view spec) {
    int64_t cols = 0, bytes = 4, widest = 2;
    bool is_forward = false, has_gamma = true, is_mixed = false;
    std::optional<bool> sums_in_outputs;
    const bool is_layer = spec.starts_with("layernorm ") || spec.starts_with("rmsnorm ");
    for (const std::string_view word : text::split(spec.substr(0, spec.find('|')), ' ')) {
        const size_t equals = word.find('=');
        if (equals == word.npos) continue;
        const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
        const auto names = [value](std::string_view output) { return value.find(output) != value.npos; };
        if (key == "cols") cols = read_cols(value);
        if (key == "pass") is_forward = value == "forward";
        if (key == "gamma") has_gamma = value != "none";
        if (key == "out") sums_in_outputs = names("dgamma") || names("dbeta") || names("amax");
        const auto dtype = parse_dtype(value);
        if (key == "x" && dtype) bytes = std::max<int64_t>(size_of(*dtype), 2);
        if (dtype) widest = std::max<int64_t>(size_of(*dtype), widest);
        is_mixed |= dtype && key != "x" && key != "gamma" && key != "beta";
    }
    using enum CudaGlance::Sums;
    CudaGlance found{.is_formula = !is_layer, .sums = sums_in_outputs.value_or(!is_forward && has_gamma) ? some : none};
    if (!is_layer) found.sums = is_forward ? sums_of_forward(spec) : unknown;
    if (cols == 0) return found;
    // A row has fewer vectors if a matrix is narrower, or if a formula has groups of columns or is read in halves. The
    // first input of a formula need not be x.
    if (!is_layer) bytes = std::max(bytes, widest);
    const double vectors = static_cast<double>(cols * bytes) / 16;
    const int64_t fewer = !is_layer ? bytes : is_mixed ? bytes / 2 : 1;
    found.most_vectors = std::log2(std::ceil(vectors));
    found.least_vectors =
        fewer == 1 ? found.most_vectors : std::log2(std::max(vectors / static_cast<double>(fewer), 1.0));
    return found;
}

CudaGlance glance(const CudaFeatures& f) {
    using enum CudaGlance::Sums;
    const double vectors = log2_of(f.vectors());
    return {f.is_formula, f.reduces ? some : none, vectors, vectors};
}

double least_distance(const CudaGlance& a, const CudaGlance& b) {
    using enum CudaGlance::Sums;
    double least = a.is_formula == b.is_formula ? 0 : weight.formula;
    if (a.sums != b.sums && a.sums != unknown && b.sums != unknown) least += weight.reduces;
    const double between = std::max(a.least_vectors - b.most_vectors, b.least_vectors - a.most_vectors);
    return least + weight.vectors * std::max(between, 0.0);
}

}  // namespace normjit::schedule
