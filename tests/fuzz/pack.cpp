// SPDX-License-Identifier: Apache-2.0
// Damages a pack of two artifacts as the bytes say, and opens it with its own footer and with a footer that matches the
// damaged index. If the pack opens, it gives each entry, or says what is wrong with it.
#include "cache/pack.h"

#include "fuzz.h"
#include "mutate.h"
#include "random_spec.h"
#include "support/text.h"

#include "normjit/compile.h"
#include "normjit/serialise.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

using namespace normjit;

namespace {

/// Returns the path of a file in memory that belongs to this process.
const std::string& path() {
    static const std::string name = fmt::format("/dev/shm/normjit-fuzz-{}", getpid());
    static const bool removed_at_exit = std::atexit([] { unlink(path().c_str()); }) == 0;
    static_cast<void>(removed_at_exit);
    return name;
}

std::string whole_pack() {
    std::vector<Artifact> artifacts;
    for (const char* text : {"layernorm cols=8", "rmsnorm cols=9 x=bf16"}) {
        const Spec spec = *parse_spec(text);
        const Target target = *parse_target("x86-64 backend=portable");
        artifacts.push_back(*compile(spec, heuristic(spec, target), target));
    }
    fuzz::require(cache::write_pack(path(), artifacts).ok(), "no pack can be written");
    std::ifstream file(path(), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

/// Counts the entries that could be read.
size_t check(std::string_view bytes) {
    std::ofstream file(path(), std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    const auto pack = cache::Pack::open(path());
    if (!pack) {
        fuzz::require_error(pack.status(), "pack: ");
        return 0;
    }
    size_t entries = 0, read = 0;
    pack->for_each([&](const std::string& id, int64_t, const Expected<Artifact>& artifact) {
        ++entries;
        if (!artifact) return fuzz::require(!artifact.status().message().empty(), "an error without a message", id);
        ++read;
        const auto found = pack->find(code_key(*artifact));
        fuzz::require(found.ok() && found->has_value() && **found == *artifact, "an entry is not found", id);
    });
    fuzz::require(entries == pack->size(), "not as many entries as it says");
    return read;
}

/// Returns `bytes` with other lines in place of the index, and a matching footer.
std::string with_index(std::string_view bytes, size_t at, std::string_view index) {
    return fmt::format("{}{}index {:016} {:016} {}\n", bytes.substr(0, at), index, at, std::ranges::count(index, '\n'),
                       text::checksum(index));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::string whole = whole_pack();
    static const size_t footer = whole.rfind("index "), index = std::stoull(whole.substr(footer + 6, 16));
    test::Random random(std::span(data, size));
    check(test::mutate(random, whole));
    check(with_index(whole, index, test::mutate(random, whole.substr(index, footer - index))));
    fuzz::require(check(with_index(whole, index, whole.substr(index, footer - index))) == 2, "a whole pack is refused");
    return 0;
}
