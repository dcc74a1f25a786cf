// SPDX-License-Identifier: Apache-2.0
#include "problem/rotating_copies.h"

#include "support/divide.h"
#include "support/try.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace normjit::cli {
namespace {

constexpr int64_t line = 64, page_bytes = 4096;

/// Allocators give larger blocks their own pages, so that all blocks begin at the same place in a page. The copies do
/// as well.
constexpr int64_t least_of_own_pages = 128 << 10;

/// True if the problem has the tensor, and it has rows.
bool has_rows(const Spec& spec, Tensor tensor) { return spec.has(tensor) && spec.axes(tensor).row; }

/// Returns a step that goes through that many copies, each once and far from the one before.
int64_t step_through(int64_t copies) {
    constexpr double golden = 0.618;
    auto step = std::max<int64_t>(1, static_cast<int64_t>(golden * static_cast<double>(copies)));
    while (std::gcd(step, copies) != 1) ++step;
    return step;
}

}  // namespace

RotatingCopies::RotatingCopies(Problem problem, int64_t cold_bytes)
    : problem_(std::move(problem)),
      arguments_(problem_.arguments()),
      traffic_(problem_.traffic()),
      cold_bytes_(cold_bytes) {
    for (const Tensor tensor : all_tensors) {
        if (!has_rows(problem_.spec, tensor)) continue;
        copy_bytes_ += round_up(bytes_of(tensor), line);
        if (problem_.spec.is_matrix(tensor) && problem_.spec.reads(tensor)) reads_.push_back(tensor);
        if (problem_.spec.is_matrix(tensor) && problem_.spec.writes(tensor)) writes_.push_back(tensor);
    }
}

/// Lays out the tensors of a copy.
void RotatingCopies::lay_out() {
    for (const Tensor tensor : all_tensors) {
        if (!has_rows(problem_.spec, tensor)) continue;
        const int64_t bytes = bytes_of(tensor);
        const bool has_own_pages = bytes >= least_of_own_pages;
        if (has_own_pages) stride_ = round_up(stride_, page_bytes);
        moving_.push_back({tensor, stride_});
        // Large tensors whose size is a power of two must not all fall into the same sets of a cache, so there is a
        // page between them.
        stride_ = has_own_pages ? round_up(stride_ + bytes + line, page_bytes) : round_up(stride_ + bytes, line);
    }
    // Consecutive copies must keep that place.
    if (stride_ >= least_of_own_pages) stride_ = round_up(stride_, page_bytes);
}

Status RotatingCopies::spread(ColdMemory& memory, bench::Team& team) {
    if (is_cold()) return {};
    lay_out();
    const int64_t wanted = divide_up(cold_bytes_, copy_bytes_);
    const int64_t copies = std::min(wanted, memory.most_bytes() / stride_);
    if (copies < 2) {
        moving_.clear();
        return {};
    }
    NORMJIT_TRY(begin_, memory.take(copies * stride_, team));
    copies_ = copies;
    step_ = step_through(copies);
    const auto fill = [&](int64_t copy, const Moving& moving, int64_t begin, int64_t end) {
        std::memcpy(begin_ + copy * stride_ + moving.offset + begin,
                    static_cast<const char*>(problem_.tensors[moving.tensor].data()) + begin,
                    static_cast<size_t>(end - begin));
    };
    // If there are only a few copies, they are large, so all threads work on each.
    for (const Moving& moving : moving_) {
        if (problem_.spec.writes(moving.tensor)) continue;
        const int64_t bytes = bytes_of(moving.tensor);
        if (copies >= 4 * team.size()) {
            team.run_ranges(copies, [&](int64_t begin, int64_t end) {
                for (int64_t copy = begin; copy < end; ++copy) fill(copy, moving, 0, bytes);
            });
        } else {
            for (int64_t copy = 0; copy < copies; ++copy)
                team.run_ranges(bytes, [&](int64_t begin, int64_t end) { fill(copy, moving, begin, end); });
        }
    }
    return {};
}

const Arguments& RotatingCopies::next() {
    if (!held_) at_ += step_;
    if (at_ >= copies_) at_ -= copies_;
    for (const auto& [tensor, offset] : moving_) arguments_[tensor].data = begin_ + at_ * stride_ + offset;
    return arguments_;
}

const bench::Traffic& RotatingCopies::next_traffic() {
    next();
    for (size_t i = 0; i < reads_.size(); ++i) traffic_.reads[i].data = arguments_[reads_[i]].data;
    for (size_t i = 0; i < writes_.size(); ++i) traffic_.writes[i].data = element(writes_[i], 0);
    return traffic_;
}

void* RotatingCopies::element(Tensor tensor, int64_t i) const {
    auto* data = static_cast<char*>(const_cast<void*>(arguments_[tensor].data));
    return data + i * static_cast<int64_t>(size_of(problem_.spec.dtype(tensor)));
}

Status RotatingCopies::fit(const Kernel& kernel, bench::Team& team) {
    const int64_t bytes = kernel.preferred_workspace(problem_.batch.rows, problem_.batch.slices);
    if (bytes <= problem_.workspace.bytes()) return {};
    NORMJIT_TRY(problem_.workspace, Buffer::allocate(bytes));
    fill_with_nan(problem_.workspace.data(), bytes, team);
    arguments_.workspace = problem_.workspace.data();
    arguments_.workspace_bytes = bytes;
    return {};
}

Expected<RotatingCopies> open_copies(Problem problem, Caches caches, ColdMemory& memory, bench::Team& team) {
    RotatingCopies data(std::move(problem), memory.turn_bytes());
    if (caches == Caches::cold) NORMJIT_RETURN_IF_ERROR(data.spread(memory, team));
    return data;
}

Expected<bench::Measurement> measure_in(RotatingCopies& data, const Kernel& kernel,
                                        const bench::MeasureOptions& options, bench::Team& team) {
    NORMJIT_RETURN_IF_ERROR(data.fit(kernel, team));
    NORMJIT_TRY(bench::Measurement measurement,
                bench::measure(
                    team, [&]() -> const bench::Traffic& { return data.next_traffic(); },
                    [&] { return kernel.launch(data.next()); }, options));
    measurement.copies = data.copies();
    measurement.is_cold = data.is_cold();
    return measurement;
}

}  // namespace normjit::cli
