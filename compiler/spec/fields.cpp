// SPDX-License-Identifier: Apache-2.0
#include "spec/fields.h"

#include "support/contains.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view any_number = "any";

}  // namespace

std::vector<std::string_view> dtypes_and(std::span<const DType> types, std::initializer_list<std::string_view> others) {
    std::vector<std::string_view> words;
    for (const DType type : types) words.push_back(name(type));
    words.insert(words.end(), others);
    return words;
}

Status read_sizes(const text::Fields& fields, Spec& spec) {
    if (!fields.find("cols")) return invalid_argument("spec: cols is missing: the number of columns, at least 1");
    NORMJIT_RETURN_IF_ERROR(fields.read("cols", spec.cols, 1, max_cols));
    int64_t rows = 0, slices = 1;
    if (fields.find("rows") == any_number)
        return fields.error("rows", "must be a whole number; without the key, M is given at launch");
    NORMJIT_RETURN_IF_ERROR(fields.read("rows", rows, 0, INT64_MAX));
    if (fields.find("rows")) spec.rows = rows;
    spec.slices.reset();
    if (fields.find("slices") == any_number) return {};
    NORMJIT_RETURN_IF_ERROR(fields.read("slices", slices, 1, INT64_MAX));
    spec.slices = slices;
    return {};
}

Status read_type(const text::Fields& fields, std::string_view key, std::span<const DType> types,
                 std::initializer_list<std::string_view> other_words, std::optional<DType>& type) {
    const auto given = fields.find(key);
    if (!given || contains(other_words, *given)) return {};
    type = parse_dtype(*given);
    const bool is_allowed = type && contains(types, *type);
    return is_allowed ? Status() : fields.not_one_of(key, dtypes_and(types, other_words));
}

std::string size_text(const Spec& spec, std::string_view key) {
    if (key == "cols") return fmt::format(" cols={}", spec.cols);
    if (key == "rows") return spec.rows ? fmt::format(" rows={}", *spec.rows) : "";
    if (!spec.has_slices()) return "";
    return fmt::format(" slices={}", spec.slices ? std::to_string(*spec.slices) : std::string(any_number));
}

}  // namespace normjit
