// SPDX-License-Identifier: Apache-2.0
// The backward passes of the network's two norms: the only part of the engine that uses normjit. The LayerNorm, which
// has a scale and a shift for each sample and adds the gradient of the residual branch, uses the C++ interface; the
// RMSNorm of heads, which are views of a wider matrix, uses the C interface.
#pragma once

#include "pool.h"

#include "normjit/dtype.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <memory>
#include <string>

namespace training {

/// Host memory of a launch, by tensor.
using Tensors = normjit::PerTensor<void*>;

class Norms {
  public:
    struct Shape {
        int64_t most_samples, tokens;  ///< a row for each token of a sample
        int64_t cols, heads;           ///< a head has cols / heads of the columns
        normjit::DType type;           ///< the type of x, dy, dx and the residual's gradient; the rest is f32
    };
    /// Opens "cpu" with the threads of the pool, or "cuda:0" with its own stream and graphs. Everything is compiled,
    /// loaded and allocated here, nothing in the calls below. `unavailable` if there is no such device.
    static normjit::Expected<std::unique_ptr<Norms>> open(const std::string& device, const Shape& shape, Pool& pool);
    virtual ~Norms() = default;

    /// Launches for any number of samples up to the most. The LayerNorm's gamma, dgamma and dbeta are [samples, cols],
    /// with the scale less 1 as gamma; the RMSNorm's are [heads, cols / heads], and its rstd is [heads, rows].
    virtual normjit::Status launch(normjit::Norm norm, int64_t samples, const Tensors& tensors) = 0;
};

}  // namespace training
