// SPDX-License-Identifier: Apache-2.0
#include "cache/pack.h"

#include "cache/folder.h"
#include "file_io.h"
#include "support/text.h"
#include "support/try.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace normjit::cache {

namespace {

constexpr std::string_view head = "normjit-pack 1\n";
constexpr std::string_view index_word = "index ";
constexpr size_t digits = 16, id_digits = 32;
constexpr size_t footer_bytes = index_word.size() + digits + 1 + digits + 1 + id_digits + 1;

std::string footer(int64_t offset, size_t entries, std::string_view index) {
    return fmt::format("{}{:016} {:016} {}\n", index_word, offset, entries, text::checksum(index));
}

}  // namespace

Status Pack::error(std::string_view reason) const {
    return invalid_argument(fmt::format("pack: {}: {}", path_, reason));
}

Pack::Pack(Pack&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      index_(std::move(other.index_)) {}

Pack::~Pack() {
    if (descriptor_ >= 0) close(descriptor_);
}

Expected<Pack> Pack::open(const std::string& path) {
    Pack pack(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (pack.descriptor_ < 0) return pack.error(std::strerror(errno));
    NORMJIT_RETURN_IF_ERROR(pack.read_index());
    return pack;
}

Expected<std::string> Pack::read_bytes(Place place) const {
    std::string bytes(static_cast<size_t>(place.bytes), '\0');
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t got =
            pread(descriptor_, bytes.data() + done, bytes.size() - done, place.offset + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error(std::strerror(errno));
        if (got == 0) return error("is cut off");
        done += static_cast<size_t>(got);
    }
    return bytes;
}

Status Pack::read_index() {
    struct stat file{};
    if (fstat(descriptor_, &file) != 0) return error(std::strerror(errno));
    const int64_t end = file.st_size - static_cast<int64_t>(footer_bytes);
    if (!S_ISREG(file.st_mode) || end < static_cast<int64_t>(head.size())) return error("is no pack");
    NORMJIT_TRY(const std::string begin, read_bytes({0, static_cast<int64_t>(head.size())}));
    NORMJIT_TRY(const std::string last, read_bytes({end, static_cast<int64_t>(footer_bytes)}));
    if (begin != head || !last.starts_with(index_word)) return error("is no pack of this version, or is cut off");
    const auto offset = text::parse_int(std::string_view(last).substr(index_word.size(), digits), 0, end);
    if (!offset) return error("the place of the index is damaged");
    NORMJIT_TRY(const std::string index, read_bytes({*offset, end - *offset}));
    for (std::string_view line : text::split(index, '\n')) {
        const auto words = text::split(line, ' ');
        if (words.size() != 3) continue;  // counted below
        const auto at = text::parse_int(words[1], 0, *offset);
        const auto bytes = at ? text::parse_int(words[2], 0, *offset - *at) : at;
        if (at && bytes) index_[std::string(words[0])] = {*at, *bytes};
    }
    if (last != footer(*offset, index_.size(), index)) return error("the index is damaged");
    return {};
}

Expected<Entry> Pack::read(Place place) const {
    NORMJIT_TRY(const std::string bytes, read_bytes(place));
    return decode(bytes);
}

Expected<std::optional<Entry>> Pack::find(std::string_view key) const {
    const auto found = index_.find(id_of(key));
    if (found == index_.end()) return std::optional<Entry>();
    auto entry = read(found->second);
    if (!entry.ok()) return error(entry.status().message());
    if (entry->key != key) return error("an entry is of another key");
    return std::optional<Entry>(*std::move(entry));
}

Status write_pack(const std::string& path, std::span<const Entry> entries) {
    std::map<std::string, const Entry*> by_id;
    for (const Entry& entry : entries) by_id.emplace(id_of(entry.key), &entry);
    NORMJIT_TRY(OutputFile file, OutputFile::create(path));
    NORMJIT_RETURN_IF_ERROR(file.write(head));
    auto offset = static_cast<int64_t>(head.size());
    std::string index;
    for (const auto& [id, entry] : by_id) {
        const std::string text = encode(*entry);
        NORMJIT_RETURN_IF_ERROR(file.write(text));
        index += fmt::format("{} {} {}\n", id, offset, text.size());
        offset += static_cast<int64_t>(text.size());
    }
    NORMJIT_RETURN_IF_ERROR(file.write(index));
    NORMJIT_RETURN_IF_ERROR(file.write(footer(offset, by_id.size(), index)));
    return file.commit();
}

}  // namespace normjit::cache
