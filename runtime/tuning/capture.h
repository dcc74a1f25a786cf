// SPDX-License-Identifier: Apache-2.0
// The specs that a running program asks for, collected in a file that `normjit tune` reads.
#pragma once

#include "system/file_io.h"

#include "normjit/spec.h"
#include "normjit/status.h"

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

namespace normjit::tuning {

/// Thread safe. Processes may share a file: a line is appended in one write.
class Capture {
  public:
    /// The file is made when it is not there; what a regular one of at most 64 MiB holds already is not added again. A
    /// terminal or a pipe that somebody reads gets the lines, too.
    static Expected<std::unique_ptr<Capture>> open(const std::string& path);

    /// Appends the spec's text, once. After an error it is tried again when the spec is asked for again.
    Status add(const Spec& spec);

  private:
    Capture(std::string path, LineFile file) : path_(std::move(path)), file_(std::move(file)) {}

    const std::string path_;
    LineFile file_;
    std::mutex mutex_;
    std::unordered_set<std::string> known_;
};

}  // namespace normjit::tuning
