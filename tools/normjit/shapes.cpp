// SPDX-License-Identifier: Apache-2.0
#include "shapes.h"

#include "files.h"
#include "support/try.h"

#include <sstream>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

/// Parses a spec; an error names the line it came from. Without sizes the spec may leave them open.
Expected<Spec> read_spec(std::string_view text, const std::string& where, const Sizes* sizes) {
    auto spec = parse_spec(text);
    if (!spec.ok()) return Status(spec.status().code(), where + spec.status().message());
    if (sizes == nullptr) return spec;
    if (!spec->rows) spec->rows = sizes->rows;
    if (!spec->slices) spec->slices = sizes->slices;
    if (!spec->rows)
        return invalid_argument(fmt::format("{}spec: rows is missing: the number of rows to make, at least 0", where));
    if (!spec->slices)
        return invalid_argument(fmt::format("{}spec: slices=any: the number of slices to make is missing", where));
    return spec;
}

Status read_file(const std::string& path, const Sizes* sizes, std::vector<Spec>& specs) {
    NORMJIT_TRY(std::string text, read_text_file(path));
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        line = line.substr(0, line.find('#'));
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        NORMJIT_TRY(Spec spec, read_spec(line, fmt::format("{}:{}: ", path, number), sizes));
        specs.push_back(spec);
    }
    return {};
}

Expected<std::vector<Spec>> read(const std::vector<std::string>& inputs, const Sizes* sizes) {
    std::vector<Spec> specs;
    for (size_t i = 0; i < inputs.size();) {
        std::string text = inputs[i++];
        if (!text.starts_with("layernorm") && !text.starts_with("rmsnorm") && text.find('=') == std::string::npos) {
            NORMJIT_RETURN_IF_ERROR(read_file(text, sizes, specs));
            continue;
        }
        while (i < inputs.size() && inputs[i].find('=') != std::string::npos &&
               inputs[i].find(' ') == std::string::npos) {
            text += " " + inputs[i++];
        }
        NORMJIT_TRY(Spec spec, read_spec(text, "", sizes));
        specs.push_back(spec);
    }
    return specs;
}

}  // namespace

Expected<std::vector<Spec>> read_shapes(const std::vector<std::string>& inputs, const Sizes& sizes) {
    return read(inputs, &sizes);
}

Expected<std::vector<Spec>> read_specs(const std::vector<std::string>& inputs) { return read(inputs, nullptr); }

}  // namespace normjit::cli
