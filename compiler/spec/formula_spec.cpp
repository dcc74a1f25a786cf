// SPDX-License-Identifier: Apache-2.0
// Reads the text of a spec with a formula: the formula, or the name of one in the library, then keys.
#include "ir/groups.h"
#include "spec/formula_defaults.h"
#include "spec/formula_draft.h"
#include "spec/rules.h"
#include "support/contains.h"
#include "support/default_settings.h"
#include "support/try.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace normjit {

namespace {

/// Makes a spec from one text.
class FormulaReader : private FormulaDraft {
  public:
    FormulaReader(const FormulaSource& source, const text::Fields& fields) : FormulaDraft{source, fields, {}, {}, {}} {}

    Expected<Spec> read() {
        NORMJIT_RETURN_IF_ERROR(read_given());
        formula.pass = spec.pass;
        NORMJIT_RETURN_IF_ERROR(spec.pass == Pass::forward ? read_forward() : read_backward());
        if (wanted_.empty()) return invalid_argument("spec: out: no output is requested; name one or more");
        NORMJIT_RETURN_IF_ERROR(read_accumulate());
        NORMJIT_RETURN_IF_ERROR(refuse_strangers());
        NORMJIT_RETURN_IF_ERROR(drop_unread());
        if (!source.is_in_library) formula.text = source.as_written;
        spec.formula = std::make_shared<const Formula>(formula);
        NORMJIT_RETURN_IF_ERROR(check_formula_spec(spec));
        return std::move(spec);
    }

    /// Returns which kind of gradient an input has. Ignores `out`.
    Expected<GradientKind> gradient_kind(std::string_view input) {
        NORMJIT_RETURN_IF_ERROR(read_given());
        if (spec.pass != Pass::backward) return fields.error("pass", "only a backward pass has gradients");
        NORMJIT_TRY(const Needed needed, read_above());
        const auto value = needed.pass.values.find(input);
        if (value == needed.pass.values.end() || needed.pass.function[value->second].op != ir::Op::input)
            return invalid_argument(
                fmt::format("spec: formula: '{}' is not an input of this spec", text::shown(input)));
        if (is_shared_by_slices(needed.pass.function[value->second].tensor))
            return invalid_argument(
                fmt::format("spec: formula: {} is the same for all slices; it has no gradient", input));
        if (!needed.by_outputs[value->second]) return GradientKind::absent;
        use_formula();
        NORMJIT_TRY(const auto zero, inputs_without_gradient(spec));
        return zero.contains(input) ? GradientKind::zero : GradientKind::derived;
    }

  private:
    Status read_numbers() {
        for (const auto& [name, place] : source.signature.numbers) {
            const auto usual = usual_number(name);
            if (!fields.find(name) && has_no_runs(name)) continue;
            if (!fields.find(name) && !usual) {
                // The word may be a misspelt value, so the message says why it is taken for a number.
                const std::string at = source.is_in_library ? "" : "formula: " + ir::text(place);
                return invalid_argument(
                    fmt::format("spec: {0}{1} is missing: the formula has no tensor and no value of "
                                "this name, so it is a number: {1}=1",
                                at, name));
            }
            double value = usual.value_or(0);
            NORMJIT_RETURN_IF_ERROR(fields.read(name, value));
            if (!std::isfinite(value) || std::fabs(value) > FLT_MAX)
                return fields.error(name, "must be finite, within the range of f32");
            formula.numbers.push_back({name, value});
        }
        return {};
    }

    /// True if the number is the run length of missing inputs only. If the formula also uses it elsewhere, its parser
    /// refuses.
    bool has_no_runs(std::string_view number) const {
        const auto& all = source.signature.tensors;
        const auto is_of_none = [&](const auto& tensor) { return tensor.run != number || is_missing(tensor); };
        return std::ranges::count(all, number, &SignatureTensor::run) > 0 && std::ranges::all_of(all, is_of_none);
    }

    /// Reads the keys that both passes have and the inputs.
    Status read_given() {
        formula.source = source.as_written;
        formula.name = source.signature.name;
        formula.text = source.text;
        NORMJIT_RETURN_IF_ERROR(fields.read("pass", spec.pass, all_passes));
        NORMJIT_RETURN_IF_ERROR(fields.read("invariant", spec.invariant));
        NORMJIT_RETURN_IF_ERROR(read_sizes(fields, spec));
        NORMJIT_RETURN_IF_ERROR(read_numbers());
        return read_inputs();
    }

    Status read_inputs() {
        const auto& tensors = source.signature.tensors;
        const auto first = std::ranges::find_if(tensors, [&](const SignatureTensor& tensor) {
            return !tensor.is_output && !is_missing(tensor) && !tensor.axes.is_scalar();
        });
        if (first == tensors.end()) return invalid_argument("spec: formula: it has no input [M,N], [M] or [N]");
        first_type = DType::f32;  // known before scalars are read, whose usual type depends on it
        NORMJIT_RETURN_IF_ERROR(read_type(first->name, first_type));
        for (const SignatureTensor& tensor : tensors) {
            if (tensor.is_output || is_missing(tensor)) continue;
            NORMJIT_TRY(const Axes axes, axes_of(tensor));
            NORMJIT_TRY(const Tensor number, add(tensor.name, axes, false, usual_type(tensor.axes)));
            formula.tensors[number]->is_optional = tensor.is_optional;
            if (&tensor == &*first) formula.first = number;
        }
        return Status();
    }

    Status read_forward() {
        if (fields.find("save").value_or(left_out) != left_out) return fields.error("save", "needs pass=backward");
        std::set<std::string> allowed, usual;
        for (const SignatureTensor& tensor : source.signature.tensors) {
            if (!tensor.is_output) continue;
            allowed.insert(tensor.name);
            if (!tensor.is_optional) usual.insert(tensor.name);
        }
        NORMJIT_TRY(const auto given, names("out", allowed));
        formula.usual_outputs = {usual.begin(), usual.end()};
        wanted_ = given.value_or(usual);
        for (const SignatureTensor& tensor : source.signature.tensors) {
            if (!tensor.is_output || !wanted_.contains(tensor.name)) continue;
            NORMJIT_TRY(const Axes axes, axes_of(tensor));
            NORMJIT_RETURN_IF_ERROR(add(tensor.name, axes, true, usual_type(axes)).status());
        }
        return {};
    }

    /// The forward pass, and which of its values the outputs with a gradient need.
    struct Needed {
        ForwardPass pass;
        ir::PerValue<bool> by_outputs;
    };

    /// Declares the gradients of outputs and the saved values.
    Expected<Needed> read_above() {
        use_formula();
        NORMJIT_TRY(ForwardPass pass, forward_pass(spec));
        ir::PerValue<bool> needed(pass.function.values.size());
        for (const SignatureTensor& tensor : source.signature.tensors) {
            if (!tensor.is_output || (tensor.is_optional && !fields.find(gradient_name(tensor.name)))) continue;
            if (!tensor.run.empty())
                return invalid_argument(
                    fmt::format("spec: formula: {}: an output [M,N/{}] has no gradient; only "
                                "pass=forward is supported",
                                tensor.name, tensor.run));
            NORMJIT_TRY(const Tensor gradient,
                        add(gradient_name(tensor.name), tensor.axes, false, usual_type(tensor.axes)));
            formula.tensors[gradient]->is_optional = tensor.is_optional;
            needed[pass.values.find(tensor.name)->second] = true;
        }
        NORMJIT_RETURN_IF_ERROR(read_saved(pass));
        ir::mark_needed(pass.function, needed, [](ir::ValueId) { return true; });
        return Needed{std::move(pass), std::move(needed)};
    }

    /// Declares the gradients of inputs as well.
    Status read_backward() {
        NORMJIT_TRY(const auto above, read_above());
        const auto& [pass, needed] = above;
        std::set<std::string> allowed, usual;
        for (const ir::Value& value : pass.function.values) {
            const auto id = static_cast<ir::ValueId>(&value - pass.function.values.data());
            if (value.op != ir::Op::input || !needed[id] || is_shared_by_slices(value.tensor)) continue;
            allowed.insert(gradient_name(value.name));
            if (value.shape != ir::Shape::rows && !is_scalar(value.name)) usual.insert(gradient_name(value.name));
        }
        NORMJIT_TRY(const auto given, names("out", allowed));
        use_formula();
        NORMJIT_TRY(const auto zero, inputs_without_gradient(spec));
        for (const std::string& input : zero) usual.erase(gradient_name(input));
        if (!given && usual.empty())
            return invalid_argument(
                "spec: out: is missing: the gradients of matrices and columns, its default, are all 0");
        formula.usual_outputs = {usual.begin(), usual.end()};
        wanted_ = given.value_or(usual);
        const auto inputs = formula.tensors;
        for (const Tensor tensor : all_tensors) {
            const auto& input = inputs[tensor];
            if (!input || !wanted_.contains(gradient_name(input->name))) continue;
            // The gradient of a scalar is a run of all columns, [N/N]: a sum over the rows and the columns.
            const Axes axes = input->axes.is_scalar() ? Axes{.column = true, .run = spec.cols} : input->axes;
            NORMJIT_RETURN_IF_ERROR(add(gradient_name(input->name), axes, true, computed_type(input->dtype)).status());
        }
        return {};
    }

    Status read_saved(const ForwardPass& pass) {
        std::set<std::string> allowed, usual;
        for (const auto& [name, value] : pass.values) {
            const ir::Value& its = pass.function[value];
            const bool is_input = its.op == ir::Op::input && its.name == name;  // an input itself, not a copy of one
            if (!is_input && its.op != ir::Op::constant) allowed.insert(name);
        }
        for (const SignatureTensor& tensor : source.signature.tensors) {
            if (tensor.is_output && tensor.axes.is_rows()) usual.insert(tensor.name);
        }
        NORMJIT_TRY(const auto given, names("save", allowed));
        formula.usual_saved = {usual.begin(), usual.end()};
        const bool has_slices = std::ranges::any_of(source.signature.tensors, [](const SignatureTensor& tensor) {
            return tensor.axes.row && tensor.axes.slice;
        });
        for (const std::string& name : given.value_or(usual)) {
            const ir::Shape shape = pass.function[pass.values.find(name)->second].shape;
            const bool has_rows = ir::join(shape, ir::Shape::rows) == shape;
            const Axes axes{has_rows && has_slices, has_rows, ir::has_columns(shape)};
            if (!has_rows) return fields.error("save", fmt::format("{} has no rows; it is computed again", name));
            NORMJIT_RETURN_IF_ERROR(add(name, axes, false, usual_type(axes)).status());
            formula.saved.push_back(name);
        }
        return {};
    }

    Status read_accumulate() {
        use_formula();
        std::set<std::string> allowed;
        for (const Tensor tensor : all_tensors) {
            if (!spec.writes(tensor)) continue;
            const Axes& axes = spec.tensors[tensor]->axes;
            if (axes.is_columns() && !axes.has_runs()) allowed.emplace(spec.name(tensor));
        }
        if (allowed.empty() && fields.find("accumulate").value_or(left_out) != left_out)
            return fields.error("accumulate", "only outputs [N], sums over the rows, can be added to; there are none");
        NORMJIT_TRY(const auto given, names("accumulate", allowed));
        for (const std::string& name : given.value_or(std::set<std::string>()))
            spec.tensors[*spec.find(name)]->accumulate = true;
        return {};
    }

    /// Refuses types for tensors that the layer does not have.
    Status refuse_strangers() const {
        for (const text::Fields::Field& field : fields.all()) {
            const bool is_number = contains(source.signature.numbers, field.key, &ir::Signature::Number::name);
            if (is_number || contains(formula_keys(), field.key)) continue;
            const bool is_left_out = std::ranges::any_of(source.signature.tensors, [&](const SignatureTensor& tensor) {
                return tensor.name == field.key && !tensor.is_output;
            });
            if (spec.find(field.key) || (is_left_out && field.value == left_out)) continue;
            return fields.error(field.key, fmt::format("{} of this spec is neither read nor written", field.key));
        }
        return {};
    }

    /// Removes the inputs that no output depends on from the spec. The formula still contains them.
    Status drop_unread() {
        NORMJIT_TRY(const ir::Function function, function_of(spec));
        formula.has_partners = has_op(function, ir::Op::partner) || has_op(function, ir::Op::rotate_half);
        formula.has_neighbours = has_op(function, ir::Op::neighbour);
        formula.group_columns = ir::group_columns(function);
        NORMJIT_RETURN_IF_ERROR(check_sums_beside_runs(spec, function));
        PerTensor<bool> is_read;
        for (const ir::Value& value : function.values) is_read[value.tensor] |= value.op == ir::Op::input;
        bool reads_matrix = false;
        for (const Tensor tensor : all_tensors) {
            if (!spec.has(tensor) || spec.is_output(tensor)) continue;
            if (!is_read[tensor]) spec.tensors[tensor].reset();
            reads_matrix |= is_read[tensor] && spec.is_matrix(tensor);
        }
        if (!reads_matrix) return invalid_argument("spec: formula: no output depends on a matrix [M,N]");
        return {};
    }

    std::set<std::string> wanted_;
};

/// Makes a reader for the text, and returns use(reader).
template <class Use>
auto with_reader(std::string_view text, const Use& use) -> decltype(use(std::declval<FormulaReader>())) {
    const DefaultSettings settings;
    NORMJIT_TRY(const FormulaSource source, read_source(text));
    const std::vector<std::string> words = possible_keys(source);
    const std::string line = source.signature.name + " " + std::string(source.rest);
    NORMJIT_TRY(const auto fields,
                text::Fields::parse("spec", line, std::vector<std::string_view>(words.begin(), words.end())));
    return use(FormulaReader(source, fields));
}

}  // namespace

Expected<Spec> parse_formula_spec(std::string_view text) {
    return with_reader(text, [](FormulaReader&& reader) { return reader.read(); });
}

Expected<GradientKind> gradient_kind(std::string_view text, std::string_view input) {
    if (!begins_with_formula(text))
        return invalid_argument("spec: must begin with a formula; only formulas can be asked about gradients");
    return with_reader(text, [&](FormulaReader&& reader) { return reader.gradient_kind(input); });
}

}  // namespace normjit
