// SPDX-License-Identifier: Apache-2.0
#include "cache/folder.h"

#include "file_io.h"
#include "support/try.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include <fmt/format.h>
#include <sys/stat.h>

namespace normjit::cache {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view entry_end = ".kernel";

/// A file that is being written is younger.
constexpr std::chrono::hours leftover_age{1};

std::string name_of(const Entry& entry) { return fmt::format("{}-{}{}", id_of(entry.key), entry.maker, entry_end); }

/// For the user alone, as the XDG base directory specification has it: what lies there is run.
Status make_folder(const std::string& path) {
    std::error_code error;
    const fs::path parent = fs::path(path).parent_path();
    if (!parent.empty()) fs::create_directories(parent, error);
    if (mkdir(path.c_str(), 0700) == 0 || fs::is_directory(path, error)) return {};
    return invalid_argument(fmt::format("{}: is no folder and cannot be made one", path));
}

}  // namespace

Expected<std::vector<Folder::File>> Folder::list(std::string_view begin, std::string_view end) const {
    std::error_code error;
    std::vector<File> files;
    auto each = fs::directory_iterator(path_, error);
    if (error == std::errc::no_such_file_or_directory) return files;
    for (; !error && each != fs::directory_iterator(); each.increment(error)) {
        File file{.name = each->path().filename().string(), .bytes = 0, .used = {}};
        if (!file.name.starts_with(begin) || !file.name.ends_with(end)) continue;
        std::error_code gone;  // meanwhile, by another process
        file.bytes = static_cast<int64_t>(each->file_size(gone));
        if (!gone) file.used = each->last_write_time(gone);
        if (!gone) files.push_back(std::move(file));
    }
    if (error) return invalid_argument(fmt::format("{}: cannot be read: {}", path_, error.message()));
    std::ranges::sort(
        files, [](const File& a, const File& b) { return a.used != b.used ? a.used > b.used : a.name < b.name; });
    return files;
}

Expected<std::vector<Folder::File>> Folder::files() const { return list("", entry_end); }

Expected<Entry> Folder::read(const File& file) const {
    NORMJIT_TRY(const std::string text, read_file(path_of(file), most_entry_bytes));
    NORMJIT_TRY(Entry entry, decode(text));
    if (name_of(entry) != file.name) return invalid_argument("cache entry: has the name of another one");
    return entry;
}

std::optional<Entry> Folder::find(std::string_view key, const std::optional<std::string>& maker,
                                  const Damaged& damaged) const {
    const auto candidates = list(id_of(key), maker ? fmt::format("-{}{}", *maker, entry_end) : entry_end);
    if (!candidates.ok()) return std::nullopt;
    for (const File& file : *candidates) {
        auto entry = read(file);
        if (entry.ok() && entry->key == key) {
            std::error_code gone;
            fs::last_write_time(path_of(file), fs::file_time_type::clock::now(), gone);
            return *std::move(entry);
        }
        std::error_code error;
        if (fs::exists(path_of(file), error)) {
            damaged(path_of(file), entry.ok() ? invalid_argument("cache entry: is of another key") : entry.status());
        }
    }
    return std::nullopt;
}

Status Folder::keep(const Entry& entry) const {
    NORMJIT_RETURN_IF_ERROR(make_folder(path_));
    NORMJIT_TRY(OutputFile file, OutputFile::create(path_ + "/" + name_of(entry)));
    NORMJIT_RETURN_IF_ERROR(file.write(encode(entry)));
    return file.commit();
}

bool Folder::remove(const File& file) const {
    std::error_code error;
    return fs::remove(path_of(file), error);
}

Folder::Cleaned Folder::remove_leftovers() const {
    Cleaned cleaned;
    const auto leftovers = list("", OutputFile::temporary_end);
    if (!leftovers.ok()) return cleaned;
    const auto before = fs::file_time_type::clock::now() - leftover_age;
    for (const File& file : *leftovers) {
        if (file.used < before && remove(file)) cleaned = {cleaned.files + 1, cleaned.bytes + file.bytes};
    }
    return cleaned;
}

Folder::Cleaned Folder::clean(int64_t bytes) const {
    Cleaned cleaned = remove_leftovers();
    const auto all = files();
    if (!all.ok()) return cleaned;
    int64_t kept = 0;
    for (const File& file : *all) {
        kept += file.bytes;
        if (kept > bytes && remove(file)) cleaned = {cleaned.files + 1, cleaned.bytes + file.bytes};
    }
    return cleaned;
}

}  // namespace normjit::cache
