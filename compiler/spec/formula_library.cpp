// SPDX-License-Identifier: Apache-2.0
// The formulas of templates/norms, and how the text of a spec begins.
#include "spec/formula.h"
#include "spec/library.h"
#include "support/default_settings.h"
#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view word_of_formulas = "norm";
constexpr std::string_view extension = ".norm";

/// True for the norms whose specs have the keys of SPEC.md.
bool is_layer(std::string_view word) {
    return std::ranges::any_of(all_norms, [&](Norm norm) { return name(norm) == word; });
}

std::string_view name_of(const LibraryNorm& norm) { return norm.file.substr(0, norm.file.size() - extension.size()); }

/// Reads a formula, or the name of one in the library, after which the text must end.
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
    if (text::trim(rest).empty()) return signature;
    return invalid_argument(fmt::format("formula: '{}' after its end", text::shown(text::trim(rest))));
}

}  // namespace

const std::vector<std::string_view>& formula_keys() {
    static const auto& keys = lasting(std::vector<std::string_view>{"pass", "slices", "rows", "cols", "out", "save",
                                                                    "accumulate", "invariant", "norm"});
    return keys;
}

std::optional<std::string_view> library_formula(std::string_view name) {
    for (const LibraryNorm& norm : library_norms()) {
        if (name_of(norm) == name) return norm.text;
    }
    return std::nullopt;
}

std::vector<std::string_view> library_names() {
    std::vector<std::string_view> names;
    for (const LibraryNorm& norm : library_norms()) {
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
    return std::move(signature.numbers);
}

std::vector<std::string_view> norm_names() {
    std::vector<std::string_view> names;
    for (const Norm norm : all_norms) names.push_back(name(norm));
    const auto library = library_names();
    names.insert(names.end(), library.begin(), library.end());
    return names;
}

bool begins_with_formula(std::string_view text) {
    const std::string_view head = text::first_word(text);
    return head == word_of_formulas || (library_formula(head).has_value() && !is_layer(head));
}

}  // namespace normjit
