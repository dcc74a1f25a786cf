// SPDX-License-Identifier: Apache-2.0
// A checked problem on a CPU.
#include "problem/checked_problem.h"

#include "problem/rotating_copies.h"
#include "problem/workbench.h"
#include "support/try.h"
#include "team.h"

#include <algorithm>
#include <cstring>

namespace normjit::cli {
namespace {

/// Repeats the rows that were made until all rows are filled.
void repeat_rows(const Problem& made, const Problem& all, bench::Team& team) {
    for (const Tensor tensor : all_tensors) {
        if (!all.spec.has(tensor) || (all.spec.writes(tensor) && !all.spec.accumulates(tensor))) continue;
        const auto* from = static_cast<const char*>(made.tensors[tensor].data());
        auto* to = static_cast<char*>(all.tensors[tensor].data());
        const int64_t period = made.tensors[tensor].bytes();
        team.run_ranges(all.tensors[tensor].bytes(), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end;) {
                const int64_t bytes = std::min(end - i, period - i % period);
                std::memcpy(to + i, from + i % period, static_cast<size_t>(bytes));
                i += bytes;
            }
        });
    }
}

class CpuCheckedProblem final : public CheckedProblem {
  public:
    CpuCheckedProblem(RotatingCopies data, const Problem& made, bench::Team& team)
        : data_(std::move(data)), expected_(made, data_.batch()), team_(team) {}

    bool is_cold() const override { return data_.is_cold(); }
    int64_t copies() const override { return data_.copies(); }
    void hold(bool stay) override { data_.hold(stay); }

    Status check(const Kernel& kernel) override {
        NORMJIT_RETURN_IF_ERROR(data_.fit(kernel, team_));
        const Arguments& arguments = data_.next();
        for (const Tensor tensor : all_tensors) {
            if (data_.spec().writes(tensor)) fill_with_nan(data_.element(tensor, 0), data_.bytes_of(tensor), team_);
        }
        data_.restore_accumulated();
        NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
        for (const int64_t row : expected_.rows_to_check()) {
            for (const Operand& output : expected_.row_outputs()) {
                const int64_t element = row * output.axes.width(data_.spec().cols);
                NORMJIT_RETURN_IF_ERROR(expected_.check_row(output, row, data_.element(output.tensor, element)));
            }
        }
        const int64_t groups = kernel.artifact().geometry.groups(data_.batch().all_rows(), arguments.workspace_bytes);
        for (const ExpectedOutputs::Columns& columns : expected_.columns_to_check()) {
            const void* elements = data_.element(
                columns.output, columns.slice * data_.spec().axes(columns.output).width(data_.spec().cols));
            NORMJIT_RETURN_IF_ERROR(expected_.check_columns(columns, elements, groups));
        }
        return {};
    }

    Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
        for (const Kernel& kernel : kernels) NORMJIT_RETURN_IF_ERROR(data_.fit(kernel, team_));
        return time_in_turn(kernels, rounds, [this]() -> const Arguments& { return data_.next(); });
    }

    Expected<bench::Measurement> measure(const Kernel& kernel, const bench::MeasureOptions& options) override {
        return measure_in(data_, kernel, options, team_);
    }

  private:
    RotatingCopies data_;
    const ExpectedOutputs expected_;
    bench::Team& team_;
};

}  // namespace

Batch made_batch(const Spec& spec, Batch batch) {
    constexpr int64_t made_elements = 1 << 20;
    const int64_t slices = !spec.tells_slices_apart() ? 1 : batch.slices >= 3 ? 3 : batch.slices;
    const int64_t rows = spec.tells_slices_apart() ? batch.rows : batch.all_rows();
    const int64_t most = made_elements / spec.cols / std::max<int64_t>(slices, 1);
    const int64_t made = std::clamp<int64_t>(most, std::min<int64_t>(rows, 1), rows);
    return {made == rows || made % 2 == 1 ? made : made - 1, slices};
}

Expected<std::unique_ptr<CheckedProblem>> open_cpu_checked_problem(const Kernel& kernel, Batch batch, uint64_t seed,
                                                                   Caches caches, ColdMemory& memory,
                                                                   bench::Team& team) {
    const Batch made = made_batch(kernel.artifact().spec, batch);
    NORMJIT_TRY(const Problem base, allocate_problem(kernel, made, team));
    fill_inputs(base, seed, team);
    NORMJIT_TRY(Problem all, allocate_problem(kernel, batch, team));
    repeat_rows(base, all, team);
    all.keep_accumulated();
    NORMJIT_TRY(RotatingCopies data, open_copies(std::move(all), caches, memory, team));
    return std::unique_ptr<CheckedProblem>(std::make_unique<CpuCheckedProblem>(std::move(data), base, team));
}

}  // namespace normjit::cli
