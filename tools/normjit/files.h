// SPDX-License-Identifier: Apache-2.0
// Files as the commands use them: whole texts in, complete files out.
#pragma once

#include "file_io.h"

#include "normjit/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace normjit::cli {

/// The whole of a text file, at most 16 MiB.
Expected<std::string> read_text_file(const std::string& path);

/// Whether OutputFile::create() would succeed: asked before work that takes long. Leaves nothing behind. Refuses one of
/// `others`, the files that the same command reads or writes, by whichever name; what is no file's name counts as none.
Status check_writable(const std::string& path, const std::vector<std::string>& others = {});

/// Whether lines may be added to a file and read again.
Status check_growable(const std::string& path);

/// Whether write_text() replaces what it wrote before; devices, pipes and stdout get one text after the other.
bool can_be_replaced(const std::string& path);

/// Writes `text` to the file at `path`, or to stdout when path is empty or "-".
Status write_text(const std::string& path, std::string_view text);

}  // namespace normjit::cli
