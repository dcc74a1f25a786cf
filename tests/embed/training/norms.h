// SPDX-License-Identifier: Apache-2.0
// The backward passes of the network's two norms, which are the only part of the engine that uses normjit. The
// LayerNorm has a scale and a shift for each sample, adds the gradient of the residual branch, and uses the C++
// interface. The RMSNorm works on heads, which are views of a wider matrix, and uses the C interface.
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

/// The host memory of a launch, indexed by tensor.
using Tensors = normjit::PerTensor<void*>;

class Norms {
  public:
    struct Shape {
        int64_t most_samples, tokens;  ///< a row for each token of a sample
        int64_t cols, heads;           ///< a head has cols / heads columns
        normjit::DType type;           ///< the type of x, dy, dx and the residual's gradient; the rest is f32
    };
    /// Opens "cpu" with the threads of the pool, or "cuda:0" with its own stream and graphs. Everything is compiled,
    /// loaded and allocated here, and nothing in the calls below. Fails with `unavailable` if there is no such device.
    static normjit::Expected<std::unique_ptr<Norms>> open(const std::string& device, const Shape& shape, Pool& pool);
    virtual ~Norms() = default;

    /// Launches for any number of samples up to the most. gamma, dgamma and dbeta of the LayerNorm are [samples, cols],
    /// with the scale minus 1 as gamma; those of the RMSNorm are [heads, cols / heads], and its rstd is [heads, rows].
    virtual normjit::Status launch(normjit::Norm norm, int64_t samples, const Tensors& tensors) = 0;
};

}  // namespace training
