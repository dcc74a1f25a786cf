// SPDX-License-Identifier: Apache-2.0
// A spec with a formula while its text is being read.
#pragma once

#include "spec/fields.h"
#include "spec/formula.h"
#include "spec/formula_source.h"

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace normjit {

/// A spec and its formula, to which tensors are added as the text names them.
struct FormulaDraft {
    using SignatureTensor = ir::Signature::Tensor;

    const FormulaSource& source;
    const text::Fields& fields;
    Formula formula;
    Spec spec;
    std::optional<DType> first_type;  ///< of the first input that is not a scalar

    /// Adds a tensor, whose type is `usual` unless its key says otherwise, and returns its number.
    Expected<Tensor> add(std::string_view name, Axes axes, bool is_output, DType usual);

    /// Reads the type of a tensor, if its key is there.
    Status read_type(std::string_view name, std::optional<DType>& type) const;

    /// Returns a tensor's axes, including the length of its runs of columns.
    Expected<Axes> axes_of(const SignatureTensor& tensor) const;

    /// Returns the default type of a tensor with these axes.
    DType usual_type(const Axes& axes) const;

    /// Returns the names that out=, save= or accumulate= lists; nothing if the key is missing.
    Expected<std::optional<std::set<std::string>>> names(std::string_view key,
                                                         const std::set<std::string>& allowed) const;

    /// Gives the spec the formula as read so far, with all tensors.
    void use_formula();

    /// True for an optional input that the text does not give a type.
    bool is_missing(const SignatureTensor& input) const;

    /// True for a tensor that the formula declares as an output.
    bool is_output_of_layer(std::string_view name) const;

    /// True for an input that the formula declares as a scalar.
    bool is_scalar(std::string_view input) const;

    /// True for an [M,N] tensor that all slices share. Its gradient would be a sum over the slices.
    bool is_shared_by_slices(Tensor tensor) const;

  private:
    Status refuse(std::string_view key, std::string_view word, std::span<const std::string_view> allowed) const;
};

}  // namespace normjit
