// SPDX-License-Identifier: Apache-2.0
#include "formula.h"

#include "formula_rows.h"

#include <limits>
#include <map>
#include <set>

namespace normjit::reference {

namespace {

template <class Real>
class FormulaComputation : FormulaRows<Real> {
    using Rows = FormulaRows<Real>;
    using Rows::at, Rows::axes, Rows::column_of, Rows::evaluate, Rows::offset, Rows::row_of, Rows::value,
        Rows::value_of, Rows::with_headroom, Rows::with_sign;
    using Rows::spec_, Rows::inputs_, Rows::program_, Rows::made_, Rows::cols_, Rows::slice_, Rows::row_, Rows::values_;

  public:
    using typename Rows::Number, typename Rows::Numbers;

    /// The largest magnitude of numbers.
    struct Magnitude {
        Real largest = 0, least = 0, most = 0;

        void add(const Number& number) {
            largest = std::max(largest, std::fabs(number.value));
            least = std::max(least, std::fabs(number.value) - number.error);
            most = std::isfinite(number.error) ? std::max(most, std::fabs(number.value) + number.error) : INFINITY;
        }
        Number number() const { return {largest, std::max(most - largest, largest - least)}; }
    };

    FormulaComputation(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs)
        : Rows(spec, made, inputs), all_rows_(rows), adjoints_(program_.operations.size()) {
        for (const Tensor tensor : all_tensors) {
            if (!spec.writes(tensor)) continue;
            gradients_[tensor].resize(static_cast<size_t>(elements_of(spec, tensor, made)));
        }
    }

    Gradients run() {
        for (slice_ = 0; slice_ < static_cast<size_t>(made_.slices); ++slice_) {
            for (row_ = 0; row_ < static_cast<size_t>(made_.rows); ++row_) {
                evaluate();
                for (Numbers& adjoint : adjoints_) adjoint.clear();
                spec_.pass == Pass::forward ? write_forward() : write_backward();
            }
            write_sums(true);
        }
        write_sums(false);
        for (const Tensor tensor : all_tensors) {
            if (spec_.writes(tensor) && spec_.tensors[tensor]->axes.is_scalar())
                write(tensor, 0, magnitudes_[tensor].number());
        }
        return std::move(gradients_);
    }

    /// Returns the elements of the tensors that a forward pass saved, with rows packed.
    PerTensor<std::vector<double>> saved() {
        PerTensor<std::vector<double>> all;
        for (slice_ = 0; slice_ < static_cast<size_t>(made_.slices); ++slice_) {
            for (row_ = 0; row_ < static_cast<size_t>(made_.rows); ++row_) {
                evaluate(false);
                for (const std::string& name : spec_.formula->saved) {
                    for (const Number& number : values_[value_of(name)])
                        all[*spec_.find(name)].push_back(static_cast<double>(number.value));
                }
            }
        }
        return all;
    }

  private:
    void write_forward() {
        for (const Tensor tensor : all_tensors) {
            if (!spec_.writes(tensor)) continue;
            const Numbers& numbers = values_[value_of(std::string(spec_.name(tensor)))];
            if (axes(tensor).is_columns()) {
                for (const size_t sum : column_sums(value_of(std::string(spec_.name(tensor)))))
                    add_row(tensor, sum, values_[sum]);
            } else if (axes(tensor).is_scalar()) {
                for (const Number& number : numbers) magnitudes_[tensor].add(number);
            } else {
                const auto run = static_cast<size_t>(axes(tensor).run);
                for (size_t j = 0; j < numbers.size(); j += run) write(tensor, offset(tensor) + j / run, numbers[j]);
            }
        }
    }

    // The gradients of a row

    void write_backward() {
        for (const auto& [name, id] : program_.names) {
            const auto tensor = spec_.find("d" + name);
            if (tensor && spec_.reads(*tensor) && !spec_.is_output(*tensor)) add_to(id, row_of(*tensor));
        }
        for (size_t id = adjoints_.size(); id-- > 0;) {
            if (!adjoints_[id].empty()) propagate(id);
        }
        for (const Tensor tensor : all_tensors) {
            if (!spec_.writes(tensor)) continue;
            const auto input = static_cast<size_t>(program_.names.at(std::string(spec_.name(tensor).substr(1))));
            Numbers numbers = adjoints_[input];
            numbers.resize(axes(tensor).column ? cols_ : 1);
            if (axes(tensor).is_columns()) {
                add_row(tensor, input, numbers);
            } else {
                for (size_t j = 0; j < numbers.size(); ++j) write(tensor, offset(tensor) + j, numbers[j]);
            }
        }
    }

    /// Adds to the adjoint of an operation. If the operation has no columns, its adjoint is summed over the columns.
    void add_to(int id, const Numbers& terms) {
        Numbers& adjoint = adjoints_[static_cast<size_t>(id)];
        const size_t size = program_.operations[static_cast<size_t>(id)].has_cols ? cols_ : 1;
        Numbers reduced = terms;
        for (Number& term : reduced) term = with_headroom(term);
        if (terms.size() > size) {
            Sum<Real> sum;
            for (const Number& term : reduced) sum.add(term);
            reduced = {sum.total(spec_.cols / Rounding<Real>::lanes + 16)};
        } else {
            reduced.resize(size, terms[0]);
        }
        if (adjoint.empty()) {
            adjoint = reduced;
            return;
        }
        for (size_t j = 0; j < size; ++j) adjoint[j] = with_headroom(adjoint[j] + reduced[j]);
    }

    template <class Term>
    void send(size_t id, int operand, bool has_cols, const Term& term) {
        const Numbers& adjoint = adjoints_[id];
        Numbers terms(has_cols || adjoint.size() > 1 ? cols_ : 1);
        for (size_t j = 0; j < terms.size(); ++j) terms[j] = term(adjoint.size() == 1 ? adjoint[0] : adjoint[j], j);
        add_to(operand, terms);
    }

    void propagate(size_t id) {
        const Operation& operation = program_.operations[id];
        if (operation.operands.empty()) return;
        const int a = operation.operands[0], b = operation.operands.back();
        const bool cols = operation.has_cols;
        const Number minus_one{-1, 0};
        const bool is_plus = operation.kind == Kind::add;
        switch (operation.kind) {
            case Kind::add:
            case Kind::subtract:
                send(id, a, cols, [](const Number& g, size_t) { return g; });
                return send(id, b, cols, [&](const Number& g, size_t) { return is_plus ? g : minus_one * g; });
            case Kind::multiply:
                send(id, a, cols, [&](const Number& g, size_t j) { return g * at(b, j); });
                return send(id, b, cols, [&](const Number& g, size_t j) { return g * at(a, j); });
            case Kind::divide:
                send(id, a, cols, [&](const Number& g, size_t j) { return g / at(b, j); });
                return send(id, b, cols, [&](const Number& g, size_t j) {
                    return minus_one * g * (at(a, j) / at(b, j)) / at(b, j);
                });
            case Kind::div_or_zero:
                send(id, a, cols, [&](const Number& g, size_t j) { return div_or_zero(g, at(b, j)); });
                return send(id, b, cols, [&](const Number& g, size_t j) {
                    return minus_one * div_or_zero(at(a, j), at(b, j)) * div_or_zero(g, at(b, j));
                });
            case Kind::row_mean: {
                const Number count{static_cast<Real>(cols_), 0};
                const bool has_cols = program_.operations[static_cast<size_t>(a)].has_cols;
                return send(id, a, has_cols, [&](const Number& g, size_t) { return g / count; });
            }
            case Kind::like: return send(id, a, cols, [](const Number& g, size_t) { return g; });
            case Kind::partner:
            case Kind::rotate_half:
            case Kind::neighbour: {
                const Numbers& adjoint = adjoints_[id];
                return send(id, a, true, [&](const Number&, size_t j) {
                    const size_t other = column_of(operation.kind, j);
                    return with_sign(operation.kind, other, adjoint.size() == 1 ? adjoint[0] : adjoint[other]);
                });
            }
            case Kind::detach:
            case Kind::round: return;
            case Kind::reduced:  // in a col_sum, each row has the gradient of its sum
                return send(id, a, cols, [](const Number& g, size_t) { return g; });
            case Kind::power:
                return send(id, a, cols, [&](const Number& g, size_t j) {
                    const Real exponent = at(b, j).value;
                    return exponent == 0 ? Number() : g * at(b, j) * power(at(a, j), exponent - 1);
                });
            case Kind::where: return propagate_choice(id);
            case Kind::row_max: return propagate_largest(id);
            case Kind::min:
            case Kind::max: return propagate_extreme(id, operation.kind == Kind::max);
            case Kind::round_bf16:
            case Kind::round_f16: {
                const DType type = operation.kind == Kind::round_bf16 ? DType::bf16 : DType::f16;
                return send(id, a, cols, [&](const Number& g, size_t) { return rounded_by<Real>(type, g); });
            }
            default: return operation.what == "rsqrt" ? propagate_rsqrt(id) : propagate_function(id);
        }
    }

    /// The largest elements of a row share the gradient.
    void propagate_largest(size_t id) {
        const int a = program_.operations[id].operands[0];
        const Number& largest = values_[id][0];
        Real count = 0;
        bool is_sure = true;
        for (size_t j = 0; j < cols_; ++j) {
            const Number& each = at(a, j);
            const bool is_one = each.value == largest.value;
            count += is_one ? 1 : 0;
            is_sure = is_sure && (is_one ? each.error + largest.error == 0 || count == 1
                                         : each.value + each.error < largest.value - largest.error);
        }
        send(id, a, true, [&](const Number& g, size_t j) {
            const Number share =
                g * (Number{at(a, j).value == largest.value ? Real(1) : Real(0), 0} / Number{count, 0});
            return is_sure ? share : Number{share.value, std::numeric_limits<Real>::infinity()};
        });
    }

    /// The derivative is computed from the value of the function, so the error of the argument counts only once.
    void propagate_rsqrt(size_t id) {
        const Operation& operation = program_.operations[id];
        send(id, operation.operands[0], operation.has_cols, [&](const Number& g, size_t j) {
            const Number r = values_[id].size() == 1 ? values_[id][0] : values_[id][j];
            return g * Number{Real(-0.5), 0} * (r * r * r);
        });
    }

    /// The larger operand gets the gradient; if both are equal, each gets half of it.
    void propagate_extreme(size_t id, bool is_max) {
        const Operation& operation = program_.operations[id];
        for (const bool first : {true, false}) {
            const int own = operation.operands[first ? 0 : 1], other = operation.operands[first ? 1 : 0];
            send(id, own, operation.has_cols, [&](const Number& g, size_t j) {
                const Real difference = (at(own, j).value - at(other, j).value) * (is_max ? 1 : -1);
                const Real share = difference > 0 ? Real(1) : difference < 0 ? Real(0) : Real(0.5);
                const bool is_sure = std::fabs(difference) > at(own, j).error + at(other, j).error;
                const Number exact = g * Number{share, 0};
                return is_sure || at(own, j).error + at(other, j).error == 0
                           ? exact
                           : Number{exact.value, std::numeric_limits<Real>::infinity()};
            });
        }
    }

    /// Each operand gets the gradient where it was chosen.
    void propagate_choice(size_t id) {
        const Operation& operation = program_.operations[id];
        for (const bool first : {true, false}) {
            send(id, operation.operands[first ? 1 : 2], operation.has_cols, [&](const Number& g, size_t j) {
                const Number& condition = at(operation.operands[0], j);
                const Number share = (condition.value > 0) == first ? g : Number{};
                const bool is_sure = is_order_sure(condition, {});
                return Number{share.value, is_sure ? share.error : std::numeric_limits<Real>::infinity()};
            });
        }
    }

    void propagate_function(size_t id) {
        const Operation& operation = program_.operations[id];
        const Function<Real>* function = find_function<Real>(operation.what);
        if (function == nullptr) return;
        send(id, operation.operands[0], operation.has_cols, [&](const Number& g, size_t j) {
            const Number& x = at(operation.operands[0], j);
            const Real slope = function->derivative(x.value);
            Real other = 0;
            for (const Real end : {x.value - x.error, x.value + x.error})
                other = std::max(other, std::fabs(function->derivative(end) - slope));
            // The derivative is computed from the function in a few operations.
            return g * Number{slope, other + 16 * Rounding<Real>::unit * std::max(std::fabs(slope), Real(1))};
        });
    }

    // Results

    /// Returns the sums over the rows from which an operation is computed.
    std::set<size_t> column_sums(size_t id) const {
        const Operation& operation = program_.operations[id];
        if (operation.kind == Kind::reduced) return {id};
        std::set<size_t> found;
        for (const int operand : operation.operands) found.merge(column_sums(static_cast<size_t>(operand)));
        return found;
    }

    void add_row(Tensor tensor, size_t sum, const Numbers& numbers) {
        auto& sums = sums_[tensor][sum];
        sums.resize(cols_);
        const auto row = static_cast<int64_t>(row_);
        const Real times = static_cast<Real>(all_rows_ / made_.rows + (row < all_rows_ % made_.rows ? 1 : 0));
        for (size_t j = 0; j < cols_; ++j) sums[j].add(numbers.size() == 1 ? numbers[0] : numbers[j], times);
    }

    /// Evaluates an operation on [N] tensors, numbers and sums over the rows, after its operands.
    void evaluate_columns(size_t id) {
        const Operation& operation = program_.operations[id];
        if (operation.kind == Kind::reduced) return;
        for (const int operand : operation.operands) evaluate_columns(static_cast<size_t>(operand));
        values_[id] = value(operation);
    }

    /// Returns the columns of an output from its sums, each of which had `additions` more roundings.
    Numbers columns_of(Tensor tensor, int64_t depth, Real additions) {
        auto& sums = sums_[tensor];
        Numbers totals(cols_);
        for (auto& [id, sum] : sums) {
            for (size_t j = 0; j < sum.size(); ++j) {
                totals[j] = sum[j].total(depth);
                totals[j].error += additions * sum[j].error_per_addition();
            }
            values_[id] = totals;
        }
        if (spec_.pass == Pass::backward) return totals;
        const size_t output = value_of(std::string(spec_.name(tensor)));
        for (const size_t id : column_sums(output)) {
            if (!sums.contains(id)) values_[id] = Numbers(cols_);  // there are no rows
        }
        evaluate_columns(output);
        return values_[output];
    }

    /// Sums the columns of each run.
    Numbers sums_of_runs(Tensor tensor, const Numbers& columns) const {
        const auto run = static_cast<size_t>(axes(tensor).run);
        if (run == 1) return columns;
        Numbers sums;
        for (size_t first = 0; first < columns.size(); first += run) {
            Sum<Real> sum;
            for (size_t j = first; j < first + run; ++j) sum.add(columns[j]);
            sums.push_back(sum.total(static_cast<int64_t>(run)));
        }
        return sums;
    }

    void write_sums(bool per_slice) {
        for (const Tensor tensor : all_tensors) {
            if (!spec_.writes(tensor) || !axes(tensor).is_columns() || axes(tensor).slice != per_slice) continue;
            const int64_t depth = all_rows_ * (per_slice ? 1 : made_.slices) + 1;
            const Numbers more = sums_of_runs(tensor, columns_of(tensor, depth, 1)),
                          totals = sums_of_runs(tensor, columns_of(tensor, depth, 0));
            for (size_t j = 0; j < totals.size(); ++j) {
                const size_t i = (per_slice ? slice_ * totals.size() : 0) + j;
                const Number& total = totals[j];
                const bool adds = spec_.accumulates(tensor);
                write(tensor, i, adds ? Number{static_cast<Real>(inputs_[tensor][i]), 0} + total : total);
                gradients_[tensor][i].error_per_addition = static_cast<double>(more[j].error - total.error);
            }
            sums_[tensor].clear();
        }
    }

    /// The order of the compiler's factors and sums need not be the formula's, which may change a result by as much as
    /// the formula's own order does. The factors of a gradient have another order in the reference, so digits may be
    /// lost below the smallest normal number.
    void write(Tensor tensor, size_t i, const Number& number) {
        constexpr Real orders = 4;
        constexpr auto normal = static_cast<Real>(std::numeric_limits<typename Rounding<Real>::Narrow>::min());
        const auto value = static_cast<double>(number.value);
        const Real lost = spec_.pass == Pass::backward ? normal : 0;
        const Real error = orders * number.error + std::fabs(number.value) * Real(0x1p-53) + lost;
        gradients_[tensor][i] = {value, static_cast<double>(error), 0};
    }

    const int64_t all_rows_;  ///< rows per slice
    std::vector<Numbers> adjoints_;
    PerTensor<std::map<size_t, std::vector<Sum<Real>>>> sums_;  ///< indexed by operation
    PerTensor<Magnitude> magnitudes_;
    Gradients gradients_;
};

}  // namespace

Gradients compute_formula(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs) {
    if (spec.compute() == DType::f64) return FormulaComputation<long double>(spec, made, rows, inputs).run();
    return FormulaComputation<double>(spec, made, rows, inputs).run();
}

PerTensor<std::vector<double>> saved_values(const Spec& spec, Batch batch,
                                            const PerTensor<std::vector<double>>& inputs) {
    // A mean may be off only by its rounding. Otherwise the sum of a centred row is not near 0.
    if (spec.compute() == DType::f64) return FormulaComputation<long double>(spec, batch, batch.rows, inputs).saved();
    return FormulaComputation<double>(spec, batch, batch.rows, inputs).saved();
}

}  // namespace normjit::reference
