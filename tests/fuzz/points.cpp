// SPDX-License-Identifier: Apache-2.0
// Reads any text as a file of points. An accepted file prints as a text that reads back as the same file; a refusal is
// one printable line. A heuristic with these points chooses legal schedules, on their device and on others.
#include "normjit/points.h"

#include "fuzz.h"

#include <algorithm>

using namespace normjit;

namespace {

void check_choice(const Spec& spec, const Target& target, const PointSet& points) {
    if (!legality(spec, heuristic(spec, target, PointSet()), target).ok()) return;  // there is no code for it
    const Status legal = legality(spec, heuristic(spec, target, points), target);
    fuzz::require(legal.ok(), "a schedule that is not legal", legal.message() + "\n" + to_text(spec));
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = fuzz::as_text(data, size);
    const auto file = parse_points(text);
    if (!file) {
        fuzz::require_error(file.status(), "");
        return 0;
    }
    const std::string printed = to_text(*file);
    const auto again = parse_points(printed);
    fuzz::require(again.ok(), "what was printed is refused", again.status().message() + "\n" + printed);
    fuzz::require(to_text(*again) == printed, "it prints differently the second time", printed);
    PointSet points;
    points.add(*file, "file");
    constexpr size_t most = 4;
    for (size_t i = 0; i < std::min(most, file->points.size()); ++i) {
        Spec spec = file->points[i].spec;
        for (const int64_t cols : {spec.cols, spec.cols + 1, spec.cols / 2 + 1}) {
            spec.cols = cols;
            if (!validate(spec).ok()) continue;
            if (file->target.is_cuda()) check_choice(spec, file->target, points);
            for (const char* other : {"sm_90", "sm_80"}) check_choice(spec, *parse_target(other), points);
        }
    }
    return 0;
}
