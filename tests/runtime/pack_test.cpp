// SPDX-License-Identifier: Apache-2.0
// Tests packs of the kernel cache. An entry with any damage counts as missing.
#include "cache/pack.h"

#include "cache/folder.h"
#include "made_artifact.h"
#include "support/text.h"
#include "temporary_folder.h"

#include "normjit/serialise.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/stat.h>

using namespace normjit;
using namespace normjit::cache;
using namespace normjit::test;

TEST_CASE("a pack serves its entries") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "product.pack";
    std::vector<Artifact> entries;
    for (int cols = 1; cols <= 20; ++cols) entries.push_back(made("rmsnorm cols=" + std::to_string(cols)));
    entries.push_back(made("rmsnorm cols=1", "nvrtc-1.0"));  // this has the same key again
    REQUIRE(write_pack(path, entries).ok());
    const auto pack = Pack::open(path);
    REQUIRE_MESSAGE(pack.ok(), pack.status().message());
    CHECK(pack->size() == 20);
    for (size_t i = 0; i < 20; ++i) {
        const auto found = pack->find(code_key(entries[i]));
        REQUIRE(found.ok());
        REQUIRE(found->has_value());
        CHECK(**found == entries[i]);
        CHECK((*found)->maker == "none");
    }
    CHECK(!pack->find("another key")->has_value());
    int good = 0;
    pack->for_each([&](const std::string& id, int64_t bytes, const Expected<Artifact>& artifact) {
        good += artifact.ok() && id_of(code_key(*artifact)) == id && bytes > 1000;
    });
    CHECK(good == 20);

    REQUIRE(write_pack(path, {}).ok());
    CHECK(Pack::open(path)->size() == 0);
    CHECK(pack->find(code_key(entries[3]))->has_value());  // reads the file that was opened
}

TEST_CASE("every byte of a pack flipped or cut off: an error or the right entry") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "product.pack";
    const std::vector<Artifact> entries = {made("rmsnorm cols=8 out=dx"), made("rmsnorm cols=9 out=dgamma")};
    REQUIRE(write_pack(path, entries).ok());
    const std::string good = read_text(path);
    // True if the damage is noticed. Checks in any case that an entry that is found is correct.
    const auto notices = [&] {
        const auto pack = Pack::open(path);
        if (!pack.ok()) return true;
        bool all = true;
        for (const Artifact& entry : entries) {
            const auto found = pack->find(code_key(entry));
            all = all && found.ok() && found->has_value();
            if (found.ok() && found->has_value()) REQUIRE(**found == entry);
        }
        return !all;
    };
    CHECK(!notices());
    for (size_t i = 0; i < good.size(); ++i) {
        const FlippedByte flipped(path, i, 2);
        REQUIRE_MESSAGE(notices(), i);
    }
    for (size_t bytes = 0; bytes < good.size(); bytes += 997) {
        write_text(path, good.substr(0, bytes));
        REQUIRE_MESSAGE(notices(), bytes);
    }
    CHECK(Pack::open(temporary / "none").status().message() ==
          "pack: " + (temporary / "none") + ": No such file or directory");
    CHECK(Pack::open(temporary.path()).status().code() == Code::invalid_argument);
    REQUIRE(mkfifo((temporary / "pipe").c_str(), 0600) == 0);
    CHECK(Pack::open(temporary / "pipe").status().message() ==
          "pack: " + (temporary / "pipe") + ": is not a regular file");
}

TEST_CASE("an index of gigabytes is not read") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "sparse.pack";
    REQUIRE(write_pack(path, {}).ok());
    std::string bytes = read_text(path);
    const std::string last = bytes.substr(bytes.rfind("index "));
    std::filesystem::resize_file(path, uint64_t{6} << 30);
    std::ofstream(path, std::ios::binary | std::ios::app) << last;
    CHECK(Pack::open(path).status().message() == "pack: " + path + ": its index has more than 67108864 bytes");
}

TEST_CASE("a pack whose index gives an artifact another key is damaged") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "product.pack";
    const std::vector<Artifact> two = {made("rmsnorm cols=8"), made("rmsnorm cols=9")};
    REQUIRE(write_pack(path, two).ok());
    std::string bytes = read_text(path);
    const size_t index = bytes.rfind("\nindex ") + 1;
    const size_t first = bytes.rfind("checksum ", index) + std::string("checksum \n").size() + 32;
    const size_t second = bytes.find('\n', first) + 1;
    for (size_t i = 0; i < 32; ++i) std::swap(bytes[first + i], bytes[second + i]);
    const std::string lines = bytes.substr(first, index - first);
    bytes.replace(bytes.size() - 33, 32, text::checksum(lines));
    write_text(path, bytes);
    const auto pack = Pack::open(path);
    REQUIRE_MESSAGE(pack.ok(), pack.status().message());
    int damaged = 0;
    pack->for_each([&](const std::string&, int64_t, const Expected<Artifact>& artifact) {
        damaged += artifact.status().message() == "artifact: has another key";
    });
    CHECK(damaged == 2);
    CHECK(!pack->find(code_key(two[0])).ok());
}
