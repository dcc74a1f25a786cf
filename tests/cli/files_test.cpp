// SPDX-License-Identifier: Apache-2.0
#include "command_line/files.h"

#include "temporary_folder.h"

#include <filesystem>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli;

TEST_CASE("files: an output appears when it is complete") {
    const test::TemporaryFolder folder;
    const std::string path = folder / "out";
    REQUIRE(write_text(path, "old").ok());
    {
        auto file = OutputFile::create(path);
        REQUIRE(file.ok());
        REQUIRE(file->write("new").ok());
        CHECK(*read_text_file(path) == "old");
        REQUIRE(file->commit().ok());
    }
    CHECK(*read_text_file(path) == "new");
    CHECK(folder.entries() == 1);
}

TEST_CASE("files: a dropped output leaves nothing behind") {
    const test::TemporaryFolder folder;
    {
        auto file = OutputFile::create(folder / "out");
        REQUIRE(file.ok());
        REQUIRE(file->write("half").ok());
        CHECK(folder.entries() == 1);
    }
    CHECK(folder.entries() == 0);
    CHECK(check_writable(folder / "out").ok());
    CHECK(folder.entries() == 0);
}

TEST_CASE("files: a device is written, not replaced") {
    REQUIRE(write_text("/dev/null", "text").ok());
    CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("files: a link's target is replaced") {
    const test::TemporaryFolder folder;
    std::filesystem::create_directory(folder / "below");
    REQUIRE(write_text(folder / "below/out", "old").ok());
    std::filesystem::create_symlink("below/out", folder / "link");
    std::filesystem::create_symlink("link", folder / "link_to_link");
    std::filesystem::create_symlink(folder / "below/missing", folder / "dangling");
    REQUIRE(write_text(folder / "link_to_link", "new").ok());
    REQUIRE(write_text(folder / "dangling", "new").ok());
    for (const char* link : {"link", "link_to_link", "dangling"})
        CHECK(std::filesystem::is_symlink(std::string(folder / link)));
    CHECK(*read_text_file(folder / "below/out") == "new");
    CHECK(*read_text_file(folder / "below/missing") == "new");
}
