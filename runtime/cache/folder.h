// SPDX-License-Identifier: Apache-2.0
// Artifacts as files, which any number of processes use at once without a lock: a file appears complete under its name
// (OutputFile), is never changed, and may be gone at any time. Its time stamp is that of its last use.
//
//     <folder>/5f/5f0c...-none.kernel        <id_of(key)>-<maker>, in one of 256 folders by the first two digits
//
// What lies there is run. So the folder, its folders and the files must belong to this process's effective user or to
// root, and nobody else may write to the folders; otherwise every function fails with `unavailable`, unless others are
// trusted. No link below the folder is followed.
#pragma once

#include "file_io.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cache {

/// The name under which artifacts of this code_key() are found, of 32 letters and digits.
std::string id_of(std::string_view key);

/// No entry is larger: what is longer is not read.
inline constexpr int64_t most_entry_bytes = int64_t{256} << 20;

class Folder {
  public:
    struct File {
        std::string name;  ///< below the folder
        int64_t bytes = 0;
        int64_t used = 0;  ///< nanoseconds since 1970
    };
    struct Cleaned {
        int64_t files = 0;
        int64_t bytes = 0;
    };

    /// A relative path is taken from where the process stands now.
    explicit Folder(const std::string& path, bool trust_others = false);

    const std::string& path() const { return path_; }
    std::string path_of(const File& file) const { return path_ + "/" + file.name; }

    /// The artifact of this key, by the maker that is asked for, or without one by any, the last used first. With a
    /// maker it costs the same however many files there are. A file that is no such entry is told to `damaged`, with
    /// the reason, and passed over.
    using Damaged = std::function<void(const std::string& path, const Status& reason)>;
    Expected<std::optional<Artifact>> find(std::string_view key, const std::optional<std::string>& maker,
                                           const Damaged& damaged) const;

    /// Writes an artifact, in place of one of the same key and maker, and creates the folder if need be.
    Expected<File> keep(const Artifact& artifact) const;

    /// All entries, the last used first. None when there is no folder.
    Expected<std::vector<File>> files() const;
    Expected<Artifact> read(const File& file) const;
    bool remove(const File& file) const;

    /// Removes the least recently used entries until the rest takes at most `bytes`, but never the one named `kept`,
    /// and what processes that died have left behind. A time stamp of tomorrow is no last use: such files go first.
    Cleaned clean(int64_t bytes, std::string_view kept = {}) const;

  private:
    Expected<Descriptor> open(int at, const std::string& name, const std::string& path) const;
    Expected<std::string> read_bytes(int folder, const std::string& name, bool use) const;
    /// Of a folder's files whose names start and end so; `below`: before their names.
    void add_files(const Descriptor& folder, const std::string& below, std::string_view start, std::string_view end,
                   std::vector<File>& files) const;
    Expected<std::vector<File>> list(std::string_view end) const;

    const std::string path_;
    const bool trust_others_;
};

}  // namespace normjit::cache
