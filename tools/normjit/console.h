// SPDX-License-Identifier: Apache-2.0
// The output for people: messages and progress on stderr, tables on stdout, numbers with units.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cli {

/// Print one line to stderr, "error: ..." or "note: ..."; what stderr does not accept is lost.
void print_error(std::string_view message);
void print_note(std::string_view message);

/// Returns "1 kernel" or "2 kernels".
std::string counted(int64_t count, std::string_view noun);

/// Return "1.24 us", "3.10 ms"; "16.0 GiB", "96 bytes"; "72 %". Three digits; "-" for what was not measured (negative).
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);
std::string format_percent(double share);

/// A table whose columns are as wide as their content, two spaces apart. A column is right-aligned if its title starts
/// with '>'. A first cell of more than 100 characters, such as a spec with a formula's text, has a line of its own.
class Table {
  public:
    explicit Table(std::vector<std::string> titles);
    void add(std::vector<std::string> cells);
    std::string text() const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> lines_;
};

/// A line on stderr that is rewritten in place. It shows what is done, out of how much, and the time left. Silent if
/// stderr is not a terminal. Weights are any measure of the work with the right proportions.
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
