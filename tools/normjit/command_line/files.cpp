// SPDX-License-Identifier: Apache-2.0
#include "command_line/files.h"

#include "support/try.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include <fmt/core.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace normjit::cli {

Expected<std::string> read_text_file(const std::string& path) {
    constexpr size_t limit = size_t{16} << 20;  // the most bytes that this program accepts as a text file
    return read_file(path, limit);
}

namespace {

/// True if both names are one file, which need not exist yet. False for devices and pipes, which lose nothing.
bool are_one_file(const std::string& path, const std::string& other) {
    std::error_code error;
    const bool exists = std::filesystem::exists(path, error);
    if (exists && !std::filesystem::is_regular_file(path, error)) return false;
    if (exists && std::filesystem::equivalent(path, other, error)) return true;
    const auto name = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
    return !error && name == std::filesystem::weakly_canonical(std::filesystem::absolute(other, error), error) &&
           !error;
}

}  // namespace

Status check_writable(const std::string& path, const std::vector<std::string>& others) {
    for (const std::string& other : others) {
        if (are_one_file(path, other))
            return invalid_argument(fmt::format("{}: is already used by this command, and would be lost", path));
    }
    std::error_code error;
    if (!std::filesystem::is_fifo(path, error)) return OutputFile::create(path).status();
    if (access(path.c_str(), W_OK) == 0) return {};  // the reader of a pipe would end when a writer has come and gone
    return invalid_argument(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

Status check_growable(const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_directory(status) &&
        !std::filesystem::is_regular_file(status))
        return invalid_argument(path + ": is not a regular file");
    return {};
}

bool can_be_replaced(const std::string& path) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    return !path.empty() && path != "-" &&
           (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status));
}

Status write_text(const std::string& path, std::string_view text) {
    if (path.empty() || path == "-") {
        bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
        return written ? Status() : failed(fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
    }
    NORMJIT_TRY(OutputFile file, OutputFile::create(path));
    NORMJIT_RETURN_IF_ERROR(file.write(text));
    return file.commit();
}

std::string line_of(const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status write_json(const std::string& path, const nlohmann::ordered_json& json) {
    return write_text(path, json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

}  // namespace normjit::cli
