// SPDX-License-Identifier: Apache-2.0
#include "tensor_files/spec_fields.h"

#include "support/text.h"
#include "support/try.h"
#include "tensor_files/file_shapes.h"

#include "normjit/spec.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace normjit::cli {

std::optional<std::string> find(const SpecFields& fields, std::string_view key) {
    const auto found = fields.find(key);
    return found == fields.end() ? std::nullopt : std::optional(found->second);
}

void set(SpecFields& fields, std::string_view key, std::string value) {
    fields.insert_or_assign(std::string(key), std::move(value));
}

Status derive(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key,
              const std::string& value) {
    const auto given = find(fields, key);
    if (given && *given != value) return file.error(tensor.name, fmt::format("has {}={}, not {}", key, value, *given));
    set(fields, key, value);
    return {};
}

Status derive_type(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& tensor, std::string_view key) {
    NORMJIT_TRY(DType type, file.type_of(tensor));
    return derive(fields, file, tensor, key, std::string(name(type)));
}

bool is_forward(const SpecFields& fields) { return find(fields, "pass") == name(Pass::forward); }

Status derive_cols(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& x) {
    if (x.shape.empty()) return file.error(x.name, "is a single number; the last dimension must be the normalised one");
    if (x.shape.back() == 0) return file.error(x.name, fmt::format("shape {} has no columns", shape_text(x.shape)));
    return derive(fields, file, x, "cols", std::to_string(x.shape.back()));
}

Status derive_rows(SpecFields& fields, const SafetensorsFile& file, const StoredTensor& x) {
    const int64_t all = count(x.shape) / x.shape.back();
    const auto slices = text::parse_int(find(fields, "slices").value_or("1"), 1, INT64_MAX);
    if (!slices.ok()) return {};  // parse_spec() refuses it
    if (all % *slices != 0) {
        return file.error(x.name, fmt::format("shape {} has {} rows, which slices={} does not divide",
                                              shape_text(x.shape), all, *slices));
    }
    return derive(fields, file, x, "rows", std::to_string(all / *slices));
}

}  // namespace normjit::cli
