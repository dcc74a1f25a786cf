// SPDX-License-Identifier: Apache-2.0
// The backward passes of the network's two norms: all of the engine that knows of normjit. The LayerNorm, which also
// adds the gradient of the residual branch, goes through the interface for C++, the RMSNorm through that for C.
#pragma once

#include "pool.h"

#include "normjit/dtype.h"
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
        int64_t most_rows, cols;
        normjit::DType type;  ///< of x, dy, dx and the residual's gradient; the rest is f32
    };
    /// On "cpu" with the threads of the pool, or "cuda:0" with a stream and graphs of its own. Everything is compiled,
    /// loaded and allocated here; the calls below do none of it. `unavailable` where there is no such device.
    static normjit::Expected<std::unique_ptr<Norms>> open(const std::string& device, const Shape& shape, Pool& pool);
    virtual ~Norms() = default;

    /// Any number of rows up to the most.
    virtual normjit::Status layernorm(int64_t rows, const Tensors& tensors) = 0;
    virtual normjit::Status rmsnorm(int64_t rows, const Tensors& tensors) = 0;
};

}  // namespace training
