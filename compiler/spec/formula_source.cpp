// SPDX-License-Identifier: Apache-2.0
#include "spec/formula_source.h"

#include "spec/formula.h"
#include "support/text.h"

#include <algorithm>
#include <set>

namespace normjit {

Expected<FormulaSource> read_source(std::string_view text) {
    text = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    const std::string_view head = text::first_word(text);
    const auto in_library = library_formula(head);
    FormulaSource source{
        .as_written = std::string(head), .text = in_library.value_or(text), .is_in_library = in_library.has_value()};
    auto signature = ir::read_signature(source.text, formula_keys());
    if (!signature) return invalid_argument("spec: formula: " + signature.status().message());
    source.signature = *std::move(signature);
    source.rest = text.substr(in_library ? head.size() : source.signature.bytes);
    if (source.is_in_library) return source;
    source.as_written = source.signature.line;
    source.text = text.substr(0, source.signature.bytes);
    return source;
}

std::vector<std::string> possible_keys(const FormulaSource& source) {
    std::set<std::string> keys(formula_keys().begin(), formula_keys().end());
    for (const ir::Signature::Tensor& tensor : source.signature.tensors) {
        keys.insert(tensor.name);
        keys.insert(gradient_name(tensor.name));
    }
    for (const ir::Signature::Number& number : source.signature.numbers) keys.insert(number.name);
    const auto fields = text::Fields::parse_part("spec", source.rest);
    if (!fields.ok() || !fields->find("save")) return {keys.begin(), keys.end()};
    for (const std::string_view word : text::split(*fields->find("save"), ',')) {
        if (text::shown(word) == word) keys.emplace(word);
    }
    return {keys.begin(), keys.end()};
}

}  // namespace normjit
