// SPDX-License-Identifier: Apache-2.0
// Evaluates a function value by value, every intermediate held whole and in double. Slow on purpose: nothing is
// scheduled.
#include "ir/ir.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::ir {

namespace {

class Interpreter {
  public:
    Interpreter(const Function& function, int64_t rows, int64_t row_groups)
        : function_(function),
          rows_(rows),
          cols_(function.cols),
          groups_(row_groups),
          values_(function.values.size()) {}

    Expected<PerTensor<std::vector<double>>> run(const PerTensor<std::vector<double>>& inputs) {
        for (ValueId id = 0; id < function_.size(); ++id) {
            NORMJIT_TRY(data(id), evaluate(id, inputs));
        }
        PerTensor<std::vector<double>> outputs;
        for (const Output& output : function_.outputs) outputs[output.tensor] = data(output.value);
        return outputs;
    }

  private:
    std::vector<double>& data(ValueId id) { return values_[id]; }

    size_t elements(Shape shape) const {
        switch (shape) {
            case Shape::scalar:
                return 1;
            case Shape::rows:
                return static_cast<size_t>(rows_);
            case Shape::cols:
                return static_cast<size_t>(cols_);
            case Shape::matrix:
                return static_cast<size_t>(rows_ * cols_);
            case Shape::partial:
                return static_cast<size_t>(groups_ * cols_);
        }
        return 0;
    }

    /// Element of an operand that element `i` of a [M,N], [M], [N] or scalar result needs.
    double broadcast(ValueId id, Shape result, size_t i) {
        const Shape own = function_[id].shape;
        if (own == result) return data(id)[i];
        if (own == Shape::scalar) return data(id)[0];
        return data(id)[own == Shape::rows ? i / static_cast<size_t>(cols_) : i % static_cast<size_t>(cols_)];
    }

    Expected<std::vector<double>> evaluate(ValueId id, const PerTensor<std::vector<double>>& inputs) {
        const Value& value = function_[id];
        if (value.op == Op::input) {
            const std::vector<double>& in = inputs[value.tensor];
            if (in.size() == elements(value.shape)) return in;
            return invalid_argument(fmt::format("interpret: {} has {} elements, must have {}",
                                                normjit::name(value.tensor), in.size(), elements(value.shape)));
        }
        if (value.op == Op::constant) return std::vector<double>{value.constant};
        if (info(value.op).result != ResultRule::join) return reduce(value);
        std::vector<double> out(elements(value.shape));
        for (size_t i = 0; i < out.size(); ++i) {
            const double a = broadcast(value.operands[0], value.shape, i);
            out[i] =
                compute(value.op, a, value.operand_count() == 2 ? broadcast(value.operands[1], value.shape, i) : 0);
        }
        return out;
    }

    std::vector<double> reduce(const Value& value) {
        const std::vector<double>& in = data(value.operands[0]);
        std::vector<double> out(elements(value.shape));
        for (size_t i = 0; i < in.size(); ++i) out[reduced_index(value.op, static_cast<int64_t>(i))] += in[i];
        if (value.op == Op::row_mean) {
            for (double& sum : out) sum /= static_cast<double>(cols_);
        }
        return out;
    }

    size_t reduced_index(Op op, int64_t i) const {
        const int64_t row = i / cols_;
        const int64_t col = i % cols_;
        if (op == Op::row_mean) return static_cast<size_t>(row);
        if (op == Op::partial_accumulate) return static_cast<size_t>(row * groups_ / rows_ * cols_ + col);
        return static_cast<size_t>(col);
    }

    const Function& function_;
    int64_t rows_;
    int64_t cols_;
    int64_t groups_;
    PerValue<std::vector<double>> values_;
};

}  // namespace

Expected<PerTensor<std::vector<double>>> interpret(const Function& function, int64_t rows,
                                                   const PerTensor<std::vector<double>>& inputs, int64_t row_groups) {
    NORMJIT_RETURN_IF_ERROR(verify(function));
    if (rows < 0) return invalid_argument(fmt::format("interpret: rows={}: must be at least 0", rows));
    if (row_groups < 1)
        return invalid_argument(fmt::format("interpret: row_groups={}: must be at least 1", row_groups));
    return Interpreter(function, rows, row_groups).run(inputs);
}

}  // namespace normjit::ir
