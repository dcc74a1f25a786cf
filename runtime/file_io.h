// SPDX-License-Identifier: Apache-2.0
// Files: whole ones in, complete ones out.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace normjit {

/// The whole of a file of at most `limit` bytes.
Expected<std::string> read_file(const std::string& path, size_t limit);

/// A file that appears under its name complete or not at all: written to a temporary name in the same folder, flushed
/// to the disk and renamed. Dropped before commit(), it leaves nothing behind; a process that dies leaves a file whose
/// name ends in `temporary_end`. A path that names a device or a pipe is written directly.
class OutputFile {
  public:
    static constexpr std::string_view temporary_end = ".tmp";

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

}  // namespace normjit
