// SPDX-License-Identifier: Apache-2.0
// Entries, folders and packs of the kernel cache: whatever is wrong with them is a miss.
#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/pack.h"
#include "temporary_folder.h"

#include "normjit/code_key.h"
#include "normjit/compile.h"

#include <chrono>
#include <csignal>

#include <doctest/doctest.h>
#include <sys/resource.h>

using namespace normjit;
using namespace normjit::cache;
using namespace normjit::test;

namespace {

Entry entry_of(const std::string& text, const std::string& maker = std::string(no_maker)) {
    const Spec spec = *parse_spec(text);
    const Target target = *parse_target("x86-64-avx512");
    const Schedule schedule = heuristic(spec, target);
    return {*code_key(spec, schedule, target), maker, *compile(spec, schedule, target)};
}

/// Its only file, damaged and mended by hand.
std::string only_path(const Folder& folder) {
    const auto files = *folder.files();
    REQUIRE(files.size() == 1);
    return folder.path_of(files[0]);
}

struct Lookup {
    std::optional<Entry> entry;
    std::vector<std::string> damaged;
};

Lookup look_up(const Folder& folder, const std::string& key, const std::optional<std::string>& maker = {}) {
    Lookup result;
    result.entry = folder.find(
        key, maker, [&](const std::string&, const Status& reason) { result.damaged.push_back(reason.message()); });
    return result;
}

}  // namespace

TEST_CASE("a key says everything that the code depends on") {
    const Spec spec = *parse_spec("rmsnorm cols=40");
    const Target target = *parse_target("x86-64-avx512");
    const Schedule schedule = heuristic(spec, target);
    const std::string key = *code_key(spec, schedule, target);
    for (const std::string& part : {to_text(spec), to_text(schedule), to_text(target), std::string("backend x64")}) {
        CHECK(key.find(part) != key.npos);
    }
    CHECK(key.starts_with("generator " + std::to_string(generator_version) + " "));
    CHECK(key.find("row_mean") != key.npos);
    CHECK(*code_key(spec, schedule, target) == key);
    CHECK(*code_key(*parse_spec("rmsnorm cols=41"), schedule, target) != key);
    CHECK(*code_key(spec, *parse_schedule("cpu row_groups=7"), target) != key);
    CHECK(*code_key(spec, schedule, *parse_target("x86-64-avx512 l2=1")) != key);
    CHECK(code_key(spec, *parse_schedule("cpu row_groups=0"), target).status().code() == Code::invalid_argument);
}

TEST_CASE("an entry comes back as it was") {
    const Entry entry = entry_of("layernorm cols=33 x=bf16");
    const auto decoded = decode(encode(entry));
    REQUIRE_MESSAGE(decoded.ok(), decoded.status().message());
    CHECK(decoded->key == entry.key);
    CHECK(decoded->maker == entry.maker);
    CHECK(decoded->artifact == entry.artifact);
    CHECK(id_of(entry.key).size() == 32);
}

TEST_CASE("every byte changed, every end cut off, anything added: no entry") {
    const std::string good = encode(entry_of("rmsnorm cols=8 out=dx"));
    REQUIRE(decode(good).ok());
    int taken = 0;
    for (size_t i = 0; i < good.size(); ++i) {
        for (const int flip : {0x01, 0x20, 0xff}) {
            std::string bad = good;
            bad[i] = static_cast<char>(bad[i] ^ flip);
            taken += decode(bad).ok();
        }
        taken += decode(std::string_view(good).substr(0, i)).ok();
    }
    for (const char* more : {"\n", " ", "x", "checksum"}) taken += decode(good + more).ok();
    taken += decode(good + good).ok();
    CHECK(taken == 0);
    CHECK(decode("").status().message() == "cache entry: is no entry of this version");
    CHECK(decode(good.substr(0, good.size() - 1)).status().message() == "cache entry: the checksum does not match");
}

TEST_CASE("a folder gives back what it was given, and only that") {
    const TemporaryFolder temporary;
    const Folder folder(temporary / "new/cache");
    const Entry one = entry_of("rmsnorm cols=1"), two = entry_of("rmsnorm cols=2");
    CHECK(folder.files()->empty());
    CHECK(!look_up(folder, one.key).entry);
    REQUIRE(folder.keep(one).ok());
    REQUIRE(folder.keep(two).ok());
    REQUIRE(folder.keep(two).ok());
    CHECK(folder.files()->size() == 2);
    CHECK(look_up(folder, one.key).entry->artifact == one.artifact);
    CHECK(look_up(folder, two.key).entry->artifact == two.artifact);
    CHECK(look_up(folder, "another key").damaged.empty());
    namespace fs = std::filesystem;
    CHECK((fs::status(folder.path()).permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("every byte of a file flipped in turn is a miss that says why") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Entry entry = entry_of("rmsnorm cols=8 out=dx");
    REQUIRE(folder.keep(entry).ok());
    const std::string path = only_path(folder), good = read_text(path);
    for (size_t i = 0; i < good.size(); ++i) {
        const FlippedByte flipped(path, i, 4);
        const Lookup lookup = look_up(folder, entry.key);
        REQUIRE(!lookup.entry);
        REQUIRE(lookup.damaged.size() == 1);
    }
    CHECK(look_up(folder, entry.key).entry);
    write_text(path, "");
    CHECK(look_up(folder, entry.key).damaged == std::vector<std::string>{"cache entry: is no entry of this version"});
    write_text(path, encode(entry_of("rmsnorm cols=9")));
    CHECK(look_up(folder, entry.key).damaged == std::vector<std::string>{"cache entry: has the name of another one"});
    REQUIRE(folder.keep(entry).ok());
    CHECK(look_up(folder, entry.key).entry->artifact == entry.artifact);
    CHECK(temporary.entries() == 1);
}

TEST_CASE("of code by several makers, the one that is asked for, or the last used") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Entry older = entry_of("rmsnorm cols=8", "nvrtc-12.8"), newer = entry_of("rmsnorm cols=8", "nvrtc-13.0");
    REQUIRE(folder.keep(older).ok());
    REQUIRE(folder.keep(newer).ok());
    CHECK(look_up(folder, older.key, "nvrtc-12.8").entry->maker == "nvrtc-12.8");
    CHECK(look_up(folder, older.key, "nvrtc-13.0").entry->maker == "nvrtc-13.0");
    CHECK(!look_up(folder, older.key, "nvrtc-13.1").entry);
    CHECK(look_up(folder, older.key).entry->maker == "nvrtc-13.0");  // used after the other
    CHECK(look_up(folder, older.key, "nvrtc-12.8").entry);
    CHECK(look_up(folder, older.key).entry->maker == "nvrtc-12.8");
}

TEST_CASE("the least recently used go first when there are too many bytes") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    std::vector<Entry> entries;
    for (int cols = 1; cols <= 6; ++cols) {
        entries.push_back(entry_of("rmsnorm out=dx cols=10" + std::to_string(cols)));
        REQUIRE(folder.keep(entries.back()).ok());
    }
    const auto now = std::filesystem::file_time_type::clock::now();
    for (size_t i = 0; i < entries.size(); ++i) {  // the first was used last
        const std::string name = id_of(entries[i].key) + "-none.kernel";
        std::filesystem::last_write_time(temporary / name, now - std::chrono::minutes(10 * (i + 1)));
    }
    CHECK(look_up(folder, entries[4].key).entry);  // used now
    const auto files = *folder.files();
    REQUIRE(files.size() == 6);
    CHECK(files[0].name.starts_with(id_of(entries[4].key)));
    const Folder::Cleaned cleaned = folder.clean(files[0].bytes + files[1].bytes + files[2].bytes + 1);
    CHECK(cleaned.files == 3);
    CHECK(folder.files()->size() == 3);
    for (const size_t i : {0, 1, 4}) CHECK(look_up(folder, entries[i].key).entry);
    CHECK(folder.clean(0).files == 3);
    CHECK(temporary.entries() == 0);
}

TEST_CASE("what a process that died was writing goes after an hour") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    write_text(temporary / "a-none.kernel.77-0.tmp", "half of");
    write_text(temporary / "b-none.kernel.78-0.tmp", "half of");
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(temporary / "a-none.kernel.77-0.tmp", now - std::chrono::hours(2));
    CHECK(folder.files()->empty());
    CHECK(folder.clean(1 << 20).files == 1);
    CHECK(names_in(temporary.path()) == std::vector<std::string>{"b-none.kernel.78-0.tmp"});
}

TEST_CASE("a folder that cannot be written says so") {
    const TemporaryFolder temporary;
    const Entry entry = entry_of("rmsnorm cols=3");
    write_text(temporary / "file", "");
    CHECK(Folder(temporary / "file").keep(entry).message() ==
          (temporary / "file") + ": is no folder and cannot be made one");
    CHECK(!Folder(temporary / "file/below").keep(entry).ok());
    CHECK(!Folder("/proc/normjit").keep(entry).ok());  // which nobody can write, root neither
    CHECK(!look_up(Folder(temporary / "file"), entry.key).entry);
}

TEST_CASE("a disk that is full leaves nothing behind") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Entry entry = entry_of("rmsnorm cols=3");
    struct rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small{1000, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const Status status = folder.keep(entry);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, previous);
    CHECK(status.message().find("cannot be written: File too large") != std::string::npos);
    CHECK(temporary.entries() == 0);
    CHECK(folder.keep(entry).ok());
}

TEST_CASE("a pack serves its entries") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "product.pack";
    std::vector<Entry> entries;
    for (int cols = 1; cols <= 20; ++cols) entries.push_back(entry_of("rmsnorm cols=" + std::to_string(cols)));
    entries.push_back(entry_of("rmsnorm cols=1", "nvrtc-1.0"));  // the same key again
    REQUIRE(write_pack(path, entries).ok());
    const auto pack = Pack::open(path);
    REQUIRE_MESSAGE(pack.ok(), pack.status().message());
    CHECK(pack->size() == 20);
    for (size_t i = 0; i < 20; ++i) {
        const auto found = pack->find(entries[i].key);
        REQUIRE(found.ok());
        REQUIRE(found->has_value());
        CHECK((*found)->artifact == entries[i].artifact);
        CHECK((*found)->maker == "none");
    }
    CHECK(!pack->find("another key")->has_value());
    int good = 0;
    pack->for_each([&](const std::string& id, int64_t bytes, const Expected<Entry>& entry) {
        good += entry.ok() && id_of(entry->key) == id && bytes > 1000;
    });
    CHECK(good == 20);

    REQUIRE(write_pack(path, {}).ok());
    CHECK(Pack::open(path)->size() == 0);
    CHECK(pack->find(entries[3].key)->has_value());  // the file that was opened
}

TEST_CASE("every byte of a pack flipped or cut off: an error or the right entry") {
    const TemporaryFolder temporary;
    const std::string path = temporary / "product.pack";
    const std::vector<Entry> entries = {entry_of("rmsnorm cols=8 out=dx"), entry_of("rmsnorm cols=9 out=dgamma")};
    REQUIRE(write_pack(path, entries).ok());
    const std::string good = read_text(path);
    // Whether the damage is noticed; an entry that is found is right in any case.
    const auto notices = [&] {
        const auto pack = Pack::open(path);
        if (!pack.ok()) return true;
        bool all = true;
        for (const Entry& entry : entries) {
            const auto found = pack->find(entry.key);
            all = all && found.ok() && found->has_value();
            if (found.ok() && found->has_value()) REQUIRE((*found)->artifact == entry.artifact);
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
}
