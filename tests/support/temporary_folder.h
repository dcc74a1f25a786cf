// SPDX-License-Identifier: Apache-2.0
// A test's own folder, which is removed with the test, and files as texts.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace normjit::test {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "normjit-XXXXXX").string();
        REQUIRE(mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string path() const { return path_.string(); }
    std::string operator/(std::string_view name) const { return (path_ / name).string(); }
    auto entries() const { return std::distance(std::filesystem::directory_iterator(path_), {}); }

  private:
    std::filesystem::path path_;
};

/// Returns the names in a folder, sorted.
inline std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
        names.push_back(file.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
}

inline std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file, path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

inline void write_text(const std::string& path, std::string_view text) {
    std::ofstream file(path, std::ios::binary);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    REQUIRE_MESSAGE(file.flush(), path);
}

/// Changes a byte in place, and restores it when destroyed.
class FlippedByte {
  public:
    FlippedByte(const std::string& path, size_t at, int flip)
        : file_(path, std::ios::binary | std::ios::in | std::ios::out), at_(static_cast<std::streamoff>(at)) {
        file_.seekg(at_);
        before_ = file_.get();
        put(before_ ^ flip);
    }
    ~FlippedByte() { put(before_); }

  private:
    void put(int byte) {
        file_.seekp(at_);
        file_.put(static_cast<char>(byte));
        CHECK(file_.flush());
    }
    std::fstream file_;
    const std::streamoff at_;
    int before_;
};

}  // namespace normjit::test
