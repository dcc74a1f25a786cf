// SPDX-License-Identifier: Apache-2.0
#include "command_line/console.h"

#include "support/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

namespace normjit::cli {
namespace {

std::string three_digits(double value) {
    int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    return fmt::format("{:.{}f}", value, decimals);
}

/// Writes to stderr. Text that stderr does not accept is lost, because a message must not end the work that it reports.
void put(const std::string& text) {
    [[maybe_unused]] const size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
}

}  // namespace

void print_error(std::string_view message) { put(fmt::format("error: {}\n", text::one_line(message))); }
void print_note(std::string_view message) { put(fmt::format("note: {}\n", text::one_line(message))); }

std::string counted(int64_t count, std::string_view noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_seconds(double seconds) {
    if (seconds < 0) return "-";
    constexpr std::pair<double, std::string_view> units[] = {{86400, "days"}, {3600, "h"},  {60, "min"},
                                                             {1, "s"},        {1e-3, "ms"}, {1e-6, "us"}};
    for (const auto& [size, name] : units) {
        if (seconds >= size) return fmt::format("{} {}", three_digits(seconds / size), name);
    }
    return three_digits(seconds * 1e9) + " ns";
}

std::string format_bytes(double bytes) {
    if (bytes < 0) return "-";
    if (bytes < 1024) return fmt::format("{:.0f} bytes", bytes);
    const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t unit = 0;
    for (bytes /= 1024; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
    return three_digits(bytes) + " " + units[unit];
}

std::string format_percent(double share) { return share < 0 ? "-" : fmt::format("{:.0f} %", share * 100); }

Table::Table(std::vector<std::string> titles) {
    for (std::string& title : titles) {
        right_.push_back(title.starts_with('>'));
        if (right_.back()) title.erase(0, 1);
    }
    lines_.push_back(std::move(titles));
}

void Table::add(std::vector<std::string> cells) {
    cells.resize(right_.size());
    lines_.push_back(std::move(cells));
}

bool has_long_name(const std::vector<std::string>& line) { return line[0].size() > 100; }

std::string Table::text() const {
    std::vector<size_t> widths(right_.size(), 0);
    for (const auto& line : lines_) {
        for (size_t i = has_long_name(line) ? 1 : 0; i < line.size(); ++i)
            widths[i] = std::max(widths[i], line[i].size());
    }
    std::string text;
    for (const auto& line : lines_) {
        std::string row;
        if (has_long_name(line)) row = fmt::format("{}\n{:{}}", line[0], "", widths[0]);
        for (size_t i = has_long_name(line) ? 1 : 0; i < line.size(); ++i) {
            if (i > 0) row += "  ";
            row += right_[i] ? fmt::format("{:>{}}", line[i], widths[i]) : fmt::format("{:<{}}", line[i], widths[i]);
        }
        row.erase(row.find_last_not_of(' ') + 1);
        text += row + "\n";
    }
    return text;
}

Progress::Progress(double total_weight)
    : terminal_(isatty(STDERR_FILENO) != 0), total_(total_weight), start_(std::chrono::steady_clock::now()) {}

void Progress::show(std::string_view what) {
    if (!terminal_) return;
    double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    double share = total_ > 0 ? std::min(done_ / total_, 1.0) : 0;
    std::string left = share > 0 ? fmt::format("about {:.0f} s left", std::ceil(elapsed / share - elapsed)) : "";
    put(fmt::format("\r\x1b[K{:3.0f} %  {:.60}  {}", share * 100, text::one_line(what), left));
    shown_ = true;
}

void Progress::clear() {
    if (!shown_) return;
    put("\r\x1b[K");
    shown_ = false;
}

}  // namespace normjit::cli
