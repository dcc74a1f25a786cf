// SPDX-License-Identifier: Apache-2.0
#include "schedule/points.h"

#include "schedule/heuristics.h"
#include "support/embedded.h"
#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include "normjit/kernel_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit {

namespace {

constexpr std::string_view device_word = "device", target_word = "target", separator = " | ";

/// Divides a line at its last separator, because the text of a formula may contain the separator.
Expected<std::pair<std::string_view, std::string_view>> split_last(std::string_view line) {
    const size_t at = line.rfind(separator);
    if (at == line.npos) return invalid_argument("a point is SPEC | SCHEDULE | SHARE DATE");
    return std::pair(text::trim(line.substr(0, at)), text::trim(line.substr(at + separator.size())));
}

bool is_date(std::string_view text) {
    constexpr std::string_view form = "dddd-dd-dd";
    return std::ranges::equal(text, form, [](char c, char f) { return f == 'd' ? c >= '0' && c <= '9' : c == f; });
}

Expected<Point> parse_point(std::string_view line, const Target& target) {
    NORMJIT_TRY(const auto end, split_last(line));
    NORMJIT_TRY(const auto both, split_last(end.first));
    Point point;
    NORMJIT_TRY(point.spec, parse_spec(both.first));
    if (point.spec.all_rows().value_or(0) < 1)
        return invalid_argument("a point must have rows=, at least 1, and a number for slices=");
    NORMJIT_TRY(point.schedule, parse_schedule(both.second));
    NORMJIT_RETURN_IF_ERROR(check_ranges(point.schedule, target));
    const std::string_view share = text::first_word(end.second);
    if (share != "-") {
        const auto number = text::parse_double(share);
        if (!number.ok() || !(*number >= 0) || !std::isfinite(*number))
            return invalid_argument(fmt::format("share {}: must be a number, 0 or more, or -", text::shown(share)));
        point.share = *number;
    }
    point.date = text::trim(end.second.substr(share.size()));
    if (!point.date.empty() && !is_date(point.date))
        return invalid_argument(fmt::format("date {}: must be like 2026-11-27", text::shown(point.date)));
    return point;
}

Status at_line(int number, const Status& status) {
    return {status.code(), fmt::format("line {}: {}", number, status.message())};
}

/// A file whose points are still text.
struct UnreadFile {
    std::string_view device;
    Target target;
    std::vector<text::Line> points;
};

Expected<UnreadFile> read_head(std::string_view text) {
    UnreadFile file;
    bool has_target = false;
    for (const auto& [line, number] : text::content_lines(text)) {
        const std::string_view word = text::first_word(line), rest = text::trim(line.substr(word.size()));
        const bool is_head = word == device_word || word == target_word;
        if (is_head && has_target)
            return at_line(number, invalid_argument("a file has one device: `device`, `target`, then points"));
        if (!is_head && !has_target)
            return at_line(number, invalid_argument("the lines `device` and `target` precede all points"));
        if (word == device_word) {
            if (text::shown(rest) != rest)
                return at_line(number,
                               invalid_argument(fmt::format("device {}: must be printable", text::shown(rest))));
            file.device = rest;
        } else if (word == target_word) {
            auto target = parse_target(rest);
            if (!target.ok()) return at_line(number, target.status());
            file.target = *target;
            has_target = true;
        } else {
            file.points.push_back({line, number});
        }
    }
    if (!has_target) return invalid_argument("no line `target`");
    return file;
}

}  // namespace

bool are_points(std::string_view text) {
    const std::vector<text::Line> lines = text::content_lines(text);
    const std::string_view first = lines.empty() ? "" : text::first_word(lines.front().text);
    return first == device_word || first == target_word;
}

Expected<PointFile> parse_points(std::string_view text) {
    NORMJIT_TRY(const UnreadFile unread, read_head(text));
    PointFile file{.device = std::string(unread.device), .target = unread.target};
    for (const auto& [line, number] : unread.points) {
        auto point = parse_point(line, file.target);
        if (!point.ok()) return at_line(number, point.status());
        file.points.push_back(*std::move(point));
    }
    return file;
}

std::string to_text(const PointFile& file) {
    std::vector<std::string> lines;
    for (const Point& point : file.points) {
        const std::string share = point.share < 0 ? "-" : fmt::format("{:.3f}", point.share);
        lines.push_back(fmt::format("{}{}{}{}{} {}\n", to_text(point.spec), separator, brief_text(point.schedule),
                                    separator, share, point.date));
    }
    std::ranges::sort(lines);
    return fmt::format(
        "# SPDX-License-Identifier: Apache-2.0\n"
        "# Made by normjit tune --points: a problem, the fastest schedule that was found, its share of the memory "
        "ceiling.\n"
        "{} {}\n{} {}\n{}",
        device_word, file.device, target_word, to_text(file.target), fmt::join(lines, ""));
}

PointSet::Source::Source(std::string called, std::string of) : name(std::move(called)), text(std::move(of)) {
    const auto unread = read_head(text);
    if (!unread.ok() || !unread->target.is_cuda()) return;
    device = unread->device;
    target = unread->target;
    for (const text::Line& line : unread->points) cuda.emplace_back(line.text);
}

const PointSet::Source::CudaPoint* PointSet::Source::CudaLine::parse(const Target& target) const {
    if (const auto* parsed = parsed_.load()) return parsed;
    auto point = parse_point(line_, target);
    if (!point.ok()) return nullptr;
    const Spec spec = kernel_spec(point->spec);
    const int64_t most = schedule::cuda_row_groups(spec, target, std::get<CudaSchedule>(point->schedule.device));
    auto parsed =
        std::make_unique<CudaPoint>(*std::move(point), schedule::cuda_features(spec, OperandList(spec), target), most);
    const CudaPoint* others = nullptr;
    if (parsed_.compare_exchange_strong(others, parsed.get())) return parsed.release();
    return others;  // another thread has parsed it meanwhile
}

void PointSet::add(const PointFile& file, std::string source) {
    sources_.insert(sources_.begin(), std::make_shared<const Source>(std::move(source), to_text(file)));
}

std::vector<PointFile> PointSet::files() const {
    std::vector<PointFile> files;
    for (const auto& source : sources_) files.push_back(*parse_points(source->text));
    return files;
}

const PointSet& PointSet::shipped() {
    static const PointSet& points = *lasting([] {
        PointSet all;
        for (const embedded::Text& each : embedded::points())
            all.sources_.push_back(std::make_shared<const Source>(std::string(each.name), std::string(each.text)));
        return all;
    }());
    return points;
}

}  // namespace normjit
