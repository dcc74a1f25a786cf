// SPDX-License-Identifier: Apache-2.0
// Entries as files of one folder, which any number of processes use at once without a lock: a file appears complete
// under its name (OutputFile), is never changed, and may be gone at any time. Its time stamp is that of its last use.
#pragma once

#include "cache/entry.h"

#include "normjit/status.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cache {

/// No entry is larger: what is longer is not read.
inline constexpr size_t most_entry_bytes = size_t{256} << 20;

class Folder {
  public:
    struct File {
        std::string name;
        int64_t bytes = 0;
        std::filesystem::file_time_type used;
    };
    struct Cleaned {
        int64_t files = 0;
        int64_t bytes = 0;
    };

    explicit Folder(std::string path) : path_(std::move(path)) {}

    const std::string& path() const { return path_; }
    std::string path_of(const File& file) const { return path_ + "/" + file.name; }

    /// The entry of this key, by the maker that is asked for, or without one by any, the last used first. A file that
    /// is no such entry is told to `damaged`, with the reason, and passed over.
    using Damaged = std::function<void(const std::string& path, const Status& reason)>;
    std::optional<Entry> find(std::string_view key, const std::optional<std::string>& maker,
                              const Damaged& damaged) const;

    /// Writes an entry, in place of one of the same key and maker, and creates the folder if need be.
    Status keep(const Entry& entry) const;

    /// All entries, the last used first. None when there is no folder.
    Expected<std::vector<File>> files() const;
    Expected<Entry> read(const File& file) const;
    bool remove(const File& file) const;

    /// Removes the least recently used entries until the rest takes at most `bytes`, and what processes that died
    /// have left behind.
    Cleaned clean(int64_t bytes) const;

  private:
    Expected<std::vector<File>> list(std::string_view begin, std::string_view end) const;
    Cleaned remove_leftovers() const;

    const std::string path_;
};

}  // namespace normjit::cache
