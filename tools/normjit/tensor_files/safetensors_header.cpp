// SPDX-License-Identifier: Apache-2.0
// The rules of the header. No number in it can be trusted: nothing is multiplied, added or allocated before it has been
// checked against a limit.
#include "support/try.h"
#include "tensor_files/safetensors.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {
namespace {

using nlohmann::json;

struct StoredType {
    std::string_view name;
    int bits;
};

constexpr StoredType stored_types[] = {{"F64", 64},    {"F32", 32},    {"F16", 16}, {"BF16", 16},   {"I64", 64},
                                       {"I32", 32},    {"I16", 16},    {"I8", 8},   {"U64", 64},    {"U32", 32},
                                       {"U16", 16},    {"U8", 8},      {"BOOL", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                       {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"C64", 64}, {"F6_E3M2", 6}, {"F4", 4}};

/// Sizes in bits then fit in 64 bits.
constexpr int64_t most_elements = INT64_MAX / 64;

/// JSON allows a key to occur twice, and a parser may keep either, so two readers would see two files. Also limits
/// nesting.
class KeyCheck {
  public:
    bool operator()(int depth, json::parse_event_t event, const json& value) {
        if (depth > 3) too_deep_ = true;
        if (event == json::parse_event_t::object_start) open_.emplace_back();
        if (event == json::parse_event_t::object_end && !open_.empty()) open_.pop_back();
        if (event == json::parse_event_t::key && !open_.empty() && !duplicate_) {
            auto key = value.get<std::string>();
            if (!open_.back().insert(key).second) duplicate_ = key;
        }
        return !too_deep_;
    }

    Status status() const {
        if (too_deep_) return invalid_argument("the header is nested deeper than the format allows");
        if (duplicate_) return invalid_argument(fmt::format("the header names \"{}\" twice", *duplicate_));
        return {};
    }

  private:
    std::vector<std::set<std::string>> open_;
    std::optional<std::string> duplicate_;
    bool too_deep_ = false;
};

Expected<json> parse_json(std::string_view text) {
    if (!text.starts_with('{')) return invalid_argument("the header does not start with '{'");
    KeyCheck keys;
    try {
        json header = json::parse(
            text, [&](int depth, json::parse_event_t event, json& value) { return keys(depth, event, value); });
        NORMJIT_RETURN_IF_ERROR(keys.status());
        if (!header.is_object()) return invalid_argument("the header is not a JSON object");
        return header;
    } catch (const json::parse_error& error) {
        return invalid_argument(fmt::format("the header is not valid JSON at its byte {}", error.byte));
    } catch (const json::out_of_range&) {
        return invalid_argument("the header has a number beyond the range of a double");
    }
}

Status tensor_error(const std::string& name, std::string_view what) {
    return invalid_argument(fmt::format("tensor \"{}\": {}", name, what));
}

std::optional<int64_t> natural_number(const json& value) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
    return value.get<int64_t>();
}

Expected<std::vector<int64_t>> natural_numbers(const json& entry, const char* key) {
    auto found = entry.find(key);
    Status error = invalid_argument(fmt::format("\"{}\" must be a list of whole numbers from 0 up", key));
    if (found == entry.end() || !found->is_array()) return error;
    std::vector<int64_t> numbers;
    for (const json& item : *found) {
        auto number = natural_number(item);
        if (!number) return error;
        numbers.push_back(*number);
    }
    return numbers;
}

/// Returns nothing if the product exceeds most_elements.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    int64_t count = 1;
    for (int64_t size : shape) {
        if (size > most_elements / count) return std::nullopt;
        count *= size;
    }
    return count;
}

/// Parses an entry whose `tensor.name` is already set. Errors do not name the tensor.
Status parse_entry(const json& entry, int64_t data_bytes, StoredTensor& tensor) {
    if (!entry.is_object()) return invalid_argument("its entry is not a JSON object");
    auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string()) return invalid_argument("\"dtype\" must be a string");
    tensor.dtype = dtype->get<std::string>();
    const auto* type = std::find_if(std::begin(stored_types), std::end(stored_types),
                                    [&](const StoredType& known) { return known.name == tensor.dtype; });
    if (type == std::end(stored_types)) {
        return invalid_argument(fmt::format("dtype \"{:.32}\" is not one of the format", tensor.dtype));
    }
    NORMJIT_TRY(tensor.shape, natural_numbers(entry, "shape"));
    NORMJIT_TRY(auto offsets, natural_numbers(entry, "data_offsets"));
    if (offsets.size() != 2) return invalid_argument("\"data_offsets\" must be two numbers: begin and end");
    if (entry.size() != 3) return invalid_argument("its entry has keys besides dtype, shape and data_offsets");
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    if (tensor.begin > tensor.end) return invalid_argument("its data ends before it begins");
    auto count = element_count(tensor.shape);
    if (!count) return invalid_argument("its shape has more elements than any file can have");
    int64_t bits = *count * type->bits;
    if (bits % 8 != 0 || bits / 8 != tensor.bytes()) {
        return invalid_argument(
            fmt::format("its shape takes {} bytes, its offsets span {}", (bits + 7) / 8, tensor.bytes()));
    }
    if (tensor.end > data_bytes) {
        return invalid_argument(
            fmt::format("its data ends at byte {}, the file ends at {}: truncated?", tensor.end, data_bytes));
    }
    return {};
}

/// Checks that every byte of the data belongs to exactly one tensor.
Status check_layout(const std::vector<StoredTensor>& tensors, int64_t data_bytes) {
    std::vector<const StoredTensor*> order;
    for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
        return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    int64_t covered = 0;
    for (const StoredTensor* tensor : order) {
        if (tensor->begin < covered) return tensor_error(tensor->name, "its data overlaps another tensor's");
        if (tensor->begin > covered) {
            return tensor_error(tensor->name,
                                fmt::format("{} bytes before it belong to no tensor", tensor->begin - covered));
        }
        covered = tensor->end;
    }
    if (covered != data_bytes) {
        return invalid_argument(fmt::format("{} bytes at the end belong to no tensor", data_bytes - covered));
    }
    return {};
}

Expected<Metadata> parse_metadata(const json& entry) {
    Status error = invalid_argument("\"__metadata__\" must map strings to strings");
    if (!entry.is_object()) return error;
    Metadata metadata;
    for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return error;
        metadata[key] = value.get<std::string>();
    }
    return metadata;
}

}  // namespace

Expected<SafetensorsHeader> parse_safetensors_header(std::string_view text, int64_t data_bytes) {
    NORMJIT_TRY(json entries, parse_json(text));
    SafetensorsHeader header;
    for (const auto& [name, entry] : entries.items()) {
        if (name == "__metadata__") {
            NORMJIT_TRY(header.metadata, parse_metadata(entry));
            continue;
        }
        StoredTensor& tensor = header.tensors.emplace_back();
        tensor.name = name;
        Status status = parse_entry(entry, data_bytes, tensor);
        if (!status.ok()) return tensor_error(name, status.message());
    }
    NORMJIT_RETURN_IF_ERROR(check_layout(header.tensors, data_bytes));
    return header;
}

}  // namespace normjit::cli
