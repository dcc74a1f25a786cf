// SPDX-License-Identifier: Apache-2.0
#include "shapes.h"

#include "files.h"
#include "support/try.h"

#include <sstream>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

/// A spec that can be measured: its error names the line it came from.
Expected<Spec> read_spec(std::string_view text, const std::string& where, std::optional<int64_t> rows) {
    auto spec = parse_spec(text);
    if (!spec.ok()) return Status(spec.status().code(), where + spec.status().message());
    if (!spec->rows) spec->rows = rows;
    if (!spec->rows)
        return invalid_argument(fmt::format("{}spec: rows is missing: the number of rows to make, at least 0", where));
    return spec;
}

Status read_shapes_file(const std::string& path, std::optional<int64_t> rows, std::vector<Spec>& specs) {
    NORMJIT_TRY(std::string text, read_text_file(path));
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        line = line.substr(0, line.find('#'));
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        NORMJIT_TRY(Spec spec, read_spec(line, fmt::format("{}:{}: ", path, number), rows));
        specs.push_back(spec);
    }
    return {};
}

}  // namespace

Expected<std::vector<Spec>> read_shapes(const std::vector<std::string>& inputs, std::optional<int64_t> rows) {
    std::vector<Spec> specs;
    for (size_t i = 0; i < inputs.size();) {
        std::string text = inputs[i++];
        if (!text.starts_with("layernorm") && !text.starts_with("rmsnorm") && text.find('=') == std::string::npos) {
            NORMJIT_RETURN_IF_ERROR(read_shapes_file(text, rows, specs));
            continue;
        }
        while (i < inputs.size() && inputs[i].find('=') != std::string::npos &&
               inputs[i].find(' ') == std::string::npos) {
            text += " " + inputs[i++];
        }
        NORMJIT_TRY(Spec spec, read_spec(text, "", rows));
        specs.push_back(spec);
    }
    return specs;
}

}  // namespace normjit::cli
