// SPDX-License-Identifier: Apache-2.0
// Tests folders of the kernel cache. An entry with any damage counts as missing.
#include "cache/folder.h"
#include "cache/request.h"
#include "made_artifact.h"
#include "temporary_folder.h"

#include "normjit/serialise.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace normjit;
using namespace normjit::cache;
using namespace normjit::test;

namespace {

/// Returns the folder's only file, for tests that damage it.
std::string only_path(const Folder& folder) {
    const auto files = *folder.files();
    REQUIRE(files.size() == 1);
    return folder.path_of(files[0]);
}

/// Returns the name of an entry that a process has not finished.
std::string unfinished(const std::string& digit) {
    std::string id;
    for (int i = 0; i < 32; ++i) id += digit;
    return id + "-none.kernel.0123456789abcdef.tmp";
}

struct Lookup {
    std::optional<Artifact> artifact;
    std::vector<std::string> damaged;
    Status refusal = {};
};

Lookup look_up(const Folder& folder, const Artifact& like, const std::optional<std::string>& maker = {}) {
    Lookup result;
    auto found = folder.find(code_key(like), maker, [&](const std::string&, const Status& reason) {
        result.damaged.push_back(reason.message());
    });
    if (found.ok()) result.artifact = *std::move(found);
    if (!found.ok()) result.refusal = found.status();
    return result;
}

}  // namespace

TEST_CASE("a folder gives back what it was given, and only that") {
    const TemporaryFolder temporary;
    const Folder folder(temporary / "new/cache");
    const Artifact one = made("rmsnorm cols=1"), two = made("rmsnorm cols=2");
    CHECK(folder.files()->empty());
    CHECK(!look_up(folder, one).artifact);
    REQUIRE(folder.keep(one).ok());
    REQUIRE(folder.keep(two).ok());
    REQUIRE(folder.keep(two).ok());
    CHECK(folder.files()->size() == 2);
    CHECK(look_up(folder, one).artifact == one);
    CHECK(look_up(folder, two).artifact == two);
    CHECK(look_up(folder, made("rmsnorm cols=3")).damaged.empty());
    namespace fs = std::filesystem;
    for (const auto& each : fs::recursive_directory_iterator(folder.path())) {
        if (each.is_directory()) CHECK((each.status().permissions() & fs::perms::mask) == fs::perms::owner_all);
    }
    CHECK((fs::status(folder.path()).permissions() & fs::perms::mask) == fs::perms::owner_all);
}

TEST_CASE("users who trust each other share a folder that they all may write to") {
    const TemporaryFolder temporary;
    REQUIRE(chmod(temporary.path().c_str(), 02770) == 0);
    const mode_t mask = umask(077);
    const Folder folder(temporary.path(), true);
    const auto kept = folder.keep(made("rmsnorm cols=1"));
    umask(mask);
    REQUIRE(kept.ok());
    struct stat facts{};
    REQUIRE(stat((temporary / kept->name.substr(0, 2)).c_str(), &facts) == 0);
    CHECK((facts.st_mode & 07777) == 02770);
}

TEST_CASE("a folder that others may write to is refused, unless they are trusted") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path()), trusting(temporary.path(), true);
    const Artifact entry = made("rmsnorm cols=1");
    REQUIRE(folder.keep(entry).ok());
    const std::string below = std::filesystem::path(only_path(folder)).parent_path();
    for (const std::string& open : {temporary.path(), below}) {
        for (const mode_t mode : {0777, 0770, 01777}) {
            CAPTURE(mode);
            REQUIRE(chmod(open.c_str(), mode) == 0);
            for (const auto& maker : {std::optional<std::string>("none"), std::optional<std::string>()}) {
                const Lookup lookup = look_up(folder, entry, maker);
                CHECK(!lookup.artifact);
                CHECK(lookup.refusal.code() == Code::unavailable);
                CHECK(lookup.refusal.message().starts_with(open + ": others may write to it (mode "));
                CHECK(look_up(trusting, entry, maker).artifact == entry);
            }
            CHECK(folder.keep(entry).status().code() == Code::unavailable);
            CHECK(folder.files().status().code() == Code::unavailable);
        }
        REQUIRE(chmod(open.c_str(), 0755) == 0);
    }
    CHECK(look_up(folder, entry).artifact == entry);
    const std::string file = only_path(folder);
    for (const mode_t mode : {0666, 0620}) {
        REQUIRE(chmod(file.c_str(), mode) == 0);
        CHECK(look_up(folder, entry).damaged == std::vector<std::string>{"others may write to it"});
        CHECK(look_up(trusting, entry).artifact == entry);
    }
    const mode_t mask = umask(0);
    CHECK(folder.keep(entry).ok());
    umask(mask);
    CHECK(look_up(folder, entry).artifact == entry);  // whatever the umask of the process was
    if (geteuid() != 0) return;                       // only root can give files away
    constexpr uid_t other = 12345;
    REQUIRE(chown(file.c_str(), other, other) == 0);
    CHECK(look_up(folder, entry).damaged == std::vector<std::string>{"belongs to another user"});
    REQUIRE(chown(file.c_str(), 0, 0) == 0);
    for (const std::string& given : {temporary.path(), below}) {
        REQUIRE(chown(given.c_str(), other, other) == 0);
        CHECK(look_up(folder, entry).refusal.message().starts_with(given + ": belongs to another user (12345): "));
        REQUIRE(chown(given.c_str(), 0, 0) == 0);
    }
    CHECK(look_up(folder, entry).artifact == entry);
}

TEST_CASE("others may not write to the folders that are made, whatever the umask of the process is") {
    const TemporaryFolder temporary;
    const mode_t mask = umask(0);
    const bool is_kept = Folder(temporary / "a/b/c").keep(made("rmsnorm cols=1")).ok();
    umask(mask);
    REQUIRE(is_kept);
    for (const char* made_folder : {"a", "a/b", "a/b/c"}) {
        struct stat facts{};
        REQUIRE(stat((temporary / made_folder).c_str(), &facts) == 0);
        CHECK((facts.st_mode & 022) == 0);
    }
}

TEST_CASE("a link, a pipe or a huge file in place of an entry is a miss and is replaced") {
    const TemporaryFolder temporary;
    const Folder folder(temporary / "cache");
    const Artifact entry = made("rmsnorm cols=1");
    REQUIRE(folder.keep(entry).ok());
    const std::string path = only_path(folder), moved = temporary / "elsewhere";
    std::filesystem::rename(path, moved);
    const auto is_repaired = [&](const std::string& reason) {
        for (const auto& maker : {std::optional<std::string>("none"), std::optional<std::string>()}) {
            const Lookup lookup = look_up(folder, entry, maker);
            CHECK(!lookup.artifact);
            CHECK(lookup.damaged == std::vector<std::string>{reason});
        }
        CHECK(folder.keep(entry).ok());
        CHECK(look_up(folder, entry).artifact == entry);
        std::filesystem::remove(path);
    };
    std::filesystem::create_symlink(moved, path);
    is_repaired("is a symbolic link, and links are not followed here");
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    is_repaired("is not a regular file");
    write_text(path, "");
    std::filesystem::resize_file(path, uint64_t{1} << 40);  // the file is sparse
    is_repaired("has more than 268435456 bytes");
}

TEST_CASE("time stamps in the future do not count as a last use") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const auto tomorrow = std::filesystem::file_time_type::clock::now() + std::chrono::hours(24);
    int64_t bytes = 0;
    for (int cols = 1; cols <= 3; ++cols) bytes += folder.keep(made("rmsnorm cols=" + std::to_string(cols)))->bytes;
    const auto files = *folder.files();
    for (const auto& file : files) std::filesystem::last_write_time(folder.path_of(file), tomorrow);
    write_text(temporary / unfinished("a"), "half of");
    std::filesystem::last_write_time(temporary / unfinished("a"), tomorrow);
    const Artifact entry = made("rmsnorm cols=4");
    const auto kept = folder.keep(entry);
    // Removes one of three entries and a half-written file.
    CHECK(folder.clean(bytes + kept->bytes - 1, kept->name).files == 2);
    CHECK(look_up(folder, entry).artifact == entry);
    CHECK(folder.clean(1, kept->name).files == 2);
    CHECK(folder.files()->size() == 1);
    CHECK(look_up(folder, entry).artifact == entry);
}

TEST_CASE("files left behind by a process of the same number do not prevent writing") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Artifact entry = made("rmsnorm cols=1");
    const std::string path = temporary / folder.keep(entry)->name;
    std::filesystem::remove(path);
    for (int i = 0; i <= 100; ++i)
        write_text(path + "." + std::to_string(getpid()) + "-" + std::to_string(i) + ".tmp", "half of");
    CHECK(folder.keep(entry).ok());
}

TEST_CASE("every byte of a file flipped in turn is a miss that says why") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Artifact entry = made("rmsnorm cols=8 out=dx");
    REQUIRE(folder.keep(entry).ok());
    const std::string path = only_path(folder), good = read_text(path);
    for (size_t i = 0; i < good.size(); ++i) {
        const FlippedByte flipped(path, i, 4);
        const Lookup lookup = look_up(folder, entry);
        REQUIRE(!lookup.artifact);
        REQUIRE(lookup.damaged.size() == 1);
    }
    CHECK(look_up(folder, entry).artifact);
    write_text(path, "");
    CHECK(look_up(folder, entry).damaged ==
          std::vector<std::string>{"artifact: version: does not start with 'normjit-artifact 1'"});
    write_text(path, serialise(made("rmsnorm cols=9")));
    CHECK(look_up(folder, entry).damaged == std::vector<std::string>{"artifact: has another key"});
    REQUIRE(folder.keep(entry).ok());
    CHECK(look_up(folder, entry).artifact == entry);
    CHECK(folder.files()->size() == 1);
}

TEST_CASE("with code by several makers, the requested one is found, or the last used") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Artifact older = made("rmsnorm cols=8", "nvrtc-12.8"), newer = made("rmsnorm cols=8", "nvrtc-13.0");
    REQUIRE(folder.keep(older).ok());
    REQUIRE(folder.keep(newer).ok());
    CHECK(look_up(folder, older, "nvrtc-12.8").artifact->maker == "nvrtc-12.8");
    CHECK(look_up(folder, older, "nvrtc-13.0").artifact->maker == "nvrtc-13.0");
    CHECK(!look_up(folder, older, "nvrtc-13.1").artifact);
    CHECK(look_up(folder, older).artifact->maker == "nvrtc-13.0");  // this one was used later
    CHECK(look_up(folder, older, "nvrtc-12.8").artifact);
    CHECK(look_up(folder, older).artifact->maker == "nvrtc-12.8");
}

TEST_CASE("the least recently used go first when there are too many bytes") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    std::vector<Artifact> entries;
    for (int cols = 1; cols <= 6; ++cols) {
        entries.push_back(made("rmsnorm out=dx cols=10" + std::to_string(cols)));
        REQUIRE(folder.keep(entries.back()).ok());
    }
    const auto now = std::filesystem::file_time_type::clock::now();
    for (size_t i = 0; i < entries.size(); ++i) {  // the first one was used last
        const std::string id = id_of(code_key(entries[i])), name = id.substr(0, 2) + "/" + id + "-none.kernel";
        std::filesystem::last_write_time(temporary / name, now - std::chrono::minutes(10 * (i + 1)));
    }
    CHECK(look_up(folder, entries[4]).artifact);  // this counts as a use
    const auto files = *folder.files();
    REQUIRE(files.size() == 6);
    CHECK(files[0].name.substr(3).starts_with(id_of(code_key(entries[4]))));
    const Folder::Cleaned cleaned = folder.clean(files[0].bytes + files[1].bytes + files[2].bytes + 1);
    CHECK(cleaned.files == 3);
    CHECK(folder.files()->size() == 3);
    for (const size_t i : {0, 1, 4}) CHECK(look_up(folder, entries[i]).artifact);
    CHECK(folder.clean(0).files == 3);
    CHECK(folder.files()->empty());
}

TEST_CASE("a dead process's unfinished file is removed after an hour") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    for (const char* digit : {"a", "b"}) write_text(temporary / unfinished(digit), "half of");
    const auto now = std::filesystem::file_time_type::clock::now();
    std::filesystem::last_write_time(temporary / unfinished("a"), now - std::chrono::hours(2));
    CHECK(folder.files()->empty());
    CHECK(folder.clean(1 << 20).files == 1);
    CHECK(names_in(temporary.path()) == std::vector<std::string>{unfinished("b")});
}

TEST_CASE("files that are not the cache's are neither listed nor removed") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const std::string id(32, 'a');
    std::filesystem::create_directory(temporary / "aa");
    std::vector<std::string> paths;
    for (const std::string& name : {std::string("notes.tmp"), std::string("linux.kernel"), id + ".kernel",
                                    id + "a-none.kernel", id + "-none.tmp", id + "-none.kernel.bak"}) {
        for (const char* below : {"", "aa/"}) {
            paths.push_back(temporary / (below + name));
            write_text(paths.back(), "precious");
            std::filesystem::last_write_time(paths.back(),
                                             std::filesystem::file_time_type::clock::now() - std::chrono::hours(9));
        }
    }
    CHECK(folder.files()->empty());
    CHECK(folder.clean(0).files == 0);
    for (const std::string& path : paths) CHECK_MESSAGE(std::filesystem::exists(path), path);
}

TEST_CASE("a process without descriptors sees all entries or an error") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    for (int cols = 1; cols <= 3; ++cols) REQUIRE(folder.keep(made("rmsnorm cols=" + std::to_string(cols))).ok());
    struct rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    int errors = 0, complete = 0;
    for (rlim_t most = 0; complete == 0 && most < before.rlim_cur; ++most) {
        struct rlimit few = before;
        few.rlim_cur = most;
        REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
        const auto files = folder.files();
        const bool restored = setrlimit(RLIMIT_NOFILE, &before) == 0;
        REQUIRE(restored);
        ++(files.ok() ? complete : errors);
        if (files.ok()) {
            CHECK(files->size() == 3);
        } else {
            CHECK(files.status().message().ends_with(": Too many open files"));
            CHECK(files.status().message().find("/:") == std::string::npos);
        }
    }
    CHECK(errors >= 3);
    CHECK(complete == 1);
}

TEST_CASE("what cannot be removed is told") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const auto kept = folder.keep(made("rmsnorm cols=3"));
    REQUIRE(kept.ok());
    const std::string below = temporary / kept->name.substr(0, 2);
    REQUIRE(chmod(temporary.path().c_str(), 0755) == 0);
    REQUIRE(chmod(below.c_str(), 0555) == 0);
    const uid_t user = geteuid();
    constexpr uid_t nobody = 65534;
    if (user == 0) REQUIRE(seteuid(nobody) == 0);  // because root may remove everything
    const Folder::Cleaned cleaned = folder.clean(0);
    if (user == 0) REQUIRE(seteuid(0) == 0);
    REQUIRE(chmod(below.c_str(), 0755) == 0);
    CHECK(cleaned.files == 0);
    CHECK(cleaned.refused.message() == "cache: " + (temporary / kept->name) + ": cannot be removed: Permission denied");
    const Folder::Cleaned later = folder.clean(0);
    CHECK(later.files == 1);
    CHECK(later.refused.ok());
}

TEST_CASE("a folder that cannot be written says so") {
    const TemporaryFolder temporary;
    const Artifact entry = made("rmsnorm cols=3");
    write_text(temporary / "file", "");
    for (const char* path : {"file", "file/below", "file/below/it"})
        CHECK(Folder(temporary / path).keep(entry).status().message() ==
              (temporary / "file") + ": cannot be made a folder: File exists");
    CHECK(!Folder("/proc/normjit").keep(entry).ok());  // nobody can write there, not even root
    CHECK(!look_up(Folder(temporary / "file"), entry).artifact);
}

TEST_CASE("a disk that is full leaves nothing behind") {
    const TemporaryFolder temporary;
    const Folder folder(temporary.path());
    const Artifact entry = made("rmsnorm cols=3");
    struct rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const struct rlimit small{1000, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const Status status = folder.keep(entry).status();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(status.message().find("cannot be written: File too large") != std::string::npos);
    CHECK(status.code() == Code::failed);
    CHECK(folder.files()->empty());
    CHECK(folder.clean(0).files == 0);
    CHECK(folder.keep(entry).ok());
}
