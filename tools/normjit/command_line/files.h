// SPDX-License-Identifier: Apache-2.0
// Files as the commands use them: reads whole texts, writes complete files.
#pragma once

#include "system/file_io.h"

#include "normjit/status.h"

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace normjit::cli {

/// Reads a whole text file of at most 16 MiB.
Expected<std::string> read_text_file(const std::string& path);

/// Checks, before long work, that OutputFile::create() would succeed, and leaves nothing behind. Refuses any of
/// `others`, the files that the same command reads or writes, by whatever name and whether or not they exist yet. A
/// link to a file that does not exist yet counts as none of them.
Status check_writable(const std::string& path, const std::vector<std::string>& others = {});

/// Checks that lines may be added to a file and read again.
Status check_growable(const std::string& path);

/// True if write_text() replaces what it wrote before. Devices, pipes and stdout get one text after the other.
bool can_be_replaced(const std::string& path);

/// Writes `text` to the file at `path`, or to stdout if the path is empty or "-".
Status write_text(const std::string& path, std::string_view text);

/// Returns JSON on one line. Bytes that are not UTF-8, which names of files may contain, become U+FFFD.
std::string line_of(const nlohmann::ordered_json& json);
/// Does what write_text() does with the indented text; see line_of().
Status write_json(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace normjit::cli
