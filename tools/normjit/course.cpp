// SPDX-License-Identifier: Apache-2.0
// The course of a CPU.
#include "course.h"

#include "ring.h"
#include "support/try.h"
#include "team.h"
#include "workbench.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace normjit::cli {
namespace {

/// As bench/measure.cpp: below this, reading the clock shows.
constexpr double shortest_sample = 20e-6;

/// Copies the rows that were made over all rows.
void repeat_rows(const Problem& made, const Problem& all, bench::Team& team) {
    for (const Tensor tensor : all_tensors) {
        if (is_output(tensor) || !all.spec.has(tensor)) continue;
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

class CpuCourse final : public Course {
  public:
    CpuCourse(Ring ring, const Problem& made, bench::Team& team)
        : ring_(std::move(ring)), answers_(made, ring_.rows()), team_(team) {}

    bool is_cold() const override { return ring_.is_cold(); }
    int64_t copies() const override { return ring_.copies(); }
    void hold(bool stay) override { ring_.hold(stay); }

    Status check(const Kernel& kernel) override {
        NORMJIT_RETURN_IF_ERROR(ring_.fit(kernel, team_));
        const Arguments& arguments = ring_.next();
        for (const Tensor tensor : all_tensors) {
            if (is_output(tensor) && ring_.spec().has(tensor))
                fill_with_nan(ring_.element(tensor, 0), ring_.bytes_of(tensor), team_);
        }
        NORMJIT_RETURN_IF_ERROR(kernel.launch(arguments));
        for (const int64_t row : answers_.rows_to_check()) {
            NORMJIT_RETURN_IF_ERROR(answers_.check_row(row, ring_.element(Tensor::dx, row * ring_.spec().cols)));
        }
        const int64_t groups = kernel.artifact().geometry.groups(ring_.rows(), arguments.workspace_bytes);
        for (const Tensor tensor : all_tensors) {
            if (!is_output(tensor) || is_matrix(tensor) || !ring_.spec().has(tensor)) continue;
            NORMJIT_RETURN_IF_ERROR(answers_.check_columns(tensor, ring_.element(tensor, 0), groups));
        }
        return {};
    }

    Expected<Seconds> time(std::span<const Kernel> kernels, int rounds) override {
        for (const Kernel& kernel : kernels) NORMJIT_RETURN_IF_ERROR(ring_.fit(kernel, team_));
        Seconds seconds(kernels.size());
        // The first turn warms up and tells how long a launch takes.
        double shortest = 1;
        for (const Kernel& kernel : kernels) {
            NORMJIT_TRY(const double once, seconds_of(kernel, 1));
            shortest = std::min(shortest, once);
        }
        const auto launches = static_cast<int>(std::clamp(shortest_sample / std::max(shortest, 1e-9), 1.0, 1000.0));
        for (int round = 0; round < rounds; ++round) {
            for (size_t i = 0; i < kernels.size(); ++i) {
                const size_t k = (i + static_cast<size_t>(round)) % kernels.size();
                // What the kernel before left in the caches is not the same for all: one launch that does not count.
                if (launches > 1) NORMJIT_RETURN_IF_ERROR(kernels[k].launch(ring_.next()));
                NORMJIT_TRY(const double each, seconds_of(kernels[k], launches));
                seconds[k].push_back(each);
            }
        }
        return seconds;
    }

    Expected<bench::Measurement> measure(const Kernel& kernel, const bench::MeasureOptions& options) override {
        return measure_in(ring_, kernel, options, team_);
    }

  private:
    Expected<double> seconds_of(const Kernel& kernel, int launches) {
        using Clock = std::chrono::steady_clock;
        const auto start = Clock::now();
        for (int i = 0; i < launches; ++i) NORMJIT_RETURN_IF_ERROR(kernel.launch(ring_.next()));
        return std::chrono::duration<double>(Clock::now() - start).count() / launches;
    }

    Ring ring_;
    const Answers answers_;
    bench::Team& team_;
};

}  // namespace

int64_t made_rows(const Spec& spec, int64_t rows) {
    constexpr int64_t made_elements = 1 << 20;
    const int64_t made = std::clamp<int64_t>(made_elements / spec.cols, 1, rows);
    return made == rows || made % 2 == 1 ? made : made - 1;
}

Expected<std::unique_ptr<Course>> open_cpu_course(const Kernel& kernel, int64_t rows, uint64_t seed, Caches caches,
                                                  ColdMemory& memory, bench::Team& team) {
    const int64_t made = made_rows(kernel.artifact().spec, rows);
    NORMJIT_TRY(const Problem base, allocate_problem(kernel, made, team));
    fill_inputs(base, seed, team);
    NORMJIT_TRY(Problem all, allocate_problem(kernel, rows, team));
    repeat_rows(base, all, team);
    NORMJIT_TRY(Ring ring, open_ring(std::move(all), caches, memory, team));
    return std::unique_ptr<Course>(std::make_unique<CpuCourse>(std::move(ring), base, team));
}

}  // namespace normjit::cli
