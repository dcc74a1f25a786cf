// SPDX-License-Identifier: Apache-2.0
// The base of classes that write a text line by line.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

namespace normjit {

class Lines {
  protected:
    /// Adds a line.
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        out_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
    }

    std::string out_;
};

}  // namespace normjit
