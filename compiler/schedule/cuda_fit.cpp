// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_fit.h"

#include "backend/cuda/legal.h"

#include <algorithm>
#include <iterator>
#include <span>

namespace normjit::schedule {

namespace {

/// What ptxas of CUDA 13.0 needs on the architectures from `sm` on, found by compiling for each of them (NOTES N-709).
struct PtxasRegisters {
    int sm;
    int64_t always = 0;
    int64_t least_if_shifted = 0;  ///< if rows may start anywhere
    int64_t clusters = 0;          ///< more with clusters

    /// In addition, for problems that read one matrix and reduce nothing.
    struct Forward {
        int64_t least = 0, least_of_3_steps = 0, least_of_8_steps = 0;
        int64_t clusters = 0;
        int f16_from_steps = 8;  ///< the steps from which elements are converted from f16 long before they are used
    };
    Forward forward = {};
};
constexpr PtxasRegisters ptxas_13_0[] = {
    {.sm = 80, .always = 24, .least_if_shifted = 28, .forward = {.least = 28}},
    {.sm = 90},
    {.sm = 100,
     .least_if_shifted = 36,
     .forward = {.least_of_3_steps = 40, .least_of_8_steps = 60, .f16_from_steps = 0}},
    {.sm = 120,
     .least_if_shifted = 36,
     .clusters = 32,
     .forward = {.least_of_3_steps = 40, .least_of_8_steps = 60, .clusters = 16, .f16_from_steps = 0}},
};

const PtxasRegisters& ptxas_registers(const Target& target) {
    const PtxasRegisters* found = std::begin(ptxas_13_0);
    for (const PtxasRegisters& each : ptxas_13_0)
        if (each.sm <= target.cuda.sm) found = &each;
    return *found;
}

/// Returns how many elements of a row a thread has for each operand.
int64_t elements_of_thread(const plan::PlannedPath& planned) { return planned.steps * planned.schedule.vector_width; }

/// Returns how many operands have elements that are unpacked to f32.
int64_t narrow_among(std::span<const Operand> operands) {
    return std::ranges::count_if(operands, [](const Operand& operand) { return operand.bytes() < 4; });
}

}  // namespace

CudaFit::CudaFit(const Spec& spec, const Target& target, const OperandList& operands)
    : spec_(spec), target_(target), operands_(operands), features_(cuda_features(spec, operands, target)) {}

plan::PlannedPath CudaFit::measure(const CudaSchedule& s) const {
    return plan::measure_cuda(spec_, operands_, most_row_sums, features_.work, s);
}

bool CudaFit::is_legal(const CudaSchedule& s) const {
    return backend::cuda::check(spec_, operands_, measure(s), target_).ok();
}

bool CudaFit::is_comfortable(const CudaSchedule& s) const {
    const plan::PlannedPath planned = measure(s);
    return backend::cuda::check(spec_, operands_, planned, target_).ok() && registers_suffice(planned) &&
           backend::cuda::shared_suffices(planned, target_);
}

/// Returns how many registers ptxas needs in addition to data and work: for addresses and counters, and more for many
/// vectors per thread, for functions and quotients of elements, whose instructions overlap, for values that ptxas keeps,
/// and by architecture (NOTES N-709).
int64_t CudaFit::other_registers(const plan::PlannedPath& planned) const {
    constexpr int64_t addresses = 20, many_addresses = 40, functions = 16, many_steps = 36;
    const PtxasRegisters& its = ptxas_registers(target_);
    int64_t others = its.always + (planned.steps > 4 ? many_addresses : addresses);
    if (planned.steps >= 7) others += many_steps;
    if (features_.sums > 0) others += converted_f16(planned, operands_.matrices().size());
    if (features_.work.kept_elements > 0 || features_.work.divides) others += functions;
    others += kept_by_ptxas(planned);
    const bool is_shifted = spec_.cols % planned.schedule.vector_width != 0;
    if (is_shifted) others = std::max(others, its.least_if_shifted);
    if (planned.schedule.cluster > 1) others += its.clusters;
    return others;
}

/// Returns the same for problems that read one matrix and reduce nothing. Their kernels spill in other cases as well
/// (NOTES N-709).
int64_t CudaFit::other_registers_if_forward_like(const plan::PlannedPath& planned) const {
    constexpr int64_t cursors = 4;  // a team with a single row does not need them
    const PtxasRegisters& its = ptxas_registers(target_);
    const CudaSchedule& schedule = planned.schedule;
    int64_t others = other_registers(planned);
    if (schedule.rows_per_team == 1 && schedule.staging == CudaStaging::registers) others -= cursors;
    others = std::max(others, its.forward.least);
    const bool stays_in_shared = planned.data_registers == 0 && schedule.row_memory == CudaMemory::shared;
    if (stays_in_shared) return others;
    if (planned.steps >= 3) others = std::max(others, its.forward.least_of_3_steps);
    if (planned.steps >= 8) others = std::max(others, its.forward.least_of_8_steps);
    if (schedule.cluster > 1) others += its.forward.clusters;
    if (schedule.rows_per_team != 1 && schedule.column_memory == CudaMemory::registers)
        others = std::max(others, unpacked(planned));
    if (planned.steps >= its.forward.f16_from_steps)
        others += converted_f16(planned, operands_.columns().size() + operands_.matrices().size());
    return others;
}

bool CudaFit::registers_suffice(const plan::PlannedPath& planned) const {
    const bool is_forward_like = features_.matrices_read == 1 && !features_.reduces;
    const int64_t others = is_forward_like ? other_registers_if_forward_like(planned) : other_registers(planned);
    const int64_t data = planned.data_registers + planned.kept_registers;
    return data + std::max(planned.work_registers, addresses()) + others <= planned.register_limit;
}

/// Returns the registers for addresses if there are more matrices than a norm has. ptxas needs them before it works on
/// the elements of a vector, so only the larger of the two counts matters (NOTES N-709).
int64_t CudaFit::addresses() const {
    constexpr int64_t of_matrix = 6, usual_matrices = 3;
    const size_t matrices = operands_.matrices().size() + operands_.matrix_outputs().size();
    return of_matrix * std::max<int64_t>(static_cast<int64_t>(matrices) - usual_matrices, 0);
}

/// Returns the registers that a team with several rows needs besides its data if ptxas unpacks its columns once and
/// each row once: registers for addresses and counters, and for the elements of narrow types (NOTES N-709).
int64_t CudaFit::unpacked(const plan::PlannedPath& planned) const {
    constexpr int64_t addresses = 16;
    const int64_t narrow = narrow_among(operands_.matrices()) + narrow_among(operands_.columns());
    return addresses + elements_of_thread(planned) * narrow / 2;
}

/// Returns the registers for elements that ptxas converts from f16 long before they are used.
int64_t CudaFit::converted_f16(const plan::PlannedPath& planned, size_t operands) const {
    const auto is_f16 = [](const Operand& operand) { return operand.dtype == DType::f16; };
    if (std::ranges::none_of(operands_, is_f16)) return 0;
    return elements_of_thread(planned) * static_cast<int64_t>(operands) / 2;
}

/// Returns the registers for values that ptxas keeps from sweep to sweep or unpacks long before they are used: columns,
/// if there are more than a norm's scale and shift; elements of several matrices that many sweeps share; and
/// comparisons, with the values that depend on them (NOTES N-709).
int64_t CudaFit::kept_by_ptxas(const plan::PlannedPath& planned) const {
    constexpr int64_t usual_columns = 2;
    constexpr int usual_sweeps = 3;
    const int64_t elements = elements_of_thread(planned), narrow = narrow_among(operands_.columns());
    int64_t found = 2 * elements * features_.work.shared_comparisons;
    if (narrow > usual_columns && planned.schedule.column_memory == CudaMemory::registers)
        found += narrow * elements / 2;
    if (features_.is_formula && features_.work.sweeps > usual_sweeps && features_.matrices_read > 1)
        found += features_.matrices_read * elements;
    return found;
}

bool CudaFit::make_comfortable(CudaSchedule& s) const {
    while (!is_comfortable(s)) {
        const plan::PlannedPath planned = measure(s);
        const bool by_shared = s.staging != CudaStaging::registers && !backend::cuda::shared_suffices(planned, target_);
        if (by_shared && s.pipeline_depth > 2) {
            --s.pipeline_depth;
        } else if (features_.work.kept_elements > 0 && s.staging != CudaStaging::registers &&
                   s.row_memory == CudaMemory::registers && s.pipeline_depth > 1) {
            s.row_memory = CudaMemory::shared;  // the results of functions need the registers
        } else if (s.blocks_per_sm > 1) {
            --s.blocks_per_sm;
        } else if (s.pipeline_depth > 1 && (by_shared || s.staging == CudaStaging::registers)) {
            --s.pipeline_depth;
        } else {
            return false;
        }
    }
    return true;
}

void use_possible_staging(CudaSchedule& s, const CudaFeatures& problem, const Target& target) {
    const int bytes = s.vector_width * problem.element_bytes;
    const bool is_aligned = bytes % 16 == 0 && problem.cols % s.vector_width == 0;
    if (s.staging == CudaStaging::bulk && (!is_aligned || target.cuda.sm < 90)) s.staging = CudaStaging::async;
    if (s.staging == CudaStaging::async && bytes < 4) {
        s.staging = CudaStaging::registers;
        s.row_memory = s.column_memory = CudaMemory::registers;
        s.pipeline_depth = 1;
    }
}

}  // namespace normjit::schedule
