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
    /// Nothing set in `options` counts as not wanted: see fill_in().
    Store(const CacheOptions& options, const Log& log);

    /// Whether kernels for the target are looked for and kept at all.
    bool serves(const Target& target) const;

    std::optional<Artifact> find(const std::string& key);
    void keep(const std::string& key, const Artifact& artifact);

  private:
    std::optional<std::string> known_maker() const;

    const Log log_;
    const bool everything_;
    const int64_t most_bytes_;
    std::vector<Pack> packs_;
    std::optional<Folder> folder_;
    std::atomic<bool> writable_{true};
    mutable std::mutex mutex_;
    std::optional<std::string> maker_;  ///< of what this process compiled
};

/// The options with what the environment says for those that are not set.
Expected<CacheOptions> fill_in(CacheOptions options);

}  // namespace normjit::cache
