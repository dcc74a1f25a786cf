// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::cli;

namespace {

class Folder {
  public:
    Folder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "normjit-XXXXXX").string();
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string operator/(const char* name) const { return (path_ / name).string(); }
    auto entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

  private:
    std::filesystem::path path_;
};

}  // namespace

TEST_CASE("files: an output appears when it is complete") {
    Folder folder;
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
    Folder folder;
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
