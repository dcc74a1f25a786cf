// SPDX-License-Identifier: Apache-2.0
#include "cache/folder.h"

#include "support/text.h"
#include "support/try.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <tuple>

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace normjit::cache {

namespace {

constexpr std::string_view entry_end = ".kernel";
constexpr size_t digits_of_folder = 2, digits_of_id = 32;
constexpr std::string_view hex_digits = "0123456789abcdef";

/// No file takes longer than this to write, and the clocks of machines that share a disk differ by less.
constexpr int64_t hour = 3600 * int64_t{1'000'000'000};

std::string name_of(std::string_view id, std::string_view maker) {
    return fmt::format("{}/{}-{}{}", id.substr(0, digits_of_folder), id, maker, entry_end);
}
std::string name_of(const Artifact& artifact) { return name_of(id_of(code_key(artifact)), artifact.maker); }

int64_t nanoseconds(const struct timespec& time) { return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec; }

int64_t now() {
    struct timespec time{};
    clock_gettime(CLOCK_REALTIME, &time);
    return nanoseconds(time);
}

bool others_may_write(const struct stat& facts) { return (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

bool is_ours(const struct stat& facts) { return facts.st_uid == geteuid() || facts.st_uid == 0; }

bool is_folder_name(std::string_view name) {
    return name.size() == digits_of_folder && name.find_first_not_of(hex_digits) == name.npos;
}

/// True for names from name_of(), without the folder, and for names of unfinished entries. All other files in the
/// folder belong to somebody else, and are left alone.
bool is_entry_name(std::string_view name) {
    return name.find_first_not_of(hex_digits) == digits_of_id && name[digits_of_id] == '-' &&
           name.find(entry_end, digits_of_id) != name.npos;
}

/// Returns the names in a folder; none if it was removed in the meantime. Uses readdir, because std::filesystem ends the
/// process when memory runs out.
Expected<std::vector<std::string>> names_in(const Descriptor& folder, const std::string& path) {
    std::vector<std::string> names;
    const auto end = [&](int error) -> Expected<std::vector<std::string>> {
        if (error == 0 || error == ENOENT) return std::move(names);
        return failed(fmt::format("{}: cannot be listed: {}", path, std::strerror(error)));
    };
    Descriptor own(openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!own.is_open()) return end(errno);
    const std::unique_ptr<DIR, int (*)(DIR*)> open(fdopendir(own.get()), closedir);
    if (!open) return end(errno);
    own.release();
    for (;;) {
        errno = 0;
        const dirent* each = readdir(open.get());
        if (each == nullptr) return end(errno);
        names.emplace_back(each->d_name);
    }
}

Status make_one_folder(const std::string& path, mode_t mode) {
    struct stat facts{};
    if (mkdir(path.c_str(), mode) == 0) return {};
    const int error = errno;
    if (stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) return {};
    return invalid_argument(fmt::format("{}: cannot be made a folder: {}", path, std::strerror(error)));
}

/// Makes a folder that only the user can access, as the XDG base directory specification says, because its content is
/// run. Others may not write to the folders on the way either, even in a daemon whose umask is 0. An error names the
/// first of them that cannot be made.
Status make_folder(const std::string& path) {
    for (size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1))
        NORMJIT_RETURN_IF_ERROR(make_one_folder(path.substr(0, end), 0755));
    return make_one_folder(path, 0700);
}

/// Lets everybody who may use a folder also use one that was made in it, whatever the umask of the process is.
void give_rights_of(const Descriptor& folder, const std::string& below) {
    struct stat facts{};
    if (fstat(folder.get(), &facts) == 0)
        // If that fails, the folder still serves this process.
        std::ignore = fchmodat(folder.get(), below.c_str(), facts.st_mode & 07777, 0);
}

std::string absolute(const std::string& path) {
    std::error_code error;
    const auto from_here = std::filesystem::absolute(path, error);
    return error ? path : from_here.string();
}

}  // namespace

std::string id_of(std::string_view key) { return text::checksum(key); }

Folder::Folder(const std::string& path, bool trust_others) : path_(absolute(path)), trust_others_(trust_others) {}

/// Opens a folder. Returns a closed descriptor if there is none.
Expected<Descriptor> Folder::open(int at, const std::string& name, const std::string& path) const {
    const bool is_below = at != AT_FDCWD;
    Descriptor folder(openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_below ? O_NOFOLLOW : 0)));
    if (!folder.is_open() && errno == ENOENT) return folder;
    struct stat facts{};
    if (!folder.is_open() || fstat(folder.get(), &facts) != 0)
        return invalid_argument(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
    if (trust_others_) return folder;
    constexpr const char* remedy = "what lies there would be run; NORMJIT_CACHE_TRUST_OTHERS=1 allows it";
    if (!is_ours(facts))
        return unavailable(fmt::format("{}: belongs to another user ({}): {}", path, facts.st_uid, remedy));
    if (others_may_write(facts))
        return unavailable(
            fmt::format("{}: others may write to it (mode {:o}): {}", path, facts.st_mode & 07777, remedy));
    return folder;
}

/// With `use`, updates the time stamp.
Expected<std::string> Folder::read_bytes(int folder, const std::string& name, bool use) const {
    NORMJIT_TRY(const RegularFile file, open_regular(folder, name, O_NOFOLLOW));
    if (!trust_others_ && !is_ours(file.facts)) return invalid_argument("belongs to another user");
    if (!trust_others_ && others_may_write(file.facts)) return invalid_argument("others may write to it");
    if (file.facts.st_size > most_entry_bytes)
        return invalid_argument(fmt::format("has more than {} bytes", most_entry_bytes));
    if (use) {  // UTIME_NOW has only the resolution of the kernel's tick
        struct timespec times[2];
        clock_gettime(CLOCK_REALTIME, &times[0]);
        times[1] = times[0];
        futimens(file.descriptor.get(), times);
    }
    return read_at(file.descriptor, 0, file.facts.st_size);
}

Status Folder::add_files(const Descriptor& folder, const std::string& below, std::string_view start,
                         std::string_view end, std::vector<File>& files) const {
    const std::string path = path_ + "/" + below;
    NORMJIT_TRY(const auto names, names_in(folder, path.substr(0, path.size() - 1)));
    for (const std::string& name : names) {
        if (!name.starts_with(start) || !name.ends_with(end) || !is_entry_name(name)) continue;
        struct stat facts{};
        if (fstatat(folder.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
            if (errno == ENOENT) continue;  // the file has disappeared in the meantime
            return failed(fmt::format("{}{}: cannot be examined: {}", path, name, std::strerror(errno)));
        }
        if (!S_ISDIR(facts.st_mode)) files.push_back({below + name, facts.st_size, nanoseconds(facts.st_mtim)});
    }
    return {};
}

/// Entries outside the 256 folders come from earlier versions.
Expected<std::vector<Folder::File>> Folder::list(std::string_view end) const {
    std::vector<File> files;
    NORMJIT_TRY(const Descriptor all, open(AT_FDCWD, path_, path_));
    if (!all.is_open()) return files;
    NORMJIT_RETURN_IF_ERROR(add_files(all, "", "", end, files));
    NORMJIT_TRY(const auto names, names_in(all, path_));
    for (const std::string& name : names) {
        if (!is_folder_name(name)) continue;
        NORMJIT_TRY(const Descriptor folder, open(all.get(), name, path_ + "/" + name));
        if (folder.is_open()) NORMJIT_RETURN_IF_ERROR(add_files(folder, name + "/", "", end, files));
    }
    const int64_t latest = now() + hour;
    for (File& file : files) file.used = file.used > latest ? 0 : file.used;
    std::ranges::sort(
        files, [](const File& a, const File& b) { return a.used != b.used ? a.used > b.used : a.name < b.name; });
    return files;
}

Expected<std::vector<Folder::File>> Folder::files() const { return list(entry_end); }

Expected<Artifact> Folder::read(const File& file) const {
    NORMJIT_TRY(const Descriptor all, open(AT_FDCWD, path_, path_));
    NORMJIT_TRY(const std::string bytes, read_bytes(all.get(), file.name, false));
    NORMJIT_TRY(Artifact artifact, parse_artifact(bytes));
    if (name_of(artifact) != file.name) return invalid_argument("artifact: has the name of another artifact");
    return artifact;
}

Expected<std::optional<Artifact>> Folder::find(std::string_view key, const std::optional<std::string>& maker,
                                               const Damaged& damaged) const {
    const std::optional<Artifact> none;
    NORMJIT_TRY(const Descriptor all, open(AT_FDCWD, path_, path_));
    if (!all.is_open()) return none;
    const std::string id = id_of(key), below = id.substr(0, digits_of_folder);
    NORMJIT_TRY(const Descriptor folder, open(all.get(), below, path_ + "/" + below));
    if (!folder.is_open()) return none;
    std::vector<File> candidates;
    if (maker) {
        candidates.push_back({name_of(id, *maker), 0, 0});
    } else {
        NORMJIT_RETURN_IF_ERROR(add_files(folder, below + "/", id, entry_end, candidates));
        std::ranges::sort(candidates, std::greater(), &File::used);
    }
    for (const File& file : candidates) {
        const std::string name = file.name.substr(below.size() + 1);
        const auto read = [&]() -> Expected<Artifact> {
            NORMJIT_TRY(const std::string bytes, read_bytes(folder.get(), name, true));
            NORMJIT_TRY(Artifact found, parse_artifact(bytes));
            if (code_key(found) != key) return invalid_argument("artifact: has another key");
            return found;
        };
        const auto is_there = [&] { return faccessat(folder.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0; };
        auto artifact = read();
        const bool was_there = !artifact.ok() && is_there();
        if (was_there) artifact = read();  // another process may have written it in the meantime
        if (artifact.ok()) return std::optional(*std::move(artifact));
        if (was_there && is_there()) damaged(path_of(file), artifact.status());
    }
    return none;
}

Expected<Folder::File> Folder::keep(const Artifact& artifact) const {
    NORMJIT_RETURN_IF_ERROR(make_folder(path_));
    NORMJIT_TRY(const Descriptor all, open(AT_FDCWD, path_, path_));
    const File kept{name_of(artifact), 0, 0};
    const std::string below = kept.name.substr(0, digits_of_folder);
    const int made = mkdirat(all.get(), below.c_str(), 0700), error = errno;
    if (made == 0 && trust_others_) give_rights_of(all, below);
    NORMJIT_TRY(const Descriptor folder, open(all.get(), below, path_ + "/" + below));
    if (!folder.is_open())
        return invalid_argument(fmt::format("{}/{}: cannot be made: {}", path_, below, std::strerror(error)));
    const std::string name = kept.name.substr(below.size() + 1), bytes = serialise(artifact);
    NORMJIT_TRY(OutputFile file, OutputFile::create_in(folder.get(), name, path_of(kept), 0644));
    NORMJIT_RETURN_IF_ERROR(file.write(bytes));
    NORMJIT_RETURN_IF_ERROR(file.commit());
    return File{kept.name, static_cast<int64_t>(bytes.size()), now()};
}

bool Folder::has(const File& file) const {
    return faccessat(AT_FDCWD, path_of(file).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Status Folder::remove(const File& file) const {
    NORMJIT_TRY(const Descriptor all, open(AT_FDCWD, path_, path_));
    if (all.is_open() && unlinkat(all.get(), file.name.c_str(), 0) == 0) return {};
    return failed(fmt::format("cache: {}: cannot be removed: {}", path_of(file), std::strerror(errno)));
}

void Folder::remove(const File& file, Cleaned& cleaned) const {
    Status removed = remove(file);
    if (removed.ok()) {
        cleaned.files += 1;
        cleaned.bytes += file.bytes;
    } else if (cleaned.refused.ok() && has(file)) {
        cleaned.refused = std::move(removed);
    }
}

Folder::Cleaned Folder::clean(int64_t bytes, std::string_view kept) const {
    Cleaned cleaned;
    const auto leftovers = list(OutputFile::temporary_end), all = files();
    if (!leftovers.ok() || !all.ok()) return cleaned;
    const int64_t before = now() - hour;
    for (const File& file : *leftovers) {
        if (file.used < before) remove(file, cleaned);
    }
    int64_t sum = 0;
    for (const File& file : *all) {
        sum += file.bytes;
        if (sum > bytes && file.name != kept) remove(file, cleaned);
    }
    return cleaned;
}

}  // namespace normjit::cache
