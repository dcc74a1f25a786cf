// SPDX-License-Identifier: Apache-2.0
#include "network.h"

#include "support/try.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace training {

using normjit::DType;
using normjit::Expected;
using normjit::Norm;
using normjit::Tensor;

namespace {

constexpr double eps = 1e-5;

/// out[m,n] = a[m,k] b[k,n]
template <class A, class Real>
void multiply(Pool& pool, int64_t m, int64_t k, int64_t n, const A* a, const Real* b, Real* out) {
    pool.each(m, [=](int64_t i) {
        std::fill_n(out + i * n, n, Real(0));
        for (int64_t l = 0; l < k; ++l) {
            const Real factor = static_cast<Real>(a[i * k + l]);
            for (int64_t j = 0; j < n; ++j) out[i * n + j] += factor * b[l * n + j];
        }
    });
}

/// out[k,n] = a[m,k]^T d[m,n]: the gradient of b.
void multiply_columns(Pool& pool, int64_t m, int64_t k, int64_t n, const float* a, const float* d, float* out) {
    pool.each(k, [=](int64_t l) {
        std::fill_n(out + l * n, n, 0.0f);
        for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) out[l * n + j] += a[i * k + l] * d[i * n + j];
        }
    });
}

/// out[m,k] = d[m,n] b[k,n]^T: the gradient of a.
void multiply_rows(Pool& pool, int64_t m, int64_t k, int64_t n, const float* d, const float* b, float* out) {
    std::vector<float> turned(static_cast<size_t>(k * n));
    for (int64_t l = 0; l < k; ++l) {
        for (int64_t j = 0; j < n; ++j) turned[static_cast<size_t>(j * k + l)] = b[l * n + j];
    }
    multiply(pool, m, n, k, d, turned.data(), out);
}

/// Normalises each sample's rows with its own scale and shift.
template <class Real>
void layernorm(Pool& pool, int64_t samples, int64_t tokens, int64_t cols, const Real* x, const Real* scale,
               const Real* shift, Real* means, Real* rstds, Real* y) {
    pool.each(samples * tokens, [=](int64_t i) {
        const Real* row = x + i * cols;
        Real sum = 0, squares = 0;
        for (int64_t j = 0; j < cols; ++j) sum += row[j];
        const Real mean = sum / static_cast<Real>(cols);
        for (int64_t j = 0; j < cols; ++j) squares += (row[j] - mean) * (row[j] - mean);
        const Real rstd = 1 / std::sqrt(squares / static_cast<Real>(cols) + static_cast<Real>(eps));
        means[i] = mean, rstds[i] = rstd;
        const int64_t first = i / tokens * cols;
        for (int64_t j = 0; j < cols; ++j) {
            y[i * cols + j] = (row[j] - mean) * rstd * (1 + scale[first + j]) + shift[first + j];
        }
    });
}

/// Normalises each head of a row separately. gamma is [heads, cols / heads], rstds are [heads, rows].
template <class Real>
void rmsnorm(Pool& pool, int64_t rows, int64_t cols, int64_t heads, const Real* x, const Real* gamma, Real* rstds,
             Real* y) {
    pool.each(rows * heads, [=](int64_t i) {
        const int64_t of_head = cols / heads, first = i * of_head, head = i % heads;
        Real squares = 0;
        for (int64_t j = 0; j < of_head; ++j) squares += x[first + j] * x[first + j];
        const Real rstd = 1 / std::sqrt(squares / static_cast<Real>(of_head) + static_cast<Real>(eps));
        rstds[head * rows + i / heads] = rstd;
        for (int64_t j = 0; j < of_head; ++j) y[first + j] = x[first + j] * rstd * gamma[head * of_head + j];
    });
}

/// Computes the loss. dy may be null.
template <class Real>
double squared_error(int64_t count, const Real* y, const float* t, Real* dy) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        const Real difference = y[i] - static_cast<Real>(t[i]);
        sum += static_cast<double>(difference * difference);
        if (dy != nullptr) dy[i] = 2 * difference / static_cast<Real>(count);
    }
    return sum / static_cast<double>(count);
}

size_t size(int64_t count) { return static_cast<size_t>(count); }

}  // namespace

int64_t Sizes::of(Weight weight) const {
    switch (weight) {
        case w0: return inputs * hidden;
        case w1: return hidden * hidden;
        case w2: return hidden * outputs;
        case w_scale:
        case w_shift: return conditions * hidden;
        default: return hidden;
    }
}

void Kept::resize(int64_t count) {
    values.resize(size(count));
    if (type == DType::bf16) stored.resize(size(count));
}

void Kept::store() {
    if (type != DType::bf16) return;
    for (size_t i = 0; i < values.size(); ++i) {
        const auto bits = std::bit_cast<uint32_t>(values[i]);
        stored[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);  // rounds to nearest even
    }
    load();
}

void Kept::load() {
    if (type != DType::bf16) return;
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::bit_cast<float>(uint32_t{stored[i]} << 16);
}

Network::Network(const Sizes& sizes, DType type, Pool& pool, Norms& norms) : sizes_(sizes), pool_(pool), norms_(norms) {
    for (Kept* kept : {&h_, &dh_, &r_, &dr_, &dn_, &dz_}) kept->type = type;
}

Expected<double> Network::step(const Weights<float>& weights, const Data& data, Weights<float>& gradients) {
    const auto [tokens, inputs, conditions, hidden, heads, outputs] = sizes_;
    const int64_t samples = data.samples, rows = samples * tokens;
    for (Kept* kept : {&h_, &dh_, &r_, &dr_, &dn_, &dz_}) kept->resize(rows * hidden);
    for (auto* values : {&n_, &a_, &z_, &da_}) values->resize(size(rows * hidden));
    for (auto* values : {&scale_, &shift_, &dscale_, &dshift_}) values->resize(size(samples * hidden));
    for (auto* values : {&mean_, &rstd_}) values->resize(size(rows));
    rms_.resize(size(rows * heads));
    y_.resize(size(rows * outputs));

    multiply(pool_, rows, inputs, hidden, data.u.data(), weights[w0].data(), h_.values.data());
    h_.store();
    multiply(pool_, samples, conditions, hidden, data.c.data(), weights[w_scale].data(), scale_.data());
    multiply(pool_, samples, conditions, hidden, data.c.data(), weights[w_shift].data(), shift_.data());
    layernorm(pool_, samples, tokens, hidden, h_.values.data(), scale_.data(), shift_.data(), mean_.data(),
              rstd_.data(), n_.data());
    std::ranges::transform(n_, a_.begin(), [](float n) { return std::tanh(n); });
    multiply(pool_, rows, hidden, hidden, a_.data(), weights[w1].data(), r_.values.data());
    std::ranges::transform(r_.values, h_.values, r_.values.begin(), std::plus());
    r_.store();
    rmsnorm(pool_, rows, hidden, heads, r_.values.data(), weights[rmsnorm_gamma].data(), rms_.data(), z_.data());
    multiply(pool_, rows, hidden, outputs, z_.data(), weights[w2].data(), y_.data());
    // y_ is now the gradient of y
    const double loss = squared_error(rows * outputs, y_.data(), data.t.data(), y_.data());

    multiply_columns(pool_, rows, hidden, outputs, z_.data(), y_.data(), gradients[w2].data());
    multiply_rows(pool_, rows, hidden, outputs, y_.data(), weights[w2].data(), dz_.values.data());
    dz_.store();
    Tensors tensors{};
    tensors[Tensor::x] = r_.data(), tensors[Tensor::dy] = dz_.data(), tensors[Tensor::dx] = dr_.data();
    tensors[Tensor::gamma] = const_cast<float*>(weights[rmsnorm_gamma].data()), tensors[Tensor::rstd] = rms_.data();
    tensors[Tensor::dgamma] = gradients[rmsnorm_gamma].data();
    NORMJIT_RETURN_IF_ERROR(norms_.launch(Norm::rmsnorm, samples, tensors));
    dr_.load();

    multiply_columns(pool_, rows, hidden, hidden, a_.data(), dr_.values.data(), gradients[w1].data());
    multiply_rows(pool_, rows, hidden, hidden, dr_.values.data(), weights[w1].data(), da_.data());
    std::ranges::transform(da_, a_, dn_.values.begin(), [](float da, float a) { return da * (1 - a * a); });
    dn_.store();
    tensors = {};
    tensors[Tensor::x] = h_.data(), tensors[Tensor::dy] = dn_.data(), tensors[Tensor::dx] = dh_.data();
    tensors[Tensor::gamma] = scale_.data(), tensors[Tensor::mean] = mean_.data(), tensors[Tensor::rstd] = rstd_.data();
    tensors[Tensor::dresidual] = dr_.data();  // h contributes to r twice: through the norm and around it
    tensors[Tensor::dgamma] = dscale_.data(), tensors[Tensor::dbeta] = dshift_.data();
    NORMJIT_RETURN_IF_ERROR(norms_.launch(Norm::layernorm, samples, tensors));
    dh_.load();
    multiply_columns(pool_, samples, conditions, hidden, data.c.data(), dscale_.data(), gradients[w_scale].data());
    multiply_columns(pool_, samples, conditions, hidden, data.c.data(), dshift_.data(), gradients[w_shift].data());
    multiply_columns(pool_, rows, inputs, hidden, data.u.data(), dh_.values.data(), gradients[w0].data());
    return loss;
}

double exact_loss(const Sizes& sizes, const Weights<double>& weights, const Data& data, Pool& pool) {
    const auto [tokens, inputs, conditions, hidden, heads, outputs] = sizes;
    const int64_t samples = data.samples, rows = samples * tokens;
    std::vector<double> h(size(rows * hidden)), n(h), r(h), scale(size(samples * hidden)), shift(scale),
        mean(size(rows)), rstd(size(rows * heads)), y(size(rows * outputs));
    multiply(pool, rows, inputs, hidden, data.u.data(), weights[w0].data(), h.data());
    multiply(pool, samples, conditions, hidden, data.c.data(), weights[w_scale].data(), scale.data());
    multiply(pool, samples, conditions, hidden, data.c.data(), weights[w_shift].data(), shift.data());
    layernorm(pool, samples, tokens, hidden, h.data(), scale.data(), shift.data(), mean.data(), rstd.data(), n.data());
    std::ranges::transform(n, n.begin(), [](double value) { return std::tanh(value); });
    multiply(pool, rows, hidden, hidden, n.data(), weights[w1].data(), r.data());
    std::ranges::transform(r, h, r.begin(), std::plus());
    rmsnorm(pool, rows, hidden, heads, r.data(), weights[rmsnorm_gamma].data(), rstd.data(), n.data());
    multiply(pool, rows, hidden, outputs, n.data(), weights[w2].data(), y.data());
    return squared_error<double>(rows * outputs, y.data(), data.t.data(), nullptr);
}

}  // namespace training
