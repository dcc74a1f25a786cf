// SPDX-License-Identifier: Apache-2.0
// Collects the specs that a running program requests in a file that `normjit tune` reads.
#pragma once

#include "system/file_io.h"

#include "normjit/spec.h"
#include "normjit/status.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

namespace normjit::tuning {

/// Thread safe. Processes may share a file, because each line is appended in one write.
class Capture {
  public:
    /// Creates the file if it does not exist. Lines that a regular file of at most 64 MiB already contains are not
    /// added again. The path may also be a terminal, or a pipe with a reader.
    static Expected<std::unique_ptr<Capture>> open(const std::string& path);

    /// Appends a line, but only once. After an error, the next request for the line tries again.
    Status add(const std::string& line);

  private:
    Capture(std::string path, LineFile file) : path_(std::move(path)), file_(std::move(file)) {}

    const std::string path_;
    LineFile file_;
    std::mutex mutex_;
    std::unordered_set<std::string> known_;
};

}  // namespace normjit::tuning
