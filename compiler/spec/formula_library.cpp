// SPDX-License-Identifier: Apache-2.0
// The formulas of templates/norms, and how the text of a spec begins.
#include "spec/formula.h"
#include "spec/formula_defaults.h"
#include "support/default_settings.h"
#include "support/embedded.h"
#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view word_of_formulas = "norm";
constexpr std::string_view extension = ".norm";

/// True for norms whose specs have the keys listed in SPEC.md.
bool is_layer(std::string_view word) { return text::find_by_name(word, all_norms).has_value(); }

std::string_view name_of(const embedded::Text& norm) {
    return norm.name.substr(0, norm.name.size() - extension.size());
}

/// Reads the body of a formula, with all tensors of the layer. Every group size must divide `cols`.
Status read_body(std::string_view formula, const ir::Signature& signature, double any_number, int64_t cols) {
    ir::Function header{.cols = cols, .compute = DType::f32};
    for (const ir::Signature::Tensor& tensor : signature.tensors) {
        if (tensor.is_output && (tensor.is_optional || !tensor.run.empty())) continue;  // a spec need not request it
        const auto number = ir::free_number(header.operands, tensor.name);
        if (!number) return {};  // too many tensors, but a spec may leave some out
        header.operands[*number] = {.name = tensor.name,
                                    .shape = ir::shape_of(tensor.axes),
                                    .is_output = tensor.is_output,
                                    .dtype = DType::f32};
    }
    ir::Named values;
    const auto number_of = [&](std::string_view name) { return usual_number(name).value_or(any_number); };
    const Status status = ir::read_formula(formula, std::move(header), number_of, values).status();
    return status.ok() ? Status() : invalid_argument("formula: " + status.message());
}

/// Refuses a body that is wrong for all numbers and columns. A spec has the formula on one line, so only here can an
/// error give a place in the text that the user wrote.
Status check_body(std::string_view formula, const ir::Signature& signature) {
    Status status = read_body(formula, signature, 1, 4096);
    if (status.ok() || status.message() != read_body(formula, signature, 32, 256).message()) return {};
    return status;
}

/// Reads a formula or the name of one in the library. The text must end there.
Expected<ir::Signature> signature_of(std::string_view formula) {
    const DefaultSettings settings;
    const std::string_view word = text::trim(formula);
    const auto of_library = library_formula(word);
    if (!of_library && !word.empty() && text::first_word(word) == word && word != word_of_formulas) {
        const auto names = norm_names();
        return invalid_argument(fmt::format("formula: '{}': a text begins with '{}'; norms of the library: {}{}",
                                            text::shown(word), word_of_formulas, text::join(names),
                                            text::did_you_mean(word, names)));
    }
    formula = of_library.value_or(formula);
    auto signature = ir::read_signature(formula, formula_keys());
    if (!signature.ok()) return invalid_argument("formula: " + signature.status().message());
    const std::string_view rest = formula.substr(signature->bytes);
    if (text::trim(rest).empty()) {
        NORMJIT_RETURN_IF_ERROR(check_body(formula, *signature));
        return signature;
    }
    return invalid_argument(fmt::format("formula: '{}' after its end", text::shown(text::trim(rest))));
}

}  // namespace

const std::vector<std::string_view>& formula_keys() {
    static const auto& keys = *lasting(std::vector<std::string_view>{"pass", "slices", "rows", "cols", "out", "save",
                                                                     "accumulate", "invariant", "norm"});
    return keys;
}

std::optional<std::string_view> library_formula(std::string_view name) {
    for (const embedded::Text& norm : embedded::norms()) {
        if (name_of(norm) == name) return norm.text;
    }
    return std::nullopt;
}

std::vector<std::string_view> library_names() {
    std::vector<std::string_view> names;
    for (const embedded::Text& norm : embedded::norms()) {
        if (!is_layer(name_of(norm))) names.push_back(name_of(norm));
    }
    return names;
}

Expected<std::string> formula_line(std::string_view formula) {
    NORMJIT_TRY(ir::Signature signature, signature_of(formula));
    return std::move(signature.line);
}

Expected<std::vector<std::string>> formula_numbers(std::string_view formula) {
    NORMJIT_TRY(ir::Signature signature, signature_of(formula));
    std::vector<std::string> names;
    for (ir::Signature::Number& number : signature.numbers) names.push_back(std::move(number.name));
    return names;
}

std::vector<std::string_view> norm_names() {
    std::vector<std::string_view> names = text::names_of(all_norms);
    const auto library = library_names();
    names.insert(names.end(), library.begin(), library.end());
    return names;
}

bool begins_with_formula(std::string_view text) {
    if (library_formula(text::first_word(text)).has_value()) return !is_layer(text::first_word(text));
    while (text::first_word(text).starts_with('#'))
        text.remove_prefix(std::min(text.find('\n', text.find('#')), text.size()));
    return text::first_word(text) == word_of_formulas;
}

}  // namespace normjit
