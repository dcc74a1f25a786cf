// SPDX-License-Identifier: Apache-2.0
#include "command_line/shapes.h"

#include "command_line/files.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

/// Removes the ~ of key=~4096. Returns whether there was one.
bool remove_about(std::string& text, std::string_view key) {
    const size_t at = text.rfind(key);
    if (at == std::string::npos) return false;
    text.erase(at + key.size() - 1, 1);
    return true;
}

/// Parses a spec. The error names the line that it came from. Without sizes, the spec may leave sizes open.
Expected<OpenSpec> read_spec(std::string text, const std::string& where, const Sizes* sizes) {
    const bool about_rows = remove_about(text, " rows=~"), about_slices = remove_about(text, " slices=~");
    auto spec = parse_spec(text);
    if (!spec.ok()) return Status(spec.status().code(), where + spec.status().message());
    OpenSpec open = {*std::move(spec)};
    if (sizes == nullptr) {
        if (about_rows) open.rows = std::exchange(open.spec.rows, std::nullopt).value_or(0);
        if (about_slices) open.slices = std::exchange(open.spec.slices, std::nullopt).value_or(0);
        return open;
    }
    if (!open.spec.rows) open.spec.rows = sizes->rows;
    if (!open.spec.slices) open.spec.slices = sizes->slices;
    const auto missing = [&](std::string_view what, std::string_view option) {
        return invalid_argument(fmt::format("{}spec: {}{}", where, what, sizes->are_options ? option : ""));
    };
    if (!open.spec.rows)
        return missing(
            fmt::format("rows is missing: the number of rows to make, at least {}", sizes->are_options ? 1 : 0),
            "; --rows gives it");
    if (!open.spec.slices) return missing("slices=any: the number of slices to make is missing", "; --slices gives it");
    return open;
}

Status read_file(const std::string& path, const Sizes* sizes, std::vector<OpenSpec>& specs) {
    NORMJIT_TRY(std::string text, read_text_file(path));
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        line = line.substr(0, line.find('#'));
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        const std::string where = fmt::format("{}:{}: ", path, number);
        const auto whole = spec_text({line});
        if (!whole.ok()) return Status(whole.status().code(), where + whole.status().message());
        NORMJIT_TRY(OpenSpec spec, read_spec(*whole, where, sizes));
        specs.push_back(std::move(spec));
    }
    return {};
}

/// The file of a formula that a text begins with, and the keys after it: "gated.norm cols=64".
struct FileAndKeys {
    std::string file;
    std::string_view keys;
};

std::optional<FileAndKeys> split_formula_file(std::string_view word) {
    constexpr std::string_view ending = ".norm";
    if (word.ends_with(ending)) return FileAndKeys{std::string(word), {}};
    const std::string_view head = text::first_word(word);
    if (!head.ends_with(ending)) return std::nullopt;
    return FileAndKeys{std::string(head), word.substr(static_cast<size_t>(head.data() + head.size() - word.data()))};
}

/// True if the text is a formula, or begins with the name of a norm.
bool begins_a_spec(std::string_view text) {
    const std::string_view head = text::first_word(text);
    const auto names = norm_names();
    return head == "norm" || std::ranges::find(names, head) != names.end();
}

/// True for keys of a spec, which a shell may have split into words.
bool are_keys(std::string_view word) {
    return text::first_word(word).find('=') != std::string_view::npos && !begins_a_spec(word);
}

Expected<std::vector<OpenSpec>> read(const std::vector<std::string>& inputs, const Sizes* sizes) {
    std::vector<OpenSpec> specs;
    for (size_t i = 0; i < inputs.size();) {
        std::vector<std::string> words = {inputs[i++]};
        const bool is_file = !split_formula_file(words[0]) && !begins_a_spec(words[0]) && !are_keys(words[0]) &&
                             words[0].find('=') == std::string::npos;
        if (is_file) {
            NORMJIT_RETURN_IF_ERROR(read_file(words[0], sizes, specs));
            continue;
        }
        while (i < inputs.size() && are_keys(inputs[i])) words.push_back(inputs[i++]);
        NORMJIT_TRY(const std::string text, spec_text(words));
        NORMJIT_TRY(OpenSpec spec, read_spec(text, "", sizes));
        specs.push_back(std::move(spec));
    }
    if (specs.empty() && !inputs.empty())
        return invalid_argument(fmt::format("{}: has no spec; such a file has one in each line", inputs.front()));
    return specs;
}

}  // namespace

Expected<std::string> spec_text(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) {
        if (!text.empty()) text += ' ';
        const auto named = split_formula_file(word);
        if (!named) {
            text += word;
            continue;
        }
        NORMJIT_TRY(const std::string content, read_text_file(named->file));
        const auto line = formula_line(content);
        if (!line.ok())
            return Status(line.status().code(), fmt::format("{}: {}", named->file, line.status().message()));
        text += *line;
        text += named->keys;
    }
    return text;
}

std::vector<std::string> files_of(std::vector<std::string> words) {
    for (std::string& word : words) {
        if (const auto named = split_formula_file(word)) word = named->file;
    }
    return words;
}

Expected<std::vector<Spec>> read_shapes(const std::vector<std::string>& inputs, const Sizes& sizes) {
    NORMJIT_TRY(std::vector<OpenSpec> known, read(inputs, &sizes));
    std::vector<Spec> specs;
    for (OpenSpec& each : known) specs.push_back(std::move(each.spec));
    return specs;
}

Expected<std::vector<OpenSpec>> read_specs(const std::vector<std::string>& inputs) { return read(inputs, nullptr); }

}  // namespace normjit::cli
