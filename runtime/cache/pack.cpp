// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"

#include "cache/folder.h"
#include "support/text.h"
#include "support/try.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace normjit::cache {

namespace {

constexpr std::string_view head = "normjit-pack 2\n";
constexpr std::string_view index_word = "index ";
constexpr int64_t most_index_bytes = int64_t{64} << 20;  // enough for a million entries
constexpr size_t digits = 16, id_digits = 32;
constexpr size_t footer_bytes = index_word.size() + digits + 1 + digits + 1 + id_digits + 1;

std::string footer(int64_t offset, size_t entries, std::string_view index) {
    return fmt::format("{}{:016} {:016} {}\n", index_word, offset, entries, text::checksum(index));
}

}  // namespace

Status Pack::error(std::string_view reason) const {
    return invalid_argument(fmt::format("pack: {}: {}", path_, reason));
}

Expected<Pack> Pack::open(const std::string& path) {
    auto file = open_regular(AT_FDCWD, path);
    if (!file.ok()) return invalid_argument(fmt::format("pack: {}: {}", path, file.status().message()));
    Pack pack(path, *std::move(file));
    NORMJIT_RETURN_IF_ERROR(pack.read_index());
    return pack;
}

Expected<std::string> Pack::read_bytes(Place place) const {
    auto bytes = read_at(file_.descriptor, place.offset, place.bytes);
    return bytes.ok() ? std::move(bytes) : error(bytes.status().message());
}

Status Pack::read_index() {
    const int64_t end = file_.facts.st_size - static_cast<int64_t>(footer_bytes);
    if (end < static_cast<int64_t>(head.size())) return error("is not a pack");
    NORMJIT_TRY(const std::string begin, read_bytes({0, static_cast<int64_t>(head.size())}));
    NORMJIT_TRY(const std::string last, read_bytes({end, static_cast<int64_t>(footer_bytes)}));
    if (begin != head || !last.starts_with(index_word)) return error("is not a pack of this version, or is cut off");
    const auto offset = text::parse_int(std::string_view(last).substr(index_word.size(), digits), 0, end);
    if (!offset) return error("the place of the index is damaged");
    if (end - *offset > most_index_bytes)
        return error(fmt::format("its index has more than {} bytes", most_index_bytes));
    NORMJIT_TRY(const std::string index, read_bytes({*offset, end - *offset}));
    for (std::string_view line : text::split(index, '\n')) {
        const auto words = text::split(line, ' ');
        if (words.size() != 3) continue;  // the index counts its lines, so the loss is noticed below
        const auto at = text::parse_int(words[1], 0, *offset);
        const auto bytes = at ? text::parse_int(words[2], 0, std::min(*offset - *at, most_entry_bytes)) : at;
        if (at && bytes) index_[std::string(words[0])] = {*at, *bytes};
    }
    if (last != footer(*offset, index_.size(), index)) return error("the index is damaged");
    return {};
}

Expected<Artifact> Pack::read(std::string_view id, Place place) const {
    NORMJIT_TRY(const std::string bytes, read_bytes(place));
    NORMJIT_TRY(Artifact artifact, parse_artifact(bytes));
    if (id_of(code_key(artifact)) != id) return invalid_argument("artifact: has another key");
    return artifact;
}

Expected<std::optional<Artifact>> Pack::find(std::string_view key) const {
    const auto found = index_.find(id_of(key));
    if (found == index_.end()) return std::optional<Artifact>();
    auto artifact = read(found->first, found->second);
    if (!artifact.ok()) return error(artifact.status().message());
    return std::optional<Artifact>(*std::move(artifact));
}

bool Pack::is_of_this_build() const {
    constexpr size_t most = 8;  // the ids are hashes, so the first entries are a sample
    const std::string any = fmt::format("{}generator ", artifact_magic),
                      ours = fmt::format("{}{} ", any, generator_version);
    size_t tried = 0;
    bool is_foreign = false;
    for (const auto& [id, place] : index_) {
        const auto artifact = read(id, place);
        if (artifact.ok() && code_key(*artifact) == code_key(artifact->spec, artifact->schedule, artifact->target))
            return true;
        const auto bytes = read_bytes(place);
        const bool is_older = bytes.ok() && bytes->starts_with(any) && !bytes->starts_with(ours);
        is_foreign |= artifact.ok() || is_older;  // a damaged artifact may come from any build
        if (++tried == most) break;
    }
    return !is_foreign;
}

Status write_pack(const std::string& path, std::span<const Artifact> artifacts) {
    std::map<std::string, const Artifact*> by_id;
    for (const Artifact& artifact : artifacts) by_id.emplace(id_of(code_key(artifact)), &artifact);
    NORMJIT_TRY(OutputFile file, OutputFile::create(path));
    NORMJIT_RETURN_IF_ERROR(file.write(head));
    auto offset = static_cast<int64_t>(head.size());
    std::string index;
    for (const auto& [id, artifact] : by_id) {
        const std::string bytes = serialise(*artifact);
        NORMJIT_RETURN_IF_ERROR(file.write(bytes));
        index += fmt::format("{} {} {}\n", id, offset, bytes.size());
        offset += static_cast<int64_t>(bytes.size());
    }
    NORMJIT_RETURN_IF_ERROR(file.write(index));
    NORMJIT_RETURN_IF_ERROR(file.write(footer(offset, by_id.size(), index)));
    return file.commit();
}

}  // namespace normjit::cache
