// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include "support/try.h"
#include "system/environment.h"

#include "normjit/serialise.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::cache {

Store::Store(const CacheOptions& options, const Target& target, const Log& log)
    : log_(log),
      is_wanted_(options.everything.value_or(false) || is_slow_to_compile(target)),
      most_bytes_(options.bytes.value_or(0)) {
    for (const std::string& path : options.packs.value_or(std::vector<std::string>())) {
        auto pack = Pack::open(path);
        if (pack.ok()) {
            packs_.push_back(*std::move(pack));
        } else {
            warn(pack.status().message() + "; going on without it");
        }
    }
    const std::string folder = options.folder.value_or("");
    if (!folder.empty()) folder_.emplace(folder, options.trust_others.value_or(false));
    if (!target.is_cuda()) maker_ = no_maker;
}

void Store::warn(const std::string& message) const { log_(LogLevel::warning, ("cache: " + message).c_str()); }

/// Warns once, rather than for each kernel.
void Store::warn_once(const Status& status) {
    if (folder_works_.exchange(false)) warn(fmt::format("{}; kernels are kept in memory only", status.message()));
}

/// Called when no pack has a kernel. Says once which packs never will.
void Store::warn_of_packs() {
    if (packs_.empty() || packs_are_checked_.exchange(true)) return;
    for (const Pack& pack : packs_) {
        if (!pack.is_of_this_build())
            warn(fmt::format("pack: {}: its kernels were made by another build of normjit; this one does not use them",
                             pack.path()));
    }
}

/// Code from Xbyak is made almost as fast as it is read, and writing it takes milliseconds, so it is not kept in the
/// folder (NOTES N-504). Packs are searched nevertheless, because somebody chose to ship them.
bool Store::is_used() const { return !packs_.empty() || (folder_ && is_wanted_); }

std::optional<std::string> Store::known_maker() const {
    const std::lock_guard lock(mutex_);
    return maker_;
}

std::optional<Artifact> Store::find(const std::string& key, Where where) {
    for (const Pack& pack : packs_) {
        auto artifact = pack.find(key);
        if (!artifact.ok()) {
            warn(artifact.status().message());
        } else if (*artifact) {
            return *std::move(artifact);
        }
    }
    warn_of_packs();
    if (!folder_ || (where != Where::everywhere && !is_wanted_)) return std::nullopt;
    auto found = folder_->find(key, known_maker(), [&](const std::string& path, const Status& reason) {
        warn(fmt::format("{}: {}; the kernel is made again", path, reason.message()));
    });
    if (found.ok()) return *std::move(found);
    warn_once(found.status());
    return std::nullopt;
}

void Store::keep(const Artifact& artifact) {
    {
        const std::lock_guard lock(mutex_);
        maker_ = artifact.maker;
    }
    if (!folder_ || !is_wanted_) return;
    if (static_cast<int64_t>(artifact.code.size()) > most_bytes_)
        return warn_once(invalid_argument(fmt::format("a kernel of {} bytes exceeds the limit of the folder ({})",
                                                      artifact.code.size(), most_bytes_)));
    const auto kept = folder_->keep(artifact);
    if (!kept.ok()) return warn_once(kept.status());
    folder_works_ = true;
    clean_now_and_then(*kept);
}

/// Searching a folder takes long. It is therefore done only after many bytes were kept, and also at random, so that it
/// sometimes happens even if each process keeps a single kernel.
void Store::clean_now_and_then(const Folder::File& kept) {
    constexpr int64_t share = 64;
    {
        const std::lock_guard lock(mutex_);
        bytes_since_cleaning_ += kept.bytes;
        const bool by_chance = kept.used / 1000 % share == 0;
        if (bytes_since_cleaning_ <= most_bytes_ / share && !by_chance) return;
        bytes_since_cleaning_ = 0;
    }
    folder_->clean(most_bytes_, kept.name);
}

Expected<CacheOptions> fill_in(CacheOptions options) {
    const auto& process = environment();
    if (!process.ok()) return process.status();
    if (!options.folder) options.folder = process->cache_folder;
    if (!options.bytes) options.bytes = process->cache_bytes;
    if (!options.everything) options.everything = process->cache_everything;
    if (!options.trust_others) options.trust_others = process->cache_trust_others;
    if (!options.packs) options.packs = process->cache_packs;
    return options;
}

}  // namespace normjit::cache
