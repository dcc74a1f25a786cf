// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include "bounded.h"
#include "element.h"
#include "formula.h"

#include <algorithm>

namespace normjit::reference {

namespace {

template <class Real>
class Computation {
  public:
    using Number = Bounded<Real>;

    /// Each slice has `rows` rows. The inputs hold `made.rows` of these, and the others repeat them.
    Computation(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs)
        : spec_(spec), inputs_(inputs), all_rows_(rows), made_(made), cols_(static_cast<size_t>(spec.cols)) {
        for (Tensor tensor : all_tensors) {
            if (spec.writes(tensor)) gradients_[tensor].resize(static_cast<size_t>(elements_of(spec, tensor, made)));
        }
    }

    Gradients run() {
        const auto rows = static_cast<size_t>(made_.rows);
        for (slice_ = 0; slice_ < static_cast<size_t>(made_.slices); ++slice_) {
            find_scale();
            for (size_t row = 0; row < rows; ++row) compute_row(slice_ * rows + row, row);
            write_sums(true);
        }
        write_sums(false);
        write(Tensor::amax, 0, {largest_, std::max(most_ - largest_, largest_ - least_)});
        return std::move(gradients_);
    }

  private:
    /// Computes row `row` among all rows, which is row `number` of its slice.
    void compute_row(size_t row, size_t number) {
        if (spec_.reads(Tensor::x)) find_xhat(row);
        if (spec_.pass == Pass::forward) return write_y(row);
        if (spec_.has(Tensor::dx) || spec_.has(Tensor::dresidual_in) || spec_.has(Tensor::amax)) write_dx(row);
        add_to_sums(row, repeats(number));
    }

    void find_scale() {
        scale_.clear();
        for (size_t j = 0; j < cols_ && spec_.has(Tensor::gamma); ++j)
            scale_.push_back(input(Tensor::gamma, column(Tensor::gamma, j)) + narrow(spec_.gamma_offset));
    }

    /// Writes the sums over the current slice, or over all slices.
    void write_sums(bool per_slice) {
        for (const Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
            if (!spec_.has(tensor) || spec_.is_per_slice(tensor) != per_slice) continue;
            auto& sums = tensor == Tensor::dgamma ? dgamma_ : dbeta_;
            for (size_t j = 0; j < cols_; ++j) write_sum(tensor, column(tensor, j), sums[j]);
            sums.assign(cols_, {});
        }
    }

    Number input(Tensor tensor, size_t i) const { return {static_cast<Real>(inputs_[tensor][i]), 0}; }
    /// Returns the index of column j in the current slice.
    size_t column(Tensor tensor, size_t j) const { return (spec_.is_per_slice(tensor) ? slice_ * cols_ : 0) + j; }

    /// Returns an option of the spec in the compute type, as the kernel uses it.
    static Number narrow(double option) {
        return {static_cast<Real>(static_cast<typename Rounding<Real>::Narrow>(option)), 0};
    }

    // rounding=llama: the types that the framework uses for xhat, and for its product with a tensor.
    bool rounds_to(DType type) const {
        return spec_.rounding == normjit::Rounding::llama && type != DType::f32 && type != DType::f64;
    }
    DType type_of(Tensor tensor) const { return spec_.dtype(tensor); }
    static DType promoted(DType a, DType b) { return a == b ? a : DType::f32; }
    DType stream_type() const {
        if (spec_.has(Tensor::h)) return type_of(Tensor::h);
        const DType x = type_of(Tensor::x);
        return spec_.has(Tensor::residual) ? promoted(x, type_of(Tensor::residual)) : x;
    }
    DType product_type(Tensor tensor) const { return promoted(stream_type(), type_of(tensor)); }
    Number rounded(DType type, const Number& number) const {
        if (!rounds_to(type)) return number;
        return rounded_to(number,
                          [&](Real value) { return static_cast<Real>(round_to(type, static_cast<double>(value))); });
    }

    int64_t column_depth(Tensor tensor) const {
        return all_rows_ * (spec_.is_per_slice(tensor) ? 1 : made_.slices) + 1;
    }

    /// Returns how many rows of the slice have the same data as made row `row`.
    Real repeats(size_t row) const {
        const int64_t made = made_.rows;
        return static_cast<Real>(all_rows_ / made + (static_cast<int64_t>(row) < all_rows_ % made ? 1 : 0));
    }

    template <class Term>
    Number row_mean(Term term) const {
        Sum<Real> sum;
        for (size_t j = 0; j < cols_; ++j) sum.add(term(j));
        const Number count{static_cast<Real>(cols_), 0};
        // 1 / N is rounded, and so is the product with it.
        return sum.total(spec_.cols / Rounding<Real>::lanes + 16) * (Number{1, 0} / count);
    }

    void find_xhat(size_t row) {
        const bool layernorm = spec_.norm == Norm::layernorm;
        find_h(row);
        const auto x = [&](size_t j) { return h_[j]; };
        Number mean;
        if (spec_.stats == Stats::recompute) {
            if (layernorm) mean = row_mean(x);
            const auto centred = [&](size_t j) { return layernorm ? x(j) - mean : x(j); };
            const Number variance = row_mean([&](size_t j) { return centred(j) * centred(j); });
            rstd_ = Number{1, 0} / sqrt(variance + narrow(spec_.eps));
            write_statistic(Tensor::mean, row, mean);
            write_statistic(Tensor::rstd, row, rstd_);
        } else {
            if (spec_.has(Tensor::mean)) mean = input(Tensor::mean, row);
            if (spec_.has(Tensor::rstd)) rstd_ = input(Tensor::rstd, row);
        }
        for (size_t j = 0; j < cols_; ++j) {
            switch (spec_.source) {
                case Source::x:
                    centred_[j] = layernorm ? x(j) - mean : x(j);
                    xhat_[j] = centred_[j] * rstd_;
                    break;
                case Source::xhat: xhat_[j] = x(j); break;
                case Source::y: xhat_[j] = xhat_of_y(x(j), j); break;
            }
        }
    }

    /// Computes h, the input of the normalisation.
    void find_h(size_t row) {
        const bool forward = spec_.pass == Pass::forward;
        for (size_t j = 0; j < cols_; ++j) {
            const size_t i = row * cols_ + j;
            h_[j] = input(Tensor::x, i);
            if (forward && spec_.has(Tensor::rowscale)) h_[j] = h_[j] * input(Tensor::rowscale, row);
            if (forward && spec_.has(Tensor::residual)) h_[j] = h_[j] + input(Tensor::residual, i);
            if (forward && (spec_.has(Tensor::rowscale) || spec_.has(Tensor::residual)))
                h_[j] = rounded(stream_type(), h_[j]);
            write(Tensor::h, i, h_[j]);
        }
    }

    void write_y(size_t row) {
        for (size_t j = 0; j < cols_; ++j) {
            Number y = rounded(stream_type(), xhat_[j]);
            if (spec_.has(Tensor::gamma)) y = rounded(product_type(Tensor::gamma), y * scale_[j]);
            if (spec_.has(Tensor::beta)) y = y + input(Tensor::beta, column(Tensor::beta, j));
            write(Tensor::y, row * cols_ + j, y);
        }
    }

    Number xhat_of_y(const Number& y, size_t j) const {
        const Number shifted = spec_.has(Tensor::beta) ? y - input(Tensor::beta, column(Tensor::beta, j)) : y;
        if (!spec_.has(Tensor::gamma)) return shifted;
        return scale_[j].value == 0 ? Number{0, 0} : shifted / scale_[j];
    }

    void write_dx(size_t row) {
        const auto g = [&](size_t j) {
            const Number dy = input(Tensor::dy, row * cols_ + j);
            return rounded(stream_type(), spec_.has(Tensor::gamma) ? dy * scale_[j] : dy);
        };
        const bool layernorm = spec_.norm == Norm::layernorm;
        const Number c1 = row_mean([&](size_t j) { return g(j) * xhat_[j]; });
        const Number c2 = layernorm ? row_mean(g) : Number{};
        const Number factor = row_factor_of_xhat(g, c1);
        for (size_t j = 0; j < cols_; ++j) {
            Number inner = g(j) - xhat_[j] * c1;
            if (layernorm) inner = inner - c2;
            Number dx = rstd_ * inner;
            Number term = rounds_to(stream_type()) ? g(j) * rstd_ : input(Tensor::dy, row * cols_ + j) * rstd_;
            if (!rounds_to(stream_type()) && spec_.has(Tensor::gamma)) term = term * scale_[j];
            Number projection = (spec_.source == Source::x ? centred_[j] : xhat_[j]) * factor;
            if (layernorm) projection = projection + rstd_ * c2;
            dx.error = std::max(dx.error, (term - projection).error);
            if (spec_.has(Tensor::dresidual)) dx = dx + input(Tensor::dresidual, row * cols_ + j);
            write(Tensor::dresidual_in, row * cols_ + j, dx);
            if (spec_.has(Tensor::rowscale)) dx = dx * input(Tensor::rowscale, row);
            write(Tensor::dx, row * cols_ + j, dx);
            find_largest(dx);
        }
    }

    /// The largest magnitude lies between the largest of all lower bounds and the largest of all upper bounds. A NaN
    /// stays.
    void find_largest(const Number& dx) {
        const Real magnitude = std::fabs(dx.value);
        if (!(magnitude <= largest_) && !std::isnan(largest_)) largest_ = magnitude;
        least_ = std::max(least_, magnitude - dx.error);
        most_ = std::isfinite(dx.error) ? std::max(most_, magnitude + dx.error) : INFINITY;
    }

    /// Multiplies the factors of the row first, either with x - mean or, if xhat is given, with xhat.
    template <class Gradient>
    Number row_factor_of_xhat(Gradient g, const Number& c1) const {
        if (spec_.source != Source::x) return rstd_ * c1;
        const Number mean = row_mean([&](size_t j) { return g(j) * centred_[j]; });
        return rstd_ * (rstd_ * (mean * rstd_));
    }

    void add_to_sums(size_t row, Real times) {
        for (size_t j = 0; j < cols_; ++j) {
            const Number dy = input(Tensor::dy, row * cols_ + j);
            if (spec_.has(Tensor::dgamma)) {
                Number term = rounded(product_type(Tensor::dy), dy * rounded(stream_type(), xhat_[j]));
                if (spec_.source == Source::x && !rounds_to(stream_type()))
                    term.error = std::max(term.error, ((dy * rstd_) * centred_[j]).error);
                dgamma_[j].add(term, times);
            }
            if (spec_.has(Tensor::dbeta)) dbeta_[j].add(dy, times);
        }
    }

    void write_sum(Tensor tensor, size_t i, const Sum<Real>& sum) {
        const Number total = sum.total(column_depth(tensor));
        write(tensor, i, spec_.accumulates(tensor) ? input(tensor, i) + total : total);
        gradients_[tensor][i].error_per_addition = static_cast<double>(sum.error_per_addition());
    }

    void write_statistic(Tensor tensor, size_t row, const Number& number) {
        if (spec_.writes(tensor)) write(tensor, row, number);
    }

    /// Writes a value as a double, which is one more rounding if Real is wider.
    void write(Tensor tensor, size_t i, const Number& number) {
        if (!spec_.has(tensor)) return;
        const auto value = static_cast<double>(number.value);
        gradients_[tensor][i] = {value, static_cast<double>(number.error + std::fabs(number.value) * Real(0x1p-53)), 0};
    }

    const Spec& spec_;
    const PerTensor<std::vector<double>>& inputs_;
    const int64_t all_rows_;  ///< all rows of one slice
    const Batch made_;
    const size_t cols_;
    size_t slice_ = 0;
    std::vector<Number> scale_;                                 ///< gamma + gamma_offset
    std::vector<Number> h_ = std::vector<Number>(cols_);        ///< h of the current row
    std::vector<Number> xhat_ = std::vector<Number>(cols_);     ///< xhat of the current row
    std::vector<Number> centred_ = std::vector<Number>(cols_);  ///< h - mean, or h if there is no mean
    Number rstd_;                                               ///< rstd of the current row
    std::vector<Sum<Real>> dgamma_ = std::vector<Sum<Real>>(cols_);
    std::vector<Sum<Real>> dbeta_ = std::vector<Sum<Real>>(cols_);
    Real largest_ = 0, least_ = 0, most_ = 0;  ///< bounds of the magnitude of dx
    Gradients gradients_;
};

}  // namespace

Gradients compute(const Spec& spec, Batch batch, const PerTensor<std::vector<double>>& inputs) {
    return compute_repeated(spec, batch, batch.rows, inputs);
}

Gradients compute_repeated(const Spec& spec, Batch made, int64_t rows, const PerTensor<std::vector<double>>& inputs) {
    if (spec.formula) return compute_formula(spec, made, rows, inputs);
    if (spec.compute() == DType::f64) return Computation<long double>(spec, made, rows, inputs).run();
    return Computation<double>(spec, made, rows, inputs).run();
}

bool agrees(const Gradient& expected, double got, DType type) {
    if (!std::isfinite(expected.error)) return true;
    return round_to(type, expected.value - expected.error) <= got &&
           got <= round_to(type, expected.value + expected.error);
}

}  // namespace normjit::reference
