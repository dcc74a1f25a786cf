// SPDX-License-Identifier: Apache-2.0
// Compiled kernels that outlive a process: packs, then the user's folder. Whatever is wrong with them is a miss and a
// line in the log. Thread safe.
//
// An entry must match the whole key, which is known without a compiler. Of code by NVRTC the version matters as well,
// and is a question of when: opening NVRTC takes 11 ms (13.0, 2026-11-21) and may not be possible, so until this
// process had to compile something, the entry that was last used is good, whichever version made it; from then on only
// one by the version that is there. Packs are what somebody chose to ship: their entries are good in either case.
#pragma once

#include "cache/folder.h"
#include "cache/pack.h"

#include "normjit/artifact.h"
#include "normjit/engine.h"
#include "normjit/log.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cache {

class Store {
  public:
    /// Nothing set in `options` counts as not wanted: see fill_in(). For kernels of one target.
    Store(const CacheOptions& options, const Target& target, const Log& log);

    /// Whether kernels are looked for and kept at all.
    bool is_used() const;

    std::optional<Artifact> find(const std::string& key);
    void keep(const Artifact& artifact);

  private:
    std::optional<std::string> known_maker() const;
    void clean_now_and_then(const Folder::File& kept);
    void warn(const std::string& message) const;
    void warn_once(const Status& status);

    const Log log_;
    const bool is_wanted_;  ///< for such a target
    const int64_t most_bytes_;
    std::vector<Pack> packs_;
    std::optional<Folder> folder_;
    std::atomic<bool> folder_works_{true};
    mutable std::mutex mutex_;
    std::optional<std::string> maker_;  ///< of all code, or of what this process compiled
    int64_t bytes_since_cleaning_ = 0;
};

/// The options with what the environment says for those that are not set.
Expected<CacheOptions> fill_in(CacheOptions options);

}  // namespace normjit::cache
