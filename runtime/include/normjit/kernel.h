// SPDX-License-Identifier: Apache-2.0
// A kernel that is loaded on a device, and the arguments of a launch.
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

/// One tensor of a launch: memory of the kernel's device, which the caller owns and which must stay valid until the
/// launch has run. `cols` is N for an [M,N] or [N] tensor, N/R for [N/R], and 0 for [M]. With slices, an [S,M] tensor
/// must be contiguous.
struct Argument {
    static constexpr int64_t contiguous = INT64_MIN;

    const void* data = nullptr;  ///< written if the tensor is an output; must be aligned to its element
    DType dtype = DType::f32;    ///< must be the type in the spec
    int64_t cols = 0;            ///< must be the spec's N, or N/R for a tensor [N/R] or [M,N/R]
    int64_t row_stride =
        contiguous;  ///< elements from one row to the next, of a matrix. At least 0; 0 repeats one row (inputs)
    int64_t slice_stride =
        contiguous;  ///< elements from one slice to the next, of a matrix or a column tensor with a row per slice; same
                     ///< limits
};

/// What launch() reads and writes. Tensors that the spec does not use are ignored. A matrix output may be the memory of
/// an input matrix if both have the same type and strides; no other overlap is allowed.
struct Arguments {
    int64_t rows = 0;    ///< M, at least 0
    int64_t slices = 1;  ///< S, at least 0; 1 if the spec has no slices
    PerTensor<Argument> tensors;
    Batch batch() const { return {rows, slices}; }
    void* workspace = nullptr;  ///< aligned to workspace_alignment; contents are lost. Null: the engine's allocator
                                ///< provides it, if there is one
    int64_t workspace_bytes = 0;
    void* stream = nullptr;  ///< a CUstream of the kernel's GPU, or null for the default stream; ignored on a CPU

    Argument& operator[](Tensor tensor) { return tensors[tensor]; }
    const Argument& operator[](Tensor tensor) const { return tensors[tensor]; }
};

/// A kernel that is ready to launch. Copies share the loaded code. Thread safe: launches may overlap if their
/// workspaces differ.
class Kernel {
  public:
    struct Impl;
    explicit Kernel(std::shared_ptr<const Impl> impl, const Allocator& allocator = {})
        : impl_(std::move(impl)), allocator_(allocator) {}

    /// Computes the spec's outputs. Compiles, allocates and locks nothing of its own. An `invalid_argument` names the
    /// argument and what is allowed; nothing has been written then. The same arguments give the same bits for any
    /// number of threads. The size of the workspace affects the bits only through the row groups that fit and, on a
    /// CPU, through whether there is room to split the columns of few rows. The strides of slices affect them as well:
    /// slices without gaps are treated as one slice with all rows, and if slices lie closer together than rows, the
    /// same row of all slices is computed before the next row.
    ///
    /// CPU: the outputs have been written when it returns. GPU: the work is on the stream when it returns; the tensors,
    /// the workspace and the kernel must stay until it is done. A graph may capture it. It runs in the stream's context
    /// or, for the default stream, in the thread's current context if that belongs to the kernel's GPU, else in the
    /// primary context. `failed` repeats the driver's error, which may concern earlier work on the GPU. Tensors with
    /// less alignment than the kernel's vectors need take a slower path of its artifact (CudaPath), which was compiled
    /// and loaded with the rest.
    Status launch(const Arguments& arguments) const;

    /// Return how many bytes of workspace launch() needs for up to `rows` rows in each of `slices` slices, and with how
    /// many it is fastest. Kernels that pass values of each row from one pass to the next need more for more rows; for
    /// most kernels the number of rows does not matter.
    int64_t minimum_workspace(int64_t rows, int64_t slices = 1) const;
    int64_t preferred_workspace(int64_t rows, int64_t slices = 1) const;

    const Artifact& artifact() const;

  private:
    std::shared_ptr<const Impl> impl_;
    Allocator allocator_;
};

}  // namespace normjit
