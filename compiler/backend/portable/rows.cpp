// SPDX-License-Identifier: Apache-2.0
// Evaluates one row after the other. Each sweep works on chunks of columns that stay in the L1 cache. Every value has
// its own chunk; a value that is the same for a whole row or column fills it once.
#include "backend/portable/rows.h"

#include "backend/portable/convert.h"
#include "ir/arithmetic.h"
#include "ir/groups.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace normjit::backend::portable {

namespace {

using ir::Op;
using ir::ValueId;
using plan::Sweep;

constexpr size_t chunk_bytes = 128;
constexpr int64_t segment_rows = 32;  ///< rows whose column sums are added to the partials together

/// Copies the elements, exchanging the two of each pair of columns. A chunk begins at an even column.
template <class Chunk>
void exchange_pairs(const Chunk& from, Chunk& to) {
    static_assert(std::tuple_size_v<Chunk> % 2 == 0);
    for (size_t i = 0; i < from.size(); ++i) to[i] = from[i ^ 1];
}

template <class T>
class Rows {
  public:
    Rows(const plan::Plan& plan, const RowsTask& task, bool continues)
        : plan_(plan),
          function_(plan.function),
          task_(task),
          continues_(continues),
          group_cols_(ir::group_columns(plan.function)) {
        for (ValueId id = 0; id < function_.size(); ++id) {
            chunk(id).fill(function_[id].op == Op::constant ? static_cast<T>(function_[id].constant) : T(0));
        }
    }

    void run() {
        for (row_ = 0; row_ < task_.rows; ++row_) {
            for (const Sweep& sweep : plan_.sweeps) {
                for (const ValueId id : sweep.row_values) fill_row_value(id);
                for (const ir::Output& output : sweep.row_stores) {
                    store(data_of(output.tensor), row_, 1, chunk(output.value).data(), function_.dtype(output.tensor));
                }
                run(sweep);
            }
        }
    }

  private:
    static constexpr int64_t chunk_cols = chunk_bytes / sizeof(T);
    using Chunk = std::array<T, chunk_cols>;

    Chunk& chunk(ValueId id) { return chunks_[static_cast<size_t>(id)]; }

    void fill_row_value(ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op == Op::input) {
            T number = 0;
            const bool is_scalar = function_.operand(value.tensor).shape == ir::Shape::scalar;
            load(&number, data_of(value.tensor), is_scalar ? 0 : row_, 1, function_.dtype(value.tensor));
            chunk(id).fill(number);
        } else {
            compute(id);
        }
    }

    void run(const Sweep& sweep) {
        for (const ValueId id : sweep.row_reductions) row_sums_[static_cast<size_t>(id)] = start<double>(id);
        for (first_ = 0; first_ < function_.cols; first_ += count_) {
            count_ = std::min({chunk_cols, function_.cols - first_, group_cols_ > 0 ? group_cols_ : chunk_cols});
            const bool begins_group = group_cols_ > 0 && sweep.is_last() && first_ % group_cols_ == 0;
            if (begins_group) find_group_maxima(sweep);
            for (const ValueId id : sweep.column_values) fill(id);
            for (const ValueId id : sweep.elements) fill(id);
            for (const ValueId id : sweep.row_reductions) reduce(id, operand(id));
            for (size_t k = 0; k < sweep.partials.size(); ++k) add_to_partial(k, operand(sweep.partials[k]));
            for (const ir::Output& output : sweep.stores) {
                const bool is_one = function_.operand(output.tensor).group > 1;
                if (is_one && !begins_group) continue;
                store(row_of(output.tensor), is_one ? first_ / group_cols_ : first_, is_one ? 1 : count_,
                      chunk(output.value).data(), function_.dtype(output.tensor));
            }
        }
        const T reciprocal = static_cast<T>(1.0 / static_cast<double>(function_.cols));
        for (const ValueId id : sweep.row_reductions) {
            const auto sum = static_cast<T>(row_sums_[static_cast<size_t>(id)]);
            chunk(id).fill(is_max(id) ? sum : sum * reciprocal);
        }
    }

    /// Fills the chunks of group_max with the maxima of the group that starts at the current column.
    void find_group_maxima(const Sweep& sweep) {
        const int64_t begin = first_;
        for_each_group_max(sweep, [&](ValueId id) { chunk(id).fill(-std::numeric_limits<T>::infinity()); });
        for (; first_ < begin + group_cols_; first_ += count_) {
            for (const ValueId id : sweep.column_values) fill(id);
            for (const ValueId id : sweep.elements) fill(id);
            for_each_group_max(sweep, [&](ValueId id) {
                T& largest = chunk(id)[0];
                for (int64_t i = 0; i < count_; ++i)
                    largest = ir::compute(Op::max, largest, operand(id)[static_cast<size_t>(i)]);
            });
        }
        for_each_group_max(sweep, [&](ValueId id) {
            const T largest = chunk(id)[0];
            chunk(id).fill(largest);
        });
        first_ = begin;
    }

    template <class Visit>
    void for_each_group_max(const Sweep& sweep, const Visit& visit) const {
        for (const ValueId id : sweep.elements) {
            if (function_[id].op == Op::group_max) visit(id);
        }
    }

    const Chunk& operand(ValueId sum) { return chunk(function_[sum].operands[0]); }

    void fill(ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op == Op::input) {
            load(chunk(id).data(), row_of(value.tensor), first_, count_, function_.dtype(value.tensor));
        } else if (value.op != Op::constant && value.op != Op::group_max) {
            compute(id);
        }
    }

    const CpuOperand& operand(Tensor tensor) const { return task_.operands[plan_.operands.place(tensor)]; }
    void* data_of(Tensor tensor) const { return const_cast<void*>(operand(tensor).data); }

    /// Returns the current row of a matrix, or the start of a column tensor.
    void* row_of(Tensor tensor) const {
        char* data = static_cast<char*>(data_of(tensor));
        return function_.operand(tensor).shape == ir::Shape::matrix ? data + row_ * operand(tensor).stride : data;
    }

    /// Computes the whole chunk. The part beyond the row is not used.
    template <Op op>
    void for_each(ValueId id) {
        const auto [left, right] = function_[id].operands;
        const Chunk& a = chunk(left);
        const Chunk& b = right == ir::no_value ? a : chunk(right);
        Chunk& to = chunk(id);
        for (size_t i = 0; i < chunk_cols; ++i) to[i] = ir::compute(op, a[i], b[i]);
    }

    void compute(ValueId id) {
        if (function_[id].op == Op::neighbour) return exchange_pairs(chunk(function_[id].operands[0]), chunk(id));
        switch (function_[id].op) {
#define OP(name, operands, result, notation, doc)                                             \
    case Op::name:                                                                            \
        if constexpr (ir::ResultRule::result == ir::ResultRule::join) for_each<Op::name>(id); \
        return;
#include "ir/ops.def"
        }
    }

    bool is_max(ValueId id) const { return function_[id].op == Op::row_max; }
    template <class Number>
    Number start(ValueId id) const {
        return is_max(id) ? -std::numeric_limits<Number>::infinity() : Number(0);
    }
    template <class Number>
    Number reduced(ValueId id, Number a, Number b) const {
        return is_max(id) ? ir::compute(Op::max, a, b) : a + b;
    }

    /// Adds the chunk to the row's sum, or finds the largest element. The sum is in double, because numbers that are
    /// added one by one to a large sum lose digits.
    void reduce(ValueId id, Chunk terms) {
        for (size_t i = static_cast<size_t>(count_); i < terms.size(); ++i) terms[i] = start<T>(id);
        for (size_t half = terms.size() / 2; half >= 1; half /= 2) {
            for (size_t i = 0; i < half; ++i) terms[i] = reduced(id, terms[i], terms[i + half]);
        }
        double& sum = row_sums_[static_cast<size_t>(id)];
        sum = reduced(id, sum, static_cast<double>(terms[0]));
    }

    /// Adds to the sums of a segment of rows. At the end of the segment, adds these to the partials (cpu_abi.h).
    void add_to_partial(size_t k, const Chunk& terms) {
        const auto array = static_cast<int64_t>(k);
        const bool is_sum = function_[plan_.sweeps.back().partials[k]].op != Op::partial_max_abs;
        T* partial = static_cast<T*>(task_.partials) + array * plan_.geometry.partial_cols + first_;
        T* segment = partial + plan_.geometry.column_sums * plan_.geometry.partial_cols;
        const bool ends = (row_ + 1) % segment_rows == 0 || row_ + 1 == task_.rows;
        for (int64_t i = 0; i < count_; ++i) {
            const T sum = row_ == 0 && !continues_ ? T(0) : segment[i], term = terms[static_cast<size_t>(i)];
            segment[i] = is_sum ? sum + term : larger_magnitude(sum, term);
            if (!ends) continue;
            const T before = row_ < segment_rows && !continues_ ? T(0) : partial[i];
            partial[i] = is_sum ? before + segment[i] : larger_magnitude(before, segment[i]);
            if (!is_sum) continue;
            const T lost = (before - partial[i]) + segment[i];
            segment[i] = std::isfinite(lost) ? lost : T(0);
        }
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const RowsTask& task_;
    const bool continues_;
    const int64_t group_cols_;  ///< 0 if there are no groups
    int64_t row_ = 0;           ///< the number of the row in the row group
    int64_t first_ = 0;         ///< the first column of the chunk
    int64_t count_ = 0;
    std::array<Chunk, most_values> chunks_;
    std::array<double, most_values> row_sums_;  ///< of row reductions, or their largest elements
};

/// Evaluates the values that are computed after all rows, in chunks of columns.
template <class T>
class FinalReduce {
  public:
    FinalReduce(const plan::Plan& plan, const plan::Epilogue& epilogue, const FinalTask& task)
        : plan_(plan), function_(plan.function), epilogue_(epilogue), task_(task) {
        for (ValueId id = 0; id < function_.size(); ++id) chunk(id).fill(0);
    }

    void run() {
        for (first_ = 0; first_ < task_.cols; first_ += chunk_cols) {
            count_ = std::min(chunk_cols, task_.cols - first_);
            for (size_t k = 0; k < epilogue_.sums.size(); ++k) {
                const ValueId sum = epilogue_.sums[k];
                if (sum == ir::no_value) continue;
                if (function_[sum].shape == ir::Shape::scalar) {
                    find_largest(static_cast<int64_t>(k), chunk(sum)[0]);
                } else {
                    chunk(sum) = sum_groups(static_cast<int64_t>(k));
                }
            }
            for (const ValueId id : epilogue_.values) compute(id);
            for (const ir::Output& output : epilogue_.stores) {
                store(data_of(output.tensor), first_, count_, chunk(output.value).data(),
                      function_.dtype(output.tensor));
            }
        }
    }

  private:
    static constexpr int64_t chunk_cols = chunk_bytes / sizeof(T);
    using Chunk = std::array<T, chunk_cols>;

    Chunk& chunk(ValueId id) { return chunks_[static_cast<size_t>(id)]; }
    void* data_of(Tensor tensor) const { return const_cast<void*>(task_.data[plan_.operands.place(tensor)]); }

    T* partials(int64_t group, int64_t array) const {
        char* start = static_cast<char*>(task_.partials) + group * task_.group_stride;
        return reinterpret_cast<T*>(start) + array * plan_.geometry.partial_cols + first_;
    }

    /// Updates `largest` with the largest magnitude in these columns. After the last columns, the result replaces the
    /// partials.
    void find_largest(int64_t array, T& largest) const {
        for (int64_t group = 0; group < task_.groups; ++group) {
            for (int64_t i = 0; i < count_; ++i) largest = larger_magnitude(largest, partials(group, array)[i]);
        }
        if (first_ + count_ == task_.cols)
            std::fill_n(partials(0, array) - first_, partial_unit_bytes / sizeof(T), largest);
    }

    Chunk sum_groups(int64_t array) const {
        Chunk sums{}, in_hand{};
        for (int64_t group = 0; group < task_.groups; ++group) {
            const T* partial = partials(group, array);
            for (int64_t i = 0; i < count_; ++i) in_hand[static_cast<size_t>(i)] += partial[i];
            if ((group + 1) % groups_at_once != 0 && group + 1 != task_.groups) continue;
            for (size_t i = 0; i < sums.size(); ++i) sums[i] += in_hand[i];
            in_hand = {};
        }
        return sums;
    }

    /// Computes [N] arithmetic.
    void compute(ValueId id) {
        const ir::Value& value = function_[id];
        if (value.op == Op::input)
            return load(chunk(id).data(), data_of(value.tensor), first_, count_, function_.dtype(value.tensor));
        if (value.op == Op::neighbour) return exchange_pairs(chunk(value.operands[0]), chunk(id));
        const auto [left, right] = value.operands;
        for (size_t i = 0; i < chunk_cols; ++i) {
            const T a = element(left, i);
            chunk(id)[i] = ir::compute(value.op, a, right == ir::no_value ? a : element(right, i));
        }
    }

    T element(ValueId id, size_t i) {
        const ir::Value& value = function_[id];
        return value.op == Op::constant ? static_cast<T>(value.constant) : chunk(id)[i];
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const plan::Epilogue& epilogue_;
    const FinalTask& task_;
    int64_t first_ = 0;  ///< the first column of the chunk
    int64_t count_ = 0;
    std::array<Chunk, most_values> chunks_;
};

// This is not inlined, so that the evaluators of the two types share the stack.
template <class T>
[[gnu::noinline]] void run_rows_in(const plan::Plan& plan, const RowsTask& task, bool continues) {
    Rows<T>(plan, task, continues).run();
}

template <class T>
[[gnu::noinline]] void run_final_reduce_in(const plan::Plan& plan, const plan::Epilogue& epilogue,
                                           const FinalTask& task) {
    FinalReduce<T>(plan, epilogue, task).run();
}

}  // namespace

void run_rows(const plan::Plan& plan, const RowsTask& task, bool continues) {
    (plan.function.compute == DType::f64 ? run_rows_in<double> : run_rows_in<float>)(plan, task, continues);
}

void run_final_reduce(const plan::Plan& plan, const plan::Epilogue& epilogue, const FinalTask& task) {
    (plan.function.compute == DType::f64 ? run_final_reduce_in<double> : run_final_reduce_in<float>)(plan, epilogue,
                                                                                                     task);
}

}  // namespace normjit::backend::portable
