// SPDX-License-Identifier: Apache-2.0
// Keeps artifacts in files, which any number of processes use at once without a lock. A file is complete when it
// appears under its name (OutputFile), never changes, and may disappear at any time. Its time stamp is the time of its
// last use.
//
//     <folder>/5f/5f0c...-none.kernel        <id_of(key)>-<maker>, in one of 256 folders named by the first two digits
//
// The content is run as code. The folder, its subfolders and the files must therefore belong to this process's
// effective user or to root, and nobody else may write to the folders. Otherwise every function fails with
// `unavailable`, unless others are trusted. Links below the folder are not followed. The folder may contain other
// files: without such a name they are neither listed nor removed.
#pragma once

#include "system/file_io.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cache {

/// Returns the name under which artifacts with this code_key() are found: 32 letters and digits.
std::string id_of(std::string_view key);

/// The size of the largest entry. A longer file is not read.
inline constexpr int64_t most_entry_bytes = int64_t{256} << 20;

class Folder {
  public:
    struct File {
        std::string name;  ///< the path below the folder
        int64_t bytes = 0;
        int64_t used = 0;  ///< nanoseconds since 1970
    };
    struct Cleaned {
        int64_t files = 0;
        int64_t bytes = 0;
        Status refused = {};  ///< why the first of the remaining entries could not be removed
    };

    /// A relative path refers to the current directory at the time of this call.
    explicit Folder(const std::string& path, bool trust_others = false);

    const std::string& path() const { return path_; }
    std::string path_of(const File& file) const { return path_ + "/" + file.name; }

    /// Finds the artifact with this key: made by the given maker or, if there is none, by any maker; the last used
    /// comes first. With a maker, the cost does not depend on the number of files. A file that is not such an entry is
    /// skipped, and reported to `damaged` with the reason.
    using Damaged = std::function<void(const std::string& path, const Status& reason)>;
    Expected<std::optional<Artifact>> find(std::string_view key, const std::optional<std::string>& maker,
                                           const Damaged& damaged) const;

    /// Writes an artifact, replacing one with the same key and maker. Creates the folder if needed, for this user only.
    /// If others are trusted, subfolders get the rights of the folder.
    Expected<File> keep(const Artifact& artifact) const;

    /// Returns all entries, the last used first; none if there is no folder. Fails if it cannot see all of them.
    Expected<std::vector<File>> files() const;
    Expected<Artifact> read(const File& file) const;
    /// False if another process has removed the file meanwhile.
    bool has(const File& file) const;
    Status remove(const File& file) const;
    /// Counts the file if it was removed, and keeps the reason if it could not be. Does neither if another process
    /// removed it.
    void remove(const File& file, Cleaned& cleaned) const;

    /// Removes the least recently used entries until the rest takes at most `bytes`, but never the one named `kept`.
    /// Also removes files that dead processes have left behind. Files with a time stamp in the future go first.
    Cleaned clean(int64_t bytes, std::string_view kept = {}) const;

  private:
    Expected<Descriptor> open(int at, const std::string& name, const std::string& path) const;
    Expected<std::string> read_bytes(int folder, const std::string& name, bool use) const;
    /// Adds the files of a folder whose names have this start and end. Puts `below` before their names.
    Status add_files(const Descriptor& folder, const std::string& below, std::string_view start, std::string_view end,
                     std::vector<File>& files) const;
    Expected<std::vector<File>> list(std::string_view end) const;

    const std::string path_;
    const bool trust_others_;
};

}  // namespace normjit::cache
