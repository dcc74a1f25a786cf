// SPDX-License-Identifier: Apache-2.0
// Reads whole files and writes complete files.
#pragma once

#include "normjit/status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

namespace normjit {

/// Owns a file descriptor and closes it; -1 if there is none.
class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    int get() const { return number_; }
    bool is_open() const { return number_ >= 0; }
    int release() { return std::exchange(number_, -1); }

  private:
    int number_;
};

struct RegularFile {
    Descriptor descriptor;
    struct stat facts;
};

/// Opens a regular file for reading. A pipe does not block this call. `name` is looked up in the open folder `folder`;
/// with AT_FDCWD it may be any path. `flags` are added to open's. Errors have no subject: "is not a regular file".
Expected<RegularFile> open_regular(int folder, const std::string& name, int flags = 0);

/// Reads the whole of a regular file of at most 64 MiB, such as one whose lines people write and merge. Errors have no
/// subject.
Expected<std::string> read_regular(const std::string& path);

/// Reads bytes [offset, offset + count) of an open file. Errors have no subject.
Expected<std::string> read_at(const Descriptor& file, int64_t offset, int64_t count);

/// Reads a whole file of at most `limit` bytes, which may be a pipe.
Expected<std::string> read_file(const std::string& path, size_t limit);

/// Appends lines to a file, each in one write, so that processes may share the file. If a full disk or the death of a
/// process has cut off a line, that line is ended before the next one. Not thread safe. Errors have no subject.
class LineFile {
  public:
    /// Creates the file if it does not exist. `flags` are added to open's.
    static Expected<LineFile> open(const std::string& path, int flags = 0);
    Status add(std::string_view line);

  private:
    LineFile(Descriptor descriptor, bool is_cut) : descriptor_(std::move(descriptor)), is_cut_(is_cut) {}
    Descriptor descriptor_;
    bool is_cut_;  ///< the file does not end with a line break
};

/// A file that appears under its name completely or not at all: it is written under a temporary name in the same
/// folder, flushed to the disk and renamed. If it is destroyed before commit(), it leaves nothing behind. A process
/// that dies leaves a file whose name ends in `temporary_end`. Writing raises no signal. Errors: `invalid_argument` if
/// the path cannot be written to, `failed` for later problems.
class OutputFile {
  public:
    static constexpr std::string_view temporary_end = ".tmp";

    /// Writes directly to a path that names a device or a pipe. If the path is a symbolic link, replaces its target.
    static Expected<OutputFile> create(const std::string& path);
    /// Creates `name` in an open folder, which must stay open, and replaces any file of that name. Errors name the
    /// path. The file gets `rights`, except those that the umask of the process removes.
    static Expected<OutputFile> create_in(int folder, const std::string& name, const std::string& path, mode_t rights);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();

    Status write(const void* data, size_t bytes);
    Status write(std::string_view text) { return write(text.data(), text.size()); }
    Status commit();

  private:
    OutputFile(std::string path, int folder, std::string name, std::string temporary, Descriptor descriptor)
        : path_(std::move(path)),
          folder_(folder),
          name_(std::move(name)),
          temporary_(std::move(temporary)),
          descriptor_(std::move(descriptor)) {}

    std::string path_;  ///< the path that errors name
    int folder_;
    std::string name_;
    std::string temporary_;  ///< the temporary name; empty if the path is written directly
    Descriptor descriptor_;
};

}  // namespace normjit
