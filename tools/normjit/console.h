// SPDX-License-Identifier: Apache-2.0
// What a person sees: messages and progress on stderr, tables on stdout, numbers with units.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cli {

/// `text` with every control character escaped, so that a message stays one line whatever a file holds.
std::string one_line(std::string_view text);

/// One line on stderr, "error: ..." or "note: ...", as far as stderr takes it.
void print_error(std::string_view message);
void print_note(std::string_view message);

/// "1.24 us", "3.10 ms"; "16.0 GiB", "96 bytes"; "72 %". Three digits; "-" for what was not measured (negative).
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);
std::string format_percent(double share);

/// Columns as wide as what they hold, two spaces apart. A column is right-aligned when its title starts with '>'.
class Table {
  public:
    explicit Table(std::vector<std::string> titles);
    void add(std::vector<std::string> cells);
    std::string text() const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> lines_;
};

/// A line on stderr that is rewritten in place: how much is done, of what, and the time left. Silent when stderr is
/// not a terminal. Weights are any measure of the work; they only need the right proportions.
class Progress {
  public:
    explicit Progress(double total_weight);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(std::string_view what);
    void advance(double weight) { done_ += weight; }
    /// Removes the line, so that other output starts on an empty one.
    void clear();

  private:
    bool terminal_;
    bool shown_ = false;
    double total_;
    double done_ = 0;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace normjit::cli
