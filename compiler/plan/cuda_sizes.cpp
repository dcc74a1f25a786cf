// SPDX-License-Identifier: Apache-2.0
// The sizes of a CUDA path: the vectors of a row, and the shared memory and registers of the kernels.
#include "plan/cuda.h"
#include "support/divide.h"

#include <algorithm>
#include <span>

namespace normjit::plan {

namespace {

constexpr int64_t registers_of_scheduler = 16384;  ///< a multiprocessor has 4 schedulers, each with its own registers
constexpr int64_t most_registers = 255;

int64_t element_bytes(std::span<const Operand> operands) {
    int64_t bytes = 0;
    for (const Operand& operand : operands) bytes += operand.bytes();
    return bytes;
}

/// Returns how many 32-bit words hold one vector of each operand; a single 2-byte element takes a word.
int64_t vector_words(std::span<const Operand> operands, int64_t width) {
    int64_t words = 0;
    for (const Operand& operand : operands) words += divide_up(width * operand.bytes(), 4);
    return words;
}

/// Returns the dynamic shared memory of the row kernel, as Layout<P> of templates/cuda/plan.cuh computes it.
int64_t row_kernel_shared_bytes(const Spec& spec, const OperandList& operands, int row_sums, bool has_sums,
                                const CudaSchedule& s, int64_t steps, int64_t slot) {
    const auto math = static_cast<int64_t>(size_of(spec.compute()));
    const int64_t threads = int64_t{s.threads_per_row} * s.rows_per_block;
    const bool staged = s.staging != CudaStaging::registers;
    const bool crosses_warps = s.threads_per_row > 32 || s.cluster > 1;
    const auto inputs = static_cast<int64_t>(operands.rows().size());

    const int64_t stages = staged ? s.pipeline_depth * s.rows_per_block * slot * element_bytes(operands.matrices()) : 0;
    const bool shifted = spec.cols % s.vector_width != 0, scatters = steps * s.vector_width <= 4;
    const bool merges = (s.rows_per_block > 1 || (shifted && !scatters)) && has_sums;
    const bool pads = s.threads_per_row >= 16;
    const int64_t merge_lanes = s.threads_per_row + (pads ? std::max<int64_t>(128 / math / s.vector_width, 1) : 0);
    const int64_t merge = merges ? s.rows_per_block * steps * s.vector_width * merge_lanes * math : 0;
    int64_t bytes = round_up(std::max(stages, merge), 16);
    if (s.column_memory == CudaMemory::shared) bytes += round_up(slot * element_bytes(operands.columns()), 16);
    if (crosses_warps) {
        const int64_t warps = divide_up(s.threads_per_row, 32);
        bytes += round_up(2 * s.rows_per_block * s.cluster * warps * row_sums * math, 16);
    }
    const int64_t readers = s.threads_per_row < 32 ? s.rows_per_block : threads / 32;
    if (staged) bytes += s.pipeline_depth * readers * inputs * 8;
    const int64_t stage_barriers = s.staging == CudaStaging::bulk ? s.pipeline_depth * s.rows_per_block : 0;
    const int64_t scalar_slots = operands.scalar_outputs().empty() ? 0 : threads / 32;
    return bytes + 8 * (stage_barriers + (s.cluster > 1 ? 2 : 0) + scalar_slots);
}

int64_t data_registers(const Spec& spec, const OperandList& operands, const ElementWork& work, const CudaSchedule& s,
                       int64_t steps) {
    const int64_t math_words = static_cast<int64_t>(size_of(spec.compute())) / 4;
    const int64_t matrices = vector_words(operands.matrices(), s.vector_width);
    const int64_t columns = vector_words(operands.columns(), s.vector_width);
    int64_t sums = 0;  // per vector
    for (const int64_t run : work.sum_runs) sums += run > 1 && run % s.vector_width == 0 ? 1 : s.vector_width;
    int64_t words = steps * sums * math_words;
    if (s.staging == CudaStaging::registers && s.row_memory == CudaMemory::registers) {
        words += s.pipeline_depth * steps * matrices;
    } else if (s.row_memory == CudaMemory::registers) {
        words += steps * matrices;
    }
    return words + (s.column_memory == CudaMemory::registers ? steps * columns : 0);
}

/// Returns the registers that ptxas may give to a thread if this many blocks are to run on a multiprocessor. Example:
/// two blocks of 288 threads are 18 warps, of which one scheduler has 5, so a thread gets 96 registers.
int64_t register_limit(int64_t threads, int64_t blocks_per_sm) {
    const int64_t warps_of_scheduler = divide_up(divide_up(threads, 32) * blocks_per_sm, 4);
    return std::min(registers_of_scheduler / (32 * warps_of_scheduler) / 8 * 8, most_registers);
}

}  // namespace

int64_t vectors_of_row(int64_t cols, int width) { return divide_up(cols + (cols % width != 0 ? width - 1 : 0), width); }

PlannedPath measure_cuda(const Spec& spec, const OperandList& operands, int row_sums, const ElementWork& work,
                         const CudaSchedule& s) {
    const bool two_pass = s.form == CudaForm::two_pass;
    PlannedPath planned{.suffix = "", .schedule = s};
    const int64_t vectors = divide_up(vectors_of_row(spec.cols, s.vector_width), s.cluster);
    planned.steps = two_pass ? 1 : divide_up(vectors, s.threads_per_row);
    const int64_t slot = round_up(planned.steps * s.threads_per_row * s.vector_width, 16);
    if (!two_pass) {
        planned.shared_bytes =
            row_kernel_shared_bytes(spec, operands, row_sums, !work.sum_runs.empty(), s, planned.steps, slot);
    }
    const int64_t math_words = static_cast<int64_t>(size_of(spec.compute())) / 4;
    const int64_t threads = int64_t{s.threads_per_row} * s.rows_per_block;
    planned.register_limit = register_limit(threads, s.blocks_per_sm);
    planned.data_registers = data_registers(spec, operands, work, s, planned.steps);
    if (!two_pass) planned.kept_registers = planned.steps * s.vector_width * work.kept_elements * math_words;
    const auto matrices = static_cast<int64_t>(operands.matrices().size());
    const auto outputs = std::max<int64_t>(static_cast<int64_t>(operands.matrix_outputs().size()), 1);
    planned.work_registers = s.vector_width * (matrices + outputs) * math_words;
    return planned;
}

}  // namespace normjit::plan
