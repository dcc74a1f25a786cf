// SPDX-License-Identifier: Apache-2.0
#include "problem/cold_memory.h"

#include "device/cpu/memory.h"
#include "device/cpu/system.h"
#include "system/environment.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/core.h>

namespace normjit::cli {
namespace {

constexpr int64_t page = 4096;
constexpr int64_t touched_at_once = 2 << 20;

/// Additional pages, so that each use of the block can start at another page.
constexpr int64_t slack_pages = 8192;

}  // namespace

int64_t cache_bytes(const Target& target, const std::string& sys) {
    std::set<std::string> seen;
    int64_t sum = 0;
    for (const int processor : cpu::usable_processors()) {
        for (int i = 0; i < 10; ++i) {
            const std::string cache = fmt::format("{}/cpu{}/cache/index{}/", sys, processor, i);
            const std::string level = cpu::first_line(cache + "level");
            if (level.empty()) break;
            if (level == "1" || !seen.insert(level + " " + cpu::first_line(cache + "shared_cpu_list")).second) continue;
            if (const auto bytes = parse_bytes(cpu::first_line(cache + "size"))) sum += *bytes;
        }
    }
    return sum > 0 ? sum : target.cpu.cores * target.cpu.l2_bytes + target.cpu.l3_bytes;
}

ColdMemory ColdMemory::of_machine(const Target& target) { return {2 * cache_bytes(target), cpu::spare_memory()}; }

Expected<char*> ColdMemory::take(int64_t bytes, bench::Team& team) {
    if (const int64_t needed = bytes + slack_pages * page; block_.bytes() < needed) {
        const int64_t usual = std::min(turn_bytes_ + turn_bytes_ / 8, most_bytes_) + slack_pages * page;
        block_ = Buffer();  // freed before more memory is allocated
        auto block = Buffer::allocate(std::max(needed, usual));
        if (!block.ok()) return block.status();
        block_ = *std::move(block);
        auto* begin = static_cast<char*>(block_.data());
        team.run([&](int thread) {
            for (int64_t i = thread * touched_at_once; i < block_.bytes(); i += team.size() * touched_at_once) {
                const int64_t end = std::min(i + touched_at_once, block_.bytes());
                for (int64_t at = i; at < end; at += page) begin[at] = 0;  // the system sets the rest to 0
            }
        });
    }
    // Each start is far from the last one, and is used once.
    const int64_t shift = taken_++ * 5087 % slack_pages * page;
    auto* begin = static_cast<char*>(block_.data());
    const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % page);
    return begin + (page - misplaced) % page + shift;
}

}  // namespace normjit::cli
