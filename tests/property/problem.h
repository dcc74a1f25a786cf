// SPDX-License-Identifier: Apache-2.0
// The tensors of a case in memory: between guard pages, with gaps between rows, not aligned to vectors, and with
// outputs in the memory of inputs.
#pragma once

#include "case.h"
#include "guarded_memory.h"
#include "inputs.h"

#include "normjit/kernel.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace normjit::test {

/// Where a case's layout seed puts the tensors.
struct Layout {
    struct Place {
        GuardedMemory::Edge edge = GuardedMemory::Edge::front;
        int64_t shift = 0;   ///< in elements
        int64_t stride = 0;  ///< elements from one row to the next
        int64_t slice_stride = 0;
    };
    PerTensor<Place> places;
    PerTensor<std::optional<Tensor>> under;  ///< by output: the input whose memory the output uses
    int64_t groups = 0;                      ///< partials that the workspace holds
};
Layout make_layout(const Case& a_case);

class Problem {
  public:
    Problem(const Case& a_case, const Geometry& geometry, const Layout& layout, const Inputs& inputs);

    const Case& drawn() const { return case_; }
    const Arguments& arguments() const { return arguments_; }

    /// Returns all memory of the problem, including padding.
    std::vector<std::span<std::byte>> memory() const;

    /// Return the elements of an output after a launch, packed: as numbers, or as stored.
    std::vector<double> numbers(Tensor output) const;
    std::vector<std::byte> bytes(Tensor output) const;

    /// Returns what a launch changed besides its outputs, as the tensor and the place; empty if it changed nothing.
    std::string damage() const;

  private:
    struct Rows;
    Rows rows(Tensor tensor) const;
    bool is_written(Tensor tensor) const;

    const Case& case_;
    const Layout layout_;
    PerTensor<GuardedMemory> memory_;
    PerTensor<std::vector<std::byte>> before_;
    GuardedMemory workspace_;
    Arguments arguments_;
};

}  // namespace normjit::test
