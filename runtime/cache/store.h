// SPDX-License-Identifier: Apache-2.0
// Compiled kernels that outlive a process: in packs, and then in the user's folder. If anything is wrong with an entry,
// it counts as missing, and the log says so. Thread safe.
//
// An entry must match the whole key, which is known without a compiler. The version of NVRTC also affects its code, but
// opening NVRTC takes time and may be impossible. Until this process has to compile something, it therefore accepts the
// last used entry of any version; from then on, it accepts only entries of the present version. Entries of packs are
// always accepted, because somebody chose to ship them.
#pragma once

#include "cache/folder.h"
#include "cache/pack.h"

#include "normjit/artifact.h"
#include "normjit/log.h"
#include "normjit/options.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace normjit::cache {

class Store {
  public:
    /// Makes a store for kernels of one target. An option that is not set counts as unwanted: see fill_in().
    Store(const CacheOptions& options, const Target& target, const Log& log);

    /// True if searching for kernels may be faster than compiling them.
    bool is_used() const;

    /// `faster_than_compiling`: in packs, and in the folder if it keeps kernels of this target. `everywhere`: also in a
    /// folder that somebody else filled.
    enum class Where { faster_than_compiling, everywhere };
    std::optional<Artifact> find(const std::string& key, Where where);
    /// Does nothing if kernels of this target are not to be kept.
    void keep(const Artifact& artifact);

  private:
    std::optional<std::string> known_maker() const;
    void clean_now_and_then(const Folder::File& kept);
    void warn(const std::string& message) const;
    void warn_once(const Status& status);
    void warn_of_packs();

    const Log log_;
    const bool is_wanted_;  ///< true if the options ask to keep kernels of this target
    const int64_t most_bytes_;
    std::vector<Pack> packs_;
    std::atomic<bool> packs_are_checked_{false};
    std::optional<Folder> folder_;
    std::atomic<bool> folder_works_{true};
    mutable std::mutex mutex_;
    std::optional<std::string> maker_;  ///< the maker of all code for the target, or of the code that this process has
                                        ///< compiled
    int64_t bytes_since_cleaning_ = 0;
};

/// Takes the options that are not set from the environment.
Expected<CacheOptions> fill_in(CacheOptions options);

}  // namespace normjit::cache
