// SPDX-License-Identifier: Apache-2.0
// Files as the commands use them: whole texts in, complete files out.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace normjit::cli {

/// The whole of a text file, at most 16 MiB.
Expected<std::string> read_text_file(const std::string& path);

/// A file that appears under its name complete or not at all: written to a temporary name in the same folder, flushed
/// to the disk and renamed. Dropped before commit(), it leaves nothing behind. A path that names a device or a pipe is
/// written directly.
class OutputFile {
  public:
    static Expected<OutputFile> create(const std::string& path);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();

    Status write(const void* data, size_t bytes);
    Status write(std::string_view text) { return write(text.data(), text.size()); }
    Status commit();

  private:
    OutputFile(std::string path, std::string temporary, int descriptor)
        : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

    std::string path_;
    std::string temporary_;  ///< empty: the path is written directly
    int descriptor_;
};

/// Whether OutputFile::create() would succeed: asked before work that takes long. Leaves nothing behind.
Status check_writable(const std::string& path);

/// Writes `text` to the file at `path`, or to stdout when path is empty or "-".
Status write_text(const std::string& path, std::string_view text);

}  // namespace normjit::cli
