// SPDX-License-Identifier: Apache-2.0
// Many entries in one file that is written once and then only read: what a product ships.
//
//     normjit-pack 1
//     <entries, one after the other>
//     <id> <offset> <bytes>                     a line for each entry, in the order of the ids
//     index <offset> <entries> <checksum>       of the lines before it; numbers of 16 digits
#pragma once

#include "cache/entry.h"

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
    /// Reads the index. The error names the path.
    static Expected<Pack> open(const std::string& path);
    Pack(Pack&& other) noexcept;
    Pack& operator=(Pack&&) = delete;
    ~Pack();

    const std::string& path() const { return path_; }
    size_t size() const { return index_.size(); }

    /// The entry of this key, whoever made it; nothing when there is none. A damaged entry is an error.
    Expected<std::optional<Entry>> find(std::string_view key) const;

    /// function(id, bytes, entry) for each in turn; the entry may be what is wrong with it.
    template <class Function>
    void for_each(const Function& function) const {
        for (const auto& [id, place] : index_) function(id, place.bytes, read(place));
    }

  private:
    struct Place {
        int64_t offset = 0;
        int64_t bytes = 0;
    };

    Pack(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    Expected<std::string> read_bytes(Place place) const;
    Expected<Entry> read(Place place) const;
    Status read_index();
    Status error(std::string_view reason) const;

    std::string path_;
    int descriptor_;
    std::map<std::string, Place, std::less<>> index_;  ///< by id
};

/// Writes a pack. Of entries with the same key the first is taken.
Status write_pack(const std::string& path, std::span<const Entry> entries);

}  // namespace normjit::cache
