// SPDX-License-Identifier: Apache-2.0
// A block of a diffusion transformer without its attention. It is trained on samples, each of which has some tokens:
//
//     h = u w0     n = layernorm(h) (1 + c w_scale) + c w_shift     r = h + tanh(n) w1
//     z = rmsnorm of each head of r     y = z w2     loss = mean((y - t)^2)
//
// c is the condition of a sample, which gives the norms of its tokens their scale and shift. A head is some columns of
// r, with its own gamma. h and r, and their gradients, are kept as f32 or as bf16; weights and arithmetic are f32.
#pragma once

#include "norms.h"
#include "pool.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace training {

enum Weight : size_t { w0, w_scale, w_shift, w1, rmsnorm_gamma, w2, weight_count };
inline constexpr const char* weight_names[] = {"w0", "w_scale", "w_shift", "w1", "rmsnorm gamma", "w2"};

template <class Real>
using Weights = std::array<std::vector<Real>, weight_count>;

struct Sizes {
    int64_t tokens, inputs, conditions, hidden, heads, outputs;
    int64_t of(Weight weight) const;
};

/// u is [samples, tokens, inputs], c is [samples, conditions], t is [samples, tokens, outputs].
struct Data {
    int64_t samples = 0;
    std::span<const float> u, c, t;
};

/// Values in the form in which the network keeps them between its operations.
struct Kept {
    normjit::DType type = normjit::DType::f32;
    std::vector<float> values;
    std::vector<uint16_t> stored;  ///< bf16 only

    void resize(int64_t count);
    void* data() { return type == normjit::DType::bf16 ? static_cast<void*>(stored.data()) : values.data(); }
    /// Rounds `values` to the type that is kept, or reads what a kernel has written in that type.
    void store();
    void load();
};

class Network {
  public:
    Network(const Sizes& sizes, normjit::DType type, Pool& pool, Norms& norms);

    /// Returns the loss of the data, and sets `gradients`.
    normjit::Expected<double> step(const Weights<float>& weights, const Data& data, Weights<float>& gradients);

  private:
    const Sizes sizes_;
    Pool& pool_;
    Norms& norms_;
    Kept h_, dh_, r_, dr_, dn_, dz_;
    std::vector<float> scale_, shift_, dscale_, dshift_, mean_, rstd_, rms_, n_, a_, z_, y_, da_;
};

/// Returns the loss in double precision, without rounding. Gradients are compared with it.
double exact_loss(const Sizes& sizes, const Weights<double>& weights, const Data& data, Pool& pool);

}  // namespace training
