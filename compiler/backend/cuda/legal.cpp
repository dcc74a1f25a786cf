// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/legal.h"

#include "plan/cuda.h"
#include "support/divide.h"
#include "support/try.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

constexpr int cluster_sm = 90;  // for clusters and bulk copies

/// The most elements of a row in one thread. With more, the unrolled loops outgrow the instruction cache.
constexpr int64_t most_elements = 64;

template <class... Args>
Status refuse(fmt::format_string<Args...> reason, Args&&... args) {
    return invalid_argument("schedule: " + fmt::format(reason, std::forward<Args>(args)...));
}

/// Returns the fewest bytes that one load of one of the tensors moves.
int64_t least_vector_bytes(std::span<const Operand> operands, int width) {
    int64_t least = INT64_MAX;
    for (const Operand& operand : operands) least = std::min(least, width * operand.bytes());
    return least;
}

Status check_threads(const CudaSchedule& s) {
    const int threads = s.threads_per_row * s.rows_per_block;
    const bool whole_warps = s.threads_per_row % 32 == 0;
    if (!whole_warps && (s.threads_per_row > 32 || !std::has_single_bit(static_cast<unsigned>(s.threads_per_row)))) {
        return refuse("threads_per_row={}: must be 1, 2, 4, 8, 16 or a multiple of 32", s.threads_per_row);
    }
    if (threads % 32 != 0 || threads > 1024) {
        return refuse("threads_per_row={} times rows_per_block={}: must be a multiple of 32, at most 1024",
                      s.threads_per_row, s.rows_per_block);
    }
    if (s.threads_per_row > 32 && s.rows_per_block > 15) {
        return refuse("rows_per_block={}: at most 15 with more than 32 threads_per_row", s.rows_per_block);
    }
    if (int64_t{threads} * s.blocks_per_sm > 2048) {
        return refuse("blocks_per_sm={}: {} threads a block; a multiprocessor has 2048", s.blocks_per_sm, threads);
    }
    return {};
}

Status check_two_pass(const CudaSchedule& s) {
    if (s.threads_per_row % 32 != 0)
        return refuse("threads_per_row={}: form=two_pass needs whole warps", s.threads_per_row);
    if (s.rows_per_block != 1 || s.cluster != 1) return refuse("form=two_pass needs rows_per_block=1 and cluster=1");
    if (s.staging != CudaStaging::registers || s.row_memory != CudaMemory::registers ||
        s.column_memory != CudaMemory::registers) {
        return refuse("form=two_pass needs staging=registers row_memory=registers column_memory=registers");
    }
    if (s.pace != 0) return refuse("pace={}: form=two_pass has no pacing", s.pace);
    if (s.rows_per_team != 0) return refuse("rows_per_team={}: form=two_pass has no teams", s.rows_per_team);
    return {};
}

Status check_staging(const OperandList& operands, const CudaSchedule& s, const Target& target) {
    const int64_t bytes = least_vector_bytes(operands.matrices(), s.vector_width);
    const int64_t column_bytes = least_vector_bytes(operands.columns(), s.vector_width);
    if (s.staging == CudaStaging::registers && s.row_memory == CudaMemory::shared) {
        return refuse("row_memory=shared: needs staging=async or staging=bulk");
    }
    if (s.row_memory == CudaMemory::global && (s.staging != CudaStaging::registers || s.pipeline_depth != 1)) {
        return refuse("row_memory=global: needs staging=registers pipeline_depth=1");
    }
    if (s.column_memory == CudaMemory::shared && column_bytes < 4) {
        return refuse("column_memory=shared: needs vectors of at least 4 bytes; vector_width={} has {}", s.vector_width,
                      column_bytes);
    }
    if (s.staging == CudaStaging::async && bytes < 4) {
        return refuse("staging=async: needs vectors of at least 4 bytes; vector_width={} has {}", s.vector_width,
                      bytes);
    }
    if (s.staging == CudaStaging::bulk && bytes % 16 != 0) {
        return refuse("staging=bulk: needs vectors with a multiple of 16 bytes; vector_width={} has {}", s.vector_width,
                      bytes);
    }
    if (s.staging == CudaStaging::bulk && s.row_memory == CudaMemory::shared && s.pipeline_depth < 2) {
        return refuse("pipeline_depth=1: staging=bulk with row_memory=shared needs another stage for the next row");
    }
    if (s.staging == CudaStaging::bulk && target.cuda.sm < cluster_sm) return refuse("staging=bulk: needs sm_90");
    return {};
}

/// Checks a path in which a row may start anywhere in a vector (CudaPath::shifted).
Status check_shifted(const Spec& spec, const OperandList& operands, const CudaSchedule& s) {
    constexpr int64_t vector_bytes = 16;
    const auto fits = [&](const Operand& operand) {
        return !operand.is_matrix() || s.vector_width * operand.bytes() == vector_bytes;
    };
    const bool all_fit = std::ranges::all_of(operands, fits);
    if (spec.invariant) {
        return refuse("vector_width={}: invariant=1 needs one that divides cols={}", s.vector_width, spec.cols);
    }
    if (!all_fit || s.form != CudaForm::rows || s.staging != CudaStaging::async) {
        return refuse("vector_width={}: must divide cols={}, or be 16 bytes of every matrix with staging=async",
                      s.vector_width, spec.cols);
    }
    if (s.rows_per_block > 1 && s.column_memory == CudaMemory::shared) {
        return refuse("column_memory=shared: needs rows_per_block=1 when vector_width={} does not divide cols={}",
                      s.vector_width, spec.cols);
    }
    return {};
}

Status check_sharing(const CudaSchedule& s, const OperandList& operands, const Target& target) {
    if (s.cluster > 1 && target.cuda.sm < cluster_sm) return refuse("cluster={}: needs sm_90", s.cluster);
    if (s.cluster > 1 && s.rows_per_block > 1) return refuse("cluster={}: needs rows_per_block=1", s.cluster);
    if (s.pace > 0 && operands.reductions().empty()) {
        return refuse("pace={}: needs an output without rows, whose final reduce resets the counter", s.pace);
    }
    if (s.rows_per_team > 0 && !operands.reductions().empty()) {
        return refuse(
            "rows_per_team={}: must be 0 with an output without rows, for which there are only row_groups partials",
            s.rows_per_team);
    }
    return {};
}

/// Checks that a group of columns lies in adjacent lanes of one warp.
Status check_groups(const Spec& spec, const CudaSchedule& s) {
    constexpr int64_t warp = 32;
    const int64_t columns = spec.group_columns(), lanes = columns / s.vector_width;
    if (lanes > warp)
        return refuse("vector_width={}: groups of {} columns need at least {}, so that a warp holds one",
                      s.vector_width, columns, columns / warp);
    if (s.threads_per_row % lanes != 0)
        return refuse("threads_per_row={}: groups of {} columns need a multiple of {} with vector_width={}",
                      s.threads_per_row, columns, lanes, s.vector_width);
    if (s.cluster > 1 && divide_up(spec.cols / s.vector_width, s.cluster) % lanes != 0)
        return refuse("cluster={}: groups of {} columns would lie in two blocks", s.cluster, columns);
    return {};
}

}  // namespace

Status check(const Spec& spec, const OperandList& operands, const plan::PlannedPath& planned, const Target& target) {
    const CudaSchedule& s = planned.schedule;
    if (spec.has_neighbours() && (s.vector_width % 2 != 0 || spec.cols % s.vector_width != 0))
        return refuse("vector_width={}: neighbour() needs an even one that divides cols={}", s.vector_width, spec.cols);
    if (spec.cols % s.vector_width != 0) NORMJIT_RETURN_IF_ERROR(check_shifted(spec, operands, s));
    NORMJIT_RETURN_IF_ERROR(check_threads(s));
    if (s.form == CudaForm::two_pass) NORMJIT_RETURN_IF_ERROR(check_two_pass(s));
    NORMJIT_RETURN_IF_ERROR(check_staging(operands, s, target));
    NORMJIT_RETURN_IF_ERROR(check_sharing(s, operands, target));
    if (spec.group_columns() > 0) NORMJIT_RETURN_IF_ERROR(check_groups(spec, s));
    if (planned.steps * s.vector_width > most_elements) {
        return refuse("threads_per_row={} cluster={}: {} elements of a row per thread; at most {}", s.threads_per_row,
                      s.cluster, planned.steps * s.vector_width, most_elements);
    }
    if (planned.shared_bytes > target.cuda.shared_bytes) {
        return refuse("{} bytes of shared memory; the target has {}", planned.shared_bytes, target.cuda.shared_bytes);
    }
    const int64_t needed = planned.data_registers + plan::least_other_registers;
    if (needed > planned.register_limit) {
        return refuse("blocks_per_sm={}: a thread needs {} registers or more and gets {}", s.blocks_per_sm, needed,
                      planned.register_limit);
    }
    return {};
}

/// Each block occupies 1 KiB more than it requests, and a multiprocessor has 1 KiB more than a block may request.
bool shared_suffices(const plan::PlannedPath& planned, const Target& target) {
    constexpr int64_t reserved = 1024;
    return planned.schedule.blocks_per_sm * (planned.shared_bytes + reserved) <= target.cuda.shared_bytes + reserved;
}

Status check(const Spec& spec, const plan::CudaPlan& cuda, const Target& target) {
    const OperandList operands(spec);
    for (const plan::PlannedPath& planned : cuda.paths) {
        NORMJIT_RETURN_IF_ERROR(check(spec, operands, planned, target));
        if (cuda.one_group && planned.schedule.pace > 0)
            return refuse("pace={}: row_groups=1 has no final reduce, which resets the counter", planned.schedule.pace);
    }
    return {};
}

}  // namespace normjit::backend::cuda
