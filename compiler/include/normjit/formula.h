// SPDX-License-Identifier: Apache-2.0
// A norm that is given as text, in the language of compiler/ir/formula_text.h, with the choices of a spec. Immutable
// once parse_spec() has made it.
#pragma once

#include "normjit/dtype.h"
#include "normjit/status.h"
#include "normjit/tensor.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit {

struct Spec;

struct Formula {
    std::string source;  ///< the beginning of a spec's text: the name of a norm in the library, or the whole formula
    std::string name;    ///< the name of the norm
    std::string text;    ///< the text of the formula
    Pass pass = Pass::backward;  ///< the pass that the tensors belong to

    /// A tensor of the problem: one that the formula declares and the layer has, a gradient, or a saved value of the
    /// forward pass.
    struct Tensor {
        std::string name;
        Axes axes;
        bool is_output = false;
        bool is_optional = false;
        DType dtype = DType::f32;
        std::optional<normjit::Tensor> second_half_of = {};  ///< in the spec of a kernel: kernel_spec.h
        bool operator==(const Tensor&) const = default;
    };
    PerTensor<std::optional<Tensor>> tensors;
    normjit::Tensor first = normjit::Tensor::x;  ///< the first input; other tensors have its type by default

    struct Number {
        std::string name;
        double value;
        bool operator==(const Number&) const = default;
    };
    std::vector<Number> numbers;     ///< the numbers that the formula takes, such as eps, by name
    std::vector<std::string> saved;  ///< names of the forward pass's values that the backward pass reads
    std::vector<std::string> usual_outputs, usual_saved;  ///< the defaults of out= and save=

    int64_t group_columns = 0;    ///< columns in a group of group_max(); 0 if there is none
    bool has_partners = false;    ///< kernels read its rows in halves: kernel_spec.h
    bool has_neighbours = false;  ///< pairs of columns are computed together

    /// Only set in the spec of a kernel that reads rows in halves: the spec of whole rows from which that spec was
    /// made. Not compared, because it follows from the other members.
    struct Whole {
        std::shared_ptr<const Spec> spec;
        bool operator==(const Whole&) const { return true; }
    } whole;

    bool operator==(const Formula&) const = default;
};

/// Null for LayerNorm and RMSNorm. Two pointers are equal if both are null or their formulas are equal.
class FormulaPointer {
  public:
    FormulaPointer() = default;
    FormulaPointer(std::shared_ptr<const Formula> formula) : formula_(std::move(formula)) {}
    explicit operator bool() const { return formula_ != nullptr; }
    const Formula* operator->() const { return formula_.get(); }
    const Formula& operator*() const { return *formula_; }
    friend bool operator==(const FormulaPointer& a, const FormulaPointer& b) {
        return a.formula_ == b.formula_ || (a && b && *a == *b);
    }

  private:
    std::shared_ptr<const Formula> formula_;
};

/// Returns a formula on one line, so that the text of a spec can begin with it. `formula` is the content of a file, or
/// a name in the library. An error gives the place of the mistake in that text.
Expected<std::string> formula_line(std::string_view formula);

/// Returns the names of the numbers that a formula takes; `formula` is as in formula_line(). Lengths of runs of
/// columns, such as R in [N/R], come first.
Expected<std::vector<std::string>> formula_numbers(std::string_view formula);

/// The kinds of gradient that an input of a formula can have.
enum class GradientKind : uint8_t {
    derived,  ///< a backward pass can compute it
    zero,     ///< it is 0, because no output depends on the input, as in x * w / w
    absent    ///< no output is computed from the input
};

/// Returns which kind of gradient an input has. `text` is a spec of a backward pass with a formula; its out= is
/// ignored. Fails as parse_spec() does, or if the input has no gradient.
Expected<GradientKind> gradient_kind(std::string_view text, std::string_view input);

}  // namespace normjit
