// SPDX-License-Identifier: Apache-2.0
// A kernel loaded on a device, and what a launch hands it.
#pragma once

#include "normjit/allocator.h"
#include "normjit/artifact.h"
#include "normjit/dtype.h"
#include "normjit/parallel_for.h"
#include "normjit/spec.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <memory>

namespace normjit {

/// One tensor of a launch: caller-owned memory of the kernel's device that stays valid until the launch has run.
/// A [M,N] or [N] tensor says its N in `cols`; a [M] tensor leaves it 0. With slices a [S,M] tensor is contiguous.
struct Argument {
    static constexpr int64_t contiguous = INT64_MIN;

    const void* data = nullptr;  ///< written through when the tensor is an output. Aligned to its element
    DType dtype = DType::f32;    ///< must be the spec's
    int64_t cols = 0;            ///< must be the spec's N
    int64_t row_stride =
        contiguous;  ///< elements from one row to the next, of a matrix. At least 0; 0 repeats one row (inputs)
    int64_t slice_stride =
        contiguous;  ///< from one slice to the next, of a matrix or a column tensor with a row per slice; likewise
};

/// What launch() reads and writes. Tensors that the spec does not use are ignored.
/// A matrix output may be the same memory as an input matrix when both have the same type and strides; no other overlap
/// is allowed.
struct Arguments {
    int64_t rows = 0;    ///< M, at least 0
    int64_t slices = 1;  ///< S, at least 0; 1 without slices in the spec
    PerTensor<Argument> tensors;
    Batch batch() const { return {rows, slices}; }
    void* workspace = nullptr;  ///< aligned to workspace_alignment; contents are lost. Null: the engine's allocator is
                                ///< asked, if there is one
    int64_t workspace_bytes = 0;
    void* stream = nullptr;  ///< a CUstream of the kernel's GPU, null for the default one; ignored on a CPU

    Argument& operator[](Tensor tensor) { return tensors[tensor]; }
    const Argument& operator[](Tensor tensor) const { return tensors[tensor]; }
};

/// Ready to launch. Copies share one loaded kernel; thread safe, launches may run at the same time on different
/// workspaces.
class Kernel {
  public:
    struct Impl;
    explicit Kernel(std::shared_ptr<const Impl> impl, const Allocator& allocator = {})
        : impl_(std::move(impl)), allocator_(allocator) {}

    /// Computes the spec's outputs. Only looks up: compiles, allocates and locks nothing of its own. An
    /// invalid_argument names the argument and what is allowed; nothing has been written then. The same arguments give
    /// the same bits whatever the number of threads; workspace sizes count only through the row groups that fit, and on
    /// a CPU through whether there is room to split the columns of few rows.
    ///
    /// CPU: the outputs are written when it returns. GPU: the work has been put on the stream, and the tensors, the
    /// workspace and the kernel must stay until it is done. It may be captured in a graph. The stream's context is
    /// used, for the default stream the thread's current one when it is of the kernel's GPU, else the primary one.
    /// `failed` says what the driver said, which may be about work that was put on the GPU before. Tensors that are
    /// less aligned than the kernel's vectors go through a slower path of its artifact (CudaPath), which was compiled
    /// and loaded with the rest.
    Status launch(const Arguments& arguments) const;

    /// Bytes of workspace with which launch() works on up to `rows` rows of `slices`, and with which it is fastest.
    /// Kernels that hand something on for each row need more for more rows; most do not depend on it.
    int64_t minimum_workspace(int64_t rows, int64_t slices = 1) const;
    int64_t preferred_workspace(int64_t rows, int64_t slices = 1) const;

    const Artifact& artifact() const;

  private:
    std::shared_ptr<const Impl> impl_;
    Allocator allocator_;
};

}  // namespace normjit
