// SPDX-License-Identifier: Apache-2.0
#include "normjit/serialise.h"

#include "backend/backend.h"
#include "support/default_settings.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <type_traits>

#include <fmt/format.h>

namespace normjit {

namespace {

Status error(std::string_view part, std::string_view reason) {
    return invalid_argument(fmt::format("artifact: {}: {}", part, reason));
}

/// Puts a prefix before the error of a part's own parser: "artifact: spec: cols=0: ...".
template <class T>
Expected<T> in_artifact(Expected<T> part) {
    if (part.ok()) return part;
    return Status(part.status().code(), "artifact: " + part.status().message());
}

/// Reads an artifact from front to back.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}

    /// Reads a line that starts with this word, and returns the rest of it.
    Expected<std::string_view> line(std::string_view word) {
        const size_t end = rest_.find('\n');
        if (end == rest_.npos) return error(word, "is cut off");
        const std::string_view line = rest_.substr(0, end);
        rest_.remove_prefix(end + 1);
        if (line.starts_with(word) && line.size() > word.size() && line[word.size()] == ' ')
            return line.substr(word.size() + 1);
        return error(word, fmt::format("there is '{}' instead", text::shown(line)));
    }

    /// Returns the next `count` bytes, and skips the end of their line.
    Expected<std::string_view> bytes(int64_t count) {
        if (count >= static_cast<int64_t>(rest_.size()) || rest_[static_cast<size_t>(count)] != '\n')
            return error("code", fmt::format("does not have the stated {} bytes", count));
        const std::string_view value = rest_.substr(0, static_cast<size_t>(count));
        rest_.remove_prefix(value.size() + 1);
        return value;
    }

    std::string_view rest() const { return rest_; }

  private:
    std::string_view rest_;
};

/// True if every character is a letter, a digit or one of `others`.
bool is_name(std::string_view text, std::string_view others) {
    const auto allowed = [&](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               others.find(c) != others.npos;
    };
    return !text.empty() && std::ranges::all_of(text, allowed);
}

std::string entries_text(const std::vector<EntryPoint>& entries) {
    std::string text;
    for (const EntryPoint& entry : entries) text += fmt::format(" {}:{}", entry.name, entry.offset);
    return text.empty() ? " " : text;
}

Status parse_entries(std::string_view text, Artifact& artifact) {
    if (text.empty()) return {};
    const auto last = static_cast<int64_t>(artifact.code.size()) - 1;
    for (std::string_view word : text::split(text, ' ')) {
        const size_t colon = std::min(word.find(':'), word.size());
        const std::string_view name = word.substr(0, colon);
        if (!is_name(name, "_") || colon == word.size())
            return error("entries", fmt::format("'{}' is not name:offset", text::shown(word)));
        if (artifact.find(name)) return error("entries", fmt::format("{} comes twice", name));
        const auto offset = text::parse_int(word.substr(colon + 1), 0, last);
        if (!offset) return error("entries", fmt::format("the offset of {} {}", name, offset.status().message()));
        artifact.entries.push_back({std::string(name), *offset});
    }
    return {};
}

struct CodeLine {
    CodeFormat format;
    int64_t bytes;
};

Expected<CodeLine> parse_code_line(std::string_view text) {
    const std::string_view word = text::first_word(text);
    const auto format = std::ranges::find(all_code_formats, word, [](CodeFormat each) { return normjit::name(each); });
    if (format == std::end(all_code_formats)) return error("code", fmt::format("'{}' is unknown", text::shown(word)));
    const auto bytes = text::parse_int(text::trim(text.substr(word.size())), 0, INT64_MAX);
    if (!bytes) return error("code", fmt::format("its size {}", bytes.status().message()));
    return CodeLine{*format, *bytes};
}

Status check_generator(std::string_view generator) {
    const std::string_view version = text::first_word(generator);
    if (version == std::to_string(generator_version)) return {};
    return error("generator",
                 fmt::format("is '{}'; this build reads {} only", text::shown(version), generator_version));
}

std::string words(const auto&... values) {
    std::string text;
    ((text += fmt::format(" {}", values)), ...);
    return text;
}

// The structured binding names every member, so a new member breaks the build until it is added here.

std::string launch_text(const CudaLaunch& launch) {
    const auto& [entry, grid, blocks, threads, shared_bytes, cluster, dependent] = launch;
    return "," + words(entry, name(grid), blocks, threads, shared_bytes, cluster, dependent);
}

std::string path_text(const CudaPath& path) {
    const auto& [vector_width, rows_per_block, rows_per_team, shifted, launches] = path;
    std::string text = ";" + words(vector_width, rows_per_block, rows_per_team, shifted);
    for (const CudaLaunch& launch : launches) text += launch_text(launch);
    return text;
}

std::string launch_digest(const Artifact& artifact) {
    static_assert(std::has_unique_object_representations_v<Geometry>);
    std::string all(reinterpret_cast<const char*>(&artifact.geometry), sizeof artifact.geometry);
    for (const CudaPath& path : artifact.cuda_paths) all += path_text(path);
    return fmt::format("{:016x}", text::hash(all));
}

std::string checksum_line(std::string_view bytes) { return fmt::format("checksum {}\n", text::checksum(bytes)); }

}  // namespace

std::string serialise(const Artifact& artifact) {
    std::string bytes = fmt::format("{}maker {}\nlaunch {}\nentries{}\ncode {} {}\n", code_key(artifact),
                                    artifact.maker, launch_digest(artifact), entries_text(artifact.entries),
                                    name(artifact.format), artifact.code.size());
    bytes.append(artifact.code.begin(), artifact.code.end());
    bytes += '\n';
    return bytes += checksum_line(bytes);
}

/// Reads the parts before it compares the checksum, because an error about an unreadable part says more. Work that
/// takes long comes after the checksum.
Expected<Artifact> parse_artifact(std::string_view bytes) {
    const DefaultSettings settings;
    if (!bytes.starts_with(artifact_magic))
        return error("version", fmt::format("does not start with '{}'", text::trim(artifact_magic)));
    Reader reader(bytes.substr(artifact_magic.size()));
    NORMJIT_TRY(const std::string_view generator, reader.line("generator"));
    NORMJIT_RETURN_IF_ERROR(check_generator(generator));
    NORMJIT_TRY(const std::string_view spec_line, reader.line("spec"));
    NORMJIT_TRY(const Spec spec, in_artifact(parse_spec(spec_line)));
    NORMJIT_TRY(const std::string_view schedule_line, reader.line("schedule"));
    NORMJIT_TRY(const Schedule schedule, in_artifact(parse_schedule(schedule_line)));
    NORMJIT_TRY(const std::string_view target_line, reader.line("target"));
    NORMJIT_TRY(const Target target, in_artifact(parse_target(target_line)));
    NORMJIT_TRY(const std::string_view maker, reader.line("maker"));
    if (!is_name(maker, "-.")) return error("maker", fmt::format("'{}' is not a name", text::shown(maker)));
    NORMJIT_TRY(const std::string_view launch, reader.line("launch"));
    NORMJIT_TRY(const std::string_view entries, reader.line("entries"));
    NORMJIT_TRY(const std::string_view code_line, reader.line("code"));
    NORMJIT_TRY(const CodeLine code, parse_code_line(code_line));
    NORMJIT_TRY(const std::string_view code_bytes, reader.bytes(code.bytes));
    if (reader.rest() != checksum_line(bytes.substr(0, bytes.size() - reader.rest().size())))
        return error("checksum", "does not match: the artifact is damaged");

    NORMJIT_TRY(const plan::Plan plan, in_artifact(plan::make(spec, schedule, target)));
    Artifact artifact = backend::describe_launches(plan, code.format);
    if (launch_digest(artifact) != launch)
        return error("launch", "this build would launch it differently; another version of the generator made it");
    artifact.generator = generator;
    artifact.maker = maker;
    artifact.code.assign(code_bytes.begin(), code_bytes.end());
    NORMJIT_RETURN_IF_ERROR(parse_entries(entries, artifact));
    return artifact;
}

}  // namespace normjit
