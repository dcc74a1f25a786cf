// SPDX-License-Identifier: Apache-2.0
#include "cache/store.h"

#include "environment.h"
#include "support/try.h"

#include "normjit/code_key.h"

#include <utility>

#include <fmt/format.h>

namespace normjit::cache {

namespace {

void warn(const Log& log, const std::string& message) { log(LogLevel::warning, ("cache: " + message).c_str()); }

}  // namespace

Store::Store(const CacheOptions& options, const Log& log)
    : log_(log), everything_(options.everything.value_or(false)), most_bytes_(options.bytes.value_or(0)) {
    for (const std::string& path : options.packs.value_or(std::vector<std::string>())) {
        auto pack = Pack::open(path);
        if (pack.ok()) {
            packs_.push_back(*std::move(pack));
        } else {
            warn(log_, pack.status().message() + "; going on without it");
        }
    }
    if (!options.folder.value_or("").empty()) folder_.emplace(*options.folder);
}

/// What Xbyak makes in 95 to 200 us takes 75 to 100 us from a file, of which 40 to 70 us are for the key (Xeon,
/// 2026-11-21), and a flushed file costs some milliseconds when it is written: that is not worth the disk.
bool Store::serves(const Target& target) const {
    return (folder_ || !packs_.empty()) && (everything_ || is_slow_to_compile(target));
}

std::optional<std::string> Store::known_maker() const {
    const std::lock_guard lock(mutex_);
    return maker_;
}

std::optional<Artifact> Store::find(const std::string& key) {
    for (const Pack& pack : packs_) {
        auto entry = pack.find(key);
        if (!entry.ok()) {
            warn(log_, entry.status().message());
        } else if (*entry) {
            return std::move((*entry)->artifact);
        }
    }
    if (!folder_) return std::nullopt;
    auto entry = folder_->find(key, known_maker(), [&](const std::string& path, const Status& reason) {
        warn(log_, fmt::format("{}: {}; the kernel is made again", path, reason.message()));
    });
    if (!entry) return std::nullopt;
    return std::move(entry->artifact);
}

void Store::keep(const std::string& key, const Artifact& artifact) {
    const std::string maker = maker_of(artifact);
    {
        const std::lock_guard lock(mutex_);
        maker_ = maker;
    }
    if (!folder_) return;
    const Status status = folder_->keep({key, maker, artifact});
    if (status.ok()) {
        folder_->clean(most_bytes_);
        writable_ = true;
    } else if (writable_.exchange(false)) {  // once, not for each kernel
        warn(log_, fmt::format("{}; kernels are kept in memory only", status.message()));
    }
}

Expected<CacheOptions> fill_in(CacheOptions options) {
    const auto& process = environment();
    if (!process.ok()) return process.status();
    if (!options.folder) options.folder = process->cache_folder;
    if (!options.bytes) options.bytes = process->cache_bytes;
    if (!options.everything) options.everything = process->cache_everything;
    if (!options.packs) options.packs = process->cache_packs;
    return options;
}

}  // namespace normjit::cache
