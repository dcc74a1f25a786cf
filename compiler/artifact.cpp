// SPDX-License-Identifier: Apache-2.0
// The line of an artifact:
//
//     normjit-artifact 4 | <spec> | <schedule> | <target> | <geometry> | rows:0 final_reduce:512 | <paths> | x86-64 |
//     62f17c48... | <checksum>
//
// with CUDA paths as "path vector_width=8 rows_per_block=1, row_kernel grid=row_groups ..., final_reduce ...; path
// ..." and then as many pieces of code, with a space between them.
//
// The checksum covers everything before the last " | ".
#include "normjit/artifact.h"

#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr std::string_view magic = "normjit-artifact";
constexpr char separator = '|';
enum Part : size_t {
    version_part,
    spec_part,
    schedule_part,
    target_part,
    geometry_part,
    entries_part,
    paths_part,
    format_part,
    code_part,
    checksum_part,
    part_count
};

/// The numbers of a Geometry with their keys, for both directions.
struct GeometryKey {
    std::string_view key;
    int64_t Geometry::* number;
    int64_t least;
};
constexpr GeometryKey geometry_keys[] = {
    {"row_groups", &Geometry::row_groups, 1},
    {"column_sums", &Geometry::column_sums, 0},
    {"partial_cols", &Geometry::partial_cols, 0},
    {"group_bytes", &Geometry::group_bytes, 0},
    {"final_cols", &Geometry::final_cols, 0},
    {"stream_bytes", &Geometry::stream_bytes, -1},
    {"row_bytes", &Geometry::row_bytes, 0},
    {"split_rows", &Geometry::split_rows, 0},
    {"column_parts", &Geometry::column_parts, 1},
    {"part_cols", &Geometry::part_cols, 0},
    {"block_rows", &Geometry::block_rows, 1},
    {"sweeps", &Geometry::sweeps, 0},
    {"teams", &Geometry::teams, 1},
    {"sums_bytes", &Geometry::sums_bytes, 0},
};
constexpr std::string_view geometry_head = "geometry";

template <class... Args>
Status error(std::string_view part, fmt::format_string<Args...> reason, Args&&... args) {
    return invalid_argument(fmt::format("artifact: {}: {}", part, fmt::format(reason, std::forward<Args>(args)...)));
}

/// The error of a part that has its own parser: "artifact: spec: cols=0: ...".
Status in_artifact(const Status& status) { return {status.code(), "artifact: " + status.message()}; }

std::string geometry_text(const Geometry& geometry) {
    std::string text(geometry_head);
    for (const GeometryKey& each : geometry_keys) text += fmt::format(" {}={}", each.key, geometry.*each.number);
    return text;
}

Expected<Geometry> parse_geometry(std::string_view text) {
    std::vector<std::string_view> keys;
    for (const GeometryKey& each : geometry_keys) keys.push_back(each.key);
    NORMJIT_TRY(const auto fields, text::Fields::parse(geometry_head, text, keys));
    if (fields.head() != geometry_head) return invalid_argument("geometry: is missing");
    Geometry geometry;
    for (const GeometryKey& each : geometry_keys) {
        if (!fields.find(each.key)) return invalid_argument(fmt::format("geometry: {} is missing", each.key));
        NORMJIT_RETURN_IF_ERROR(fields.read(each.key, geometry.*each.number, each.least, INT64_MAX));
    }
    if (geometry.group_bytes > INT64_MAX / geometry.row_groups) {
        return fields.error("group_bytes", "row_groups times as many bytes do not fit 64 bits");
    }
    return geometry;
}

std::string entries_text(const std::vector<EntryPoint>& entries) {
    std::vector<std::string> words;
    for (const EntryPoint& entry : entries) words.push_back(fmt::format("{}:{}", entry.name, entry.offset));
    return fmt::format("{}", fmt::join(words, " "));
}

bool is_name(std::string_view text) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    return !text.empty() && std::ranges::all_of(text, allowed);
}

Status parse_entries(std::string_view text, Artifact& artifact) {
    if (text.empty()) return {};
    const auto last = static_cast<int64_t>(artifact.code.size()) - 1;
    for (std::string_view word : text::split(text, ' ')) {
        const size_t colon = std::min(word.find(':'), word.size());
        const std::string_view name = word.substr(0, colon);
        if (!is_name(name) || colon == word.size())
            return error("entries", "'{}' is not name:offset", text::shown(word));
        if (artifact.find(name)) return error("entries", "{} comes twice", name);
        const auto offset = text::parse_int(word.substr(colon + 1), 0, last);
        if (!offset) return error("entries", "the offset of {} {}", name, offset.status().message());
        artifact.entries.push_back({std::string(name), *offset});
    }
    return {};
}

constexpr std::string_view path_head = "path";
constexpr std::string_view path_keys[] = {"vector_width", "rows_per_block", "shifted"};
constexpr std::string_view launch_keys[] = {"grid", "blocks", "threads", "shared", "cluster", "dependent"};

std::string path_text(const CudaPath& path) {
    std::string text = fmt::format("{} vector_width={} rows_per_block={} shifted={:d}", path_head, path.vector_width,
                                   path.rows_per_block, path.shifted);
    for (const CudaLaunch& launch : path.launches) {
        text += fmt::format(", {} grid={} blocks={} threads={} shared={} cluster={} dependent={:d}", launch.entry,
                            name(launch.grid), launch.blocks, launch.threads, launch.shared_bytes, launch.cluster,
                            launch.dependent);
    }
    return text;
}

std::string paths_text(const std::vector<CudaPath>& paths) {
    std::vector<std::string> texts;
    for (const CudaPath& path : paths) texts.push_back(path_text(path));
    return fmt::format("{}", fmt::join(texts, "; "));
}

Expected<CudaLaunch> parse_launch(std::string_view text) {
    NORMJIT_TRY(const auto fields, text::Fields::parse("launch", text, launch_keys));
    CudaLaunch launch{.entry = std::string(fields.head())};
    if (!is_name(launch.entry)) return invalid_argument(fmt::format("launch: '{}' is not a name", text::shown(text)));
    NORMJIT_RETURN_IF_ERROR(fields.read("grid", launch.grid, all_cuda_grids));
    NORMJIT_RETURN_IF_ERROR(fields.read("blocks", launch.blocks, 1, INT32_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("threads", launch.threads, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(fields.read("shared", launch.shared_bytes, 0, INT32_MAX));
    NORMJIT_RETURN_IF_ERROR(fields.read("cluster", launch.cluster, 1, 16));
    NORMJIT_RETURN_IF_ERROR(fields.read("dependent", launch.dependent));
    return launch;
}

Expected<CudaPath> parse_path(std::string_view text) {
    const auto pieces = text::split(text, ',');
    NORMJIT_TRY(const auto fields, text::Fields::parse("path", pieces[0], path_keys));
    if (fields.head() != path_head) return invalid_argument(fmt::format("path: '{}'", text::shown(fields.head())));
    CudaPath path;
    NORMJIT_RETURN_IF_ERROR(fields.read("vector_width", path.vector_width, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(fields.read("rows_per_block", path.rows_per_block, 1, 1024));
    NORMJIT_RETURN_IF_ERROR(fields.read("shifted", path.shifted));
    for (size_t i = 1; i < pieces.size(); ++i) {
        NORMJIT_TRY(CudaLaunch launch, parse_launch(pieces[i]));
        path.launches.push_back(std::move(launch));
    }
    return path;
}

Expected<std::vector<CudaPath>> parse_paths(std::string_view text) {
    std::vector<CudaPath> paths;
    if (text.empty()) return paths;
    for (std::string_view piece : text::split(text, ';')) {
        NORMJIT_TRY(CudaPath path, parse_path(piece));
        paths.push_back(std::move(path));
    }
    return paths;
}

Expected<CodeFormat> parse_format(std::string_view text) {
    for (CodeFormat format : all_code_formats) {
        if (name(format) == text) return format;
    }
    return error("format", "'{}' is unknown", text::shown(text));
}

std::string hex(std::span<const uint8_t> bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (uint8_t byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

Expected<std::vector<uint8_t>> parse_hex(std::string_view text) {
    if (text.size() % 2 != 0) return error("code", "ends in the middle of byte {}", text.size() / 2);
    std::vector<uint8_t> bytes(text.size() / 2);
    for (size_t i = 0; i < bytes.size(); ++i) {
        const char* begin = text.data() + 2 * i;
        const auto [stop, code] = std::from_chars(begin, begin + 2, bytes[i], 16);
        if (code != std::errc() || stop != begin + 2) {
            return error("code", "byte {}: '{}' is not hexadecimal", i, text::shown({begin, 2}));
        }
    }
    return bytes;
}

std::string checksum(std::string_view text) { return fmt::format("{:016x}", text::hash(text)); }

Status check_version(std::string_view text) {
    if (!text.starts_with(magic)) return error("version", "does not start with {}", magic);
    const std::string_view version = text::trim(text.substr(magic.size()));
    if (version == std::to_string(generator_version)) return {};
    return error("version", "is '{}'; this build reads {} only", text::shown(version), generator_version);
}

}  // namespace

std::string_view name(CodeFormat format) {
    constexpr std::string_view names[] = {"x86-64", "aarch64", "portable", "cubin", "ptx"};
    return names[static_cast<size_t>(format)];
}

const EntryPoint* Artifact::find(std::string_view entry) const {
    const auto found = std::ranges::find(entries, entry, &EntryPoint::name);
    return found == entries.end() ? nullptr : &*found;
}

std::string to_text(const Artifact& artifact) {
    std::string text = fmt::format("{} {} | {} | {} | {} | {} | {} | {} | {} | {} ", magic, generator_version,
                                   to_text(artifact.spec), to_text(artifact.schedule), to_text(artifact.target),
                                   geometry_text(artifact.geometry), entries_text(artifact.entries),
                                   paths_text(artifact.cuda_paths), name(artifact.format), hex(artifact.code));
    return text + fmt::format("{} {}", separator, checksum(text));
}

Expected<Artifact> parse_artifact(std::string_view text) {
    const std::string_view line = text::trim(text);
    std::vector<std::string_view> parts = text::split(line, separator);
    for (std::string_view& part : parts) part = text::trim(part);
    NORMJIT_RETURN_IF_ERROR(check_version(parts[version_part]));
    if (parts.size() != part_count) {
        return error("parts", "there are {} instead of {}: the text is cut off or damaged", parts.size(), +part_count);
    }
    // Parts first: when one is damaged beyond reading, its error tells more than a checksum that does not match.
    auto spec = parse_spec(parts[spec_part]);
    if (!spec) return in_artifact(spec.status());
    auto schedule = parse_schedule(parts[schedule_part]);
    if (!schedule) return in_artifact(schedule.status());
    auto target = parse_target(parts[target_part]);
    if (!target) return in_artifact(target.status());
    auto geometry = parse_geometry(parts[geometry_part]);
    if (!geometry) return in_artifact(geometry.status());
    auto paths = parse_paths(parts[paths_part]);
    if (!paths) return in_artifact(paths.status());
    NORMJIT_TRY(const CodeFormat format, parse_format(parts[format_part]));
    Artifact artifact{*spec, *schedule, *target, *geometry, {}, std::move(*paths), format, {}};
    NORMJIT_TRY(artifact.code, parse_hex(parts[code_part]));
    NORMJIT_RETURN_IF_ERROR(parse_entries(parts[entries_part], artifact));
    if (checksum(line.substr(0, line.rfind(separator))) != parts[checksum_part]) {
        return error("checksum", "does not match: the text is damaged");
    }
    return artifact;
}

uint64_t hash(const Artifact& artifact) { return text::hash(to_text(artifact)); }

}  // namespace normjit
