// SPDX-License-Identifier: Apache-2.0
// Output for people: messages and progress on stderr, tables on stdout, numbers with units.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::cli {

/// Print one line to stderr, "error: ..." or "note: ...". Text that stderr does not accept is lost.
void print_error(std::string_view message);
void print_note(std::string_view message);

/// Returns "1 kernel" or "2 kernels".
std::string counted(int64_t count, std::string_view noun);

/// Return "1.24 us", "3.10 ms"; "16.0 GiB", "96 bytes"; "72 %". There are three digits, or "-" if it was not measured
/// (negative).
std::string format_seconds(double seconds);
std::string format_bytes(double bytes);
std::string format_percent(double share);

/// A table whose columns are as wide as their content, two spaces apart. A column is right-aligned if its title starts
/// with '>'. A first cell of more than 100 characters, such as a spec with a formula's text, gets its own line.
class Table {
  public:
    explicit Table(std::vector<std::string> titles);
    void add(std::vector<std::string> cells);
    std::string text() const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> lines_;
};

/// A line on stderr that is rewritten in place. It shows how much is done, out of how much, and the time left. Prints
/// nothing if stderr is not a terminal. Weights may be any measure of the work with the right proportions.
class Progress {
  public:
    explicit Progress(double total_weight);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void show(std::string_view what);
    void advance(double weight) { done_ += weight; }
    /// Removes the line, so that other output starts on an empty line.
    void clear();

  private:
    bool terminal_;
    bool shown_ = false;
    double total_;
    double done_ = 0;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace normjit::cli
