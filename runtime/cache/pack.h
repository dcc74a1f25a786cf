// SPDX-License-Identifier: Apache-2.0
// Many artifacts in one file, which products can ship. It is written once and then only read.
//
//     normjit-pack 2
// <artifacts, one after another>
//     <id> <offset> <bytes>                     a line for each entry, in the order of the ids
//     index <offset> <entries> <checksum>       checksum of the lines before it; numbers have 16 digits
#pragma once

#include "system/file_io.h"

#include "normjit/artifact.h"
#include "normjit/status.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace normjit::cache {

class Pack {
  public:
    /// Reads the index. An error names the path.
    static Expected<Pack> open(const std::string& path);

    const std::string& path() const { return path_; }
    size_t size() const { return index_.size(); }

    /// Finds the artifact with this key, made by any maker; nothing if there is none. A damaged artifact is an error.
    Expected<std::optional<Artifact>> find(std::string_view key) const;

    /// False if a build from other sources made its kernels, in which case find() never returns any. Reads a few of
    /// them.
    bool is_of_this_build() const;

    /// Calls function(id, bytes, artifact) for each entry. For a damaged entry, `artifact` is the error.
    template <class Function>
    void for_each(const Function& function) const {
        for (const auto& [id, place] : index_) function(id, place.bytes, read(id, place));
    }

  private:
    struct Place {
        int64_t offset = 0;
        int64_t bytes = 0;
    };

    Pack(std::string path, RegularFile file) : path_(std::move(path)), file_(std::move(file)) {}
    Expected<std::string> read_bytes(Place place) const;
    Expected<Artifact> read(std::string_view id, Place place) const;
    Status read_index();
    Status error(std::string_view reason) const;

    std::string path_;
    RegularFile file_;
    std::map<std::string, Place, std::less<>> index_;  ///< places by id
};

/// Writes a pack. If several artifacts have the same key, it takes the first.
Status write_pack(const std::string& path, std::span<const Artifact> artifacts);

}  // namespace normjit::cache
