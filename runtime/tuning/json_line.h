// SPDX-License-Identifier: Apache-2.0
// JSON objects on one line whose values are strings and numbers: all that a tuning record is.
#pragma once

#include "normjit/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace normjit::tuning {

class JsonLine {
  public:
    /// Fails, saying where, on what is no flat object. true, false and null are kept as their words.
    static Expected<JsonLine> parse(std::string_view line);

    const std::string* find(std::string_view key) const;
    /// "<key>: missing", or what the value must be.
    Expected<std::string> text(std::string_view key) const;
    Expected<double> number(std::string_view key) const;
    Expected<int> integer(std::string_view key, int least, int most) const;

  private:
    std::vector<std::pair<std::string, std::string>> fields_;
};

/// Writes one.
class JsonLineWriter {
  public:
    void add(std::string_view key, std::string_view text);
    void add(std::string_view key, double number);
    void add(std::string_view key, int number) { add_raw(key, std::to_string(number)); }
    std::string finish() const { return text_ + "}"; }

  private:
    void add_raw(std::string_view key, std::string_view value);
    std::string text_ = "{";
};

}  // namespace normjit::tuning
