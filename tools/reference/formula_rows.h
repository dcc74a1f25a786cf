// SPDX-License-Identifier: Apache-2.0
// The values of a formula in one row, with bounds on their errors.
#pragma once

#include "bounded.h"
#include "element.h"
#include "formula_element.h"
#include "formula_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace normjit::reference {

template <class Real>
class FormulaRows {
  public:
    using Number = Bounded<Real>;
    using Numbers = std::vector<Number>;  ///< one for each column, or only one

  protected:
    FormulaRows(const Spec& spec, Batch made, const PerTensor<std::vector<double>>& inputs)
        : spec_(spec),
          inputs_(inputs),
          program_(spec),
          made_(made),
          cols_(static_cast<size_t>(spec.cols)),
          values_(program_.operations.size()) {}

    size_t value_of(const std::string& name) const { return static_cast<size_t>(program_.names.at(name)); }

    const Axes& axes(Tensor tensor) const { return spec_.formula->tensors[tensor]->axes; }
    size_t offset(Tensor tensor) const {
        const Axes& its = axes(tensor);
        const size_t slice = its.slice ? slice_ : 0;
        const size_t row = its.row ? slice * static_cast<size_t>(made_.rows) + row_ : slice;
        return row * static_cast<size_t>(its.width(spec_.cols));
    }
    Numbers row_of(Tensor tensor) const {
        Numbers numbers(axes(tensor).column ? cols_ : 1);
        if (!spec_.depends_on(tensor)) return numbers;  // no requested output depends on it
        const auto run = static_cast<size_t>(axes(tensor).run);
        for (size_t j = 0; j < numbers.size(); ++j)
            numbers[j] = given(static_cast<Real>(inputs_[tensor][offset(tensor) + j / run]));
        return numbers;
    }
    static Number narrow(double option) {
        return given(static_cast<Real>(static_cast<typename Rounding<Real>::Narrow>(option)));
    }
    /// Comparisons with a NaN say nothing, so no result of one is certain.
    static Number given(Real value) { return {value, std::isnan(value) ? std::numeric_limits<Real>::infinity() : 0}; }

    /// Evaluates the current row. Values that the forward pass saved are read if `reads_saved` is true.
    void evaluate(bool reads_saved = true) {
        for (size_t id = 0; id < values_.size(); ++id) {
            values_[id] = value(program_.operations[id]);
            for (const std::string& name : spec_.formula->saved) {
                if (reads_saved && value_of(name) == id)
                    values_[id] = saved_row(*spec_.find(name), program_.operations[id]);
            }
        }
    }

    /// Returns a saved value. The mean of a row was rounded, so the values that are centred with it have a sum, but a
    /// compiler may know that the sum of a centred row is 0.
    Numbers saved_row(Tensor tensor, const Operation& operation) const {
        Numbers numbers = row_of(tensor);
        for (Number& number : numbers) {
            if (operation.kind == Kind::row_mean && std::isfinite(number.value))
                number.error = static_cast<Real>(spacing(spec_.dtype(tensor), static_cast<double>(number.value)) / 2);
        }
        return numbers;
    }

    const Number& at(int id, size_t j) const {
        const Numbers& all = values_[static_cast<size_t>(id)];
        return all.size() == 1 ? all[0] : all[j];
    }

    Numbers value(const Operation& operation) const {
        switch (operation.kind) {
            case Kind::tensor: return row_of(operation.tensor);
            case Kind::number: return {narrow(operation.number)};
            case Kind::row_mean: return {row_mean(operation.operands[0])};
            case Kind::row_max: return {largest(operation.operands[0], 0, cols_)};
            case Kind::group_max: return group_max(operation);
            case Kind::reduced:  // rounded when it is written
                return values_[static_cast<size_t>(operation.operands[0])];
            default: break;
        }
        Numbers result(operation.has_cols ? cols_ : 1);
        const Function<Real>* function =
            operation.kind == Kind::function ? find_function<Real>(operation.what) : nullptr;
        for (size_t j = 0; j < result.size(); ++j) {
            const Number a = with_sign(operation.kind, j, at(operation.operands[0], column_of(operation.kind, j)));
            const Number& b = at(operation.operands.back(), j);
            result[j] = with_headroom(operation.kind == Kind::where ? where(a, at(operation.operands[1], j), b)
                                                                    : element(operation, function, a, b));
        }
        return result;
    }

    /// The compiler may multiply factors in another order, or take them out of sums. If the product of two such numbers
    /// would overflow, no result is certain.
    static Number with_headroom(const Number& number) {
        static const Real most = std::sqrt(Rounding<Real>::most);
        return std::fabs(number.value) + number.error <= most
                   ? number
                   : Number{number.value, std::numeric_limits<Real>::infinity()};
    }

    /// Returns, for each column, the largest in its run of columns.
    Numbers group_max(const Operation& operation) const {
        const auto run = static_cast<size_t>(at(operation.operands[1], 0).value);
        Numbers result;
        for (size_t first = 0; first < cols_; first += run)
            result.insert(result.end(), run, largest(operation.operands[0], first, run));
        return result;
    }

    Number largest(int of, size_t first, size_t count) const {
        Number largest = at(of, first);
        Real most = largest.value + largest.error, least = largest.value - largest.error;
        for (size_t j = first; j < first + count; ++j) {
            const Number& each = at(of, j);
            if (!std::isfinite(each.error)) return each;
            if (each.value > largest.value) largest = each;
            most = std::max(most, each.value + each.error);
            least = std::max(least, each.value - each.error);
        }
        return {largest.value, std::max(most - largest.value, largest.value - least)};
    }
    /// Returns the column from which partner(), rotate_half() or neighbour() takes the element of column j; for other
    /// operations, j itself.
    size_t column_of(Kind kind, size_t j) const {
        if (kind == Kind::partner || kind == Kind::rotate_half) return (j + cols_ / 2) % cols_;
        return kind == Kind::neighbour ? j ^ 1 : j;
    }

    /// Changes the sign of an element that rotate_half() takes to column j, if it changes it there.
    Number with_sign(Kind kind, size_t j, const Number& element) const {
        return kind == Kind::rotate_half && j < cols_ / 2 ? Number{-element.value, element.error} : element;
    }

    Number row_mean(int of) const {
        Sum<Real> sum;
        for (size_t j = 0; j < cols_; ++j) sum.add(at(of, j));
        const Number count{static_cast<Real>(cols_), 0};
        return sum.total(spec_.cols / Rounding<Real>::lanes + 16) * (Number{1, 0} / count);
    }

    const Spec& spec_;
    const PerTensor<std::vector<double>>& inputs_;
    const FormulaProgram program_;
    const Batch made_;
    const size_t cols_;
    size_t slice_ = 0, row_ = 0;
    std::vector<Numbers> values_;
};

}  // namespace normjit::reference
