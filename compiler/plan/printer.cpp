// SPDX-License-Identifier: Apache-2.0
#include "artifact/nontemporal_staging.h"
#include "plan/plan.h"
#include "support/lines.h"

#include <fmt/format.h>

namespace normjit::plan {

namespace {

using ir::Op;

class Printer : Lines {
  public:
    explicit Printer(const Plan& plan)
        : plan_(plan),
          cpu_(std::get_if<CpuSchedule>(&plan.schedule.device)),
          names_(ir::names(plan.function)),
          statements_(ir::statements(plan.function)) {}

    std::string text() {
        line("plan {}", to_text(plan_.spec));
        line("operands {}", operands());
        line("schedule {}", to_text(plan_.schedule));
        line("target {}", to_text(plan_.target));
        if (cpu_ != nullptr) {
            line("phase rows: at most {} row groups, each in blocks of {} rows", plan_.geometry.row_groups,
                 cpu_->row_block);
        } else {
            const int each = std::get<CudaSchedule>(plan_.schedule.device).rows_per_team;
            line("phase rows: at most {} row groups{}", plan_.geometry.row_groups,
                 each == 0 ? "" : fmt::format(", or more, whose teams have {} rows each", each));
        }
        if (plan_.geometry.cpu.split_rows > 0) {
            line("or, up to {} rows, {} a phase for each sweep over {} rows: {} parts of {} columns, nothing kept",
                 plan_.geometry.cpu.split_rows, thread_groups(), plan_.geometry.cpu.block_rows,
                 plan_.geometry.cpu.column_ranges, plan_.geometry.cpu.range_cols);
        }
        if (cpu_ != nullptr && cpu_->overlap == 1) {
            line("sweep 1 over a block of rows takes sweep 0 over the next one along, if that is full");
        }
        if (cpu_ != nullptr) cached_columns();
        for (size_t i = 0; i < plan_.sweeps.size(); ++i) sweep(i);
        for (const bool per_slice : {false, true}) final_reduce(epilogue_of(plan_, per_slice), per_slice);
        if (cpu_ == nullptr) {
            for (const PlannedPath& each : plan_.cuda().paths) path(each);
        }
        workspace();
        return std::move(out_);
    }

  private:
    void statements(const std::vector<ValueId>& ids, std::string_view indent) {
        for (const ValueId id : ids) {
            if (statements_[id]) line("{}{}", indent, *statements_[id]);
        }
    }

    void cached_columns() {
        for (const ValueId id : plan_.cpu().cached_columns) line("  per row group: keep {}", names_[id]);
    }

    std::string operands() const {
        std::string text;
        for (const Operand& operand : plan_.operands) {
            text +=
                fmt::format("{}{} {}: {}{}", text.empty() ? "" : ", ", operand.is_written() ? "out" : "in",
                            operand.name, normjit::name(operand.dtype),
                            operand.is_per_slice() ? "[S,N]" : ir::shape_text(plan_.function.operand(operand.tensor)));
        }
        return text;
    }

    std::string inputs(const Sweep& sweep) const {
        std::string text;
        for (const auto* ids : {&sweep.elements, &sweep.column_values}) {
            for (const ValueId id : *ids) {
                const ir::Value& value = plan_.function[id];
                if (value.op == Op::input) text += (text.empty() ? "" : ", ") + value.name;
            }
        }
        return text;
    }

    void sweep(size_t index) {
        const Sweep& sweep = plan_.sweeps[index];
        const ir::Function& function = plan_.function;
        for (const ValueId id : sweep.row_values) {
            if (function[id].op == Op::input) line("  per row: read {}", function[id].name);
        }
        statements(sweep.row_values, "  per row: ");
        for (const ir::Output& output : sweep.row_stores) {
            line("  per row: store {} as {}", function.operand(output.tensor).name,
                 normjit::name(function.dtype(output.tensor)));
        }
        if (sweep.is_last() && cpu_ != nullptr && !plan_.cpu().cached_elements.empty())
            line("  per row block: kept on the stack: {}", kept());
        line("  sweep {}{}: {} {}{}", index, order(sweep), index == 0 ? "read" : "re-read", inputs(sweep),
             index == 0 ? "" : source());
        statements(sweep.column_values, "    per column: ");
        statements(sweep.elements, "    ");
        statements(sweep.row_reductions, "    ");
        statements(sweep.partials, "    ");
        for (const ir::Output& output : sweep.stores) {
            line("    store {} as {}{}", function.operand(output.tensor).name,
                 normjit::name(function.dtype(output.tensor)), past_caches(output.tensor));
        }
    }

    std::string past_caches(Tensor tensor) const {
        if (plan_.geometry.cpu.nontemporal_bytes < 0 || plan_.operands.of(tensor).axes.has_groups()) return "";
        const Operand* staged = staged_output(plan_.spec.cols, plan_.operands, *cpu_);
        if (staged != nullptr && staged->tensor != tensor) return "";
        return fmt::format(", non-temporal from {} bytes on{}", plan_.geometry.cpu.nontemporal_bytes,
                           staged == nullptr ? ""
                                             : fmt::format(", by way of {} bytes of the stack",
                                                           stack_bytes(plan_.spec.cols, *staged, *cpu_)));
    }

    std::string thread_groups() const {
        if (plan_.geometry.cpu.thread_groups == 1) return "in one thread group";
        return fmt::format("in at most {} thread groups, each with rows and partials of its own,",
                           plan_.geometry.cpu.thread_groups);
    }

    std::string kept() const {
        std::string text;
        for (const ValueId id : plan_.cpu().cached_elements) {
            text += (text.empty() ? "" : ", ") + names_[id];
        }
        return text;
    }

    std::string order(const Sweep& sweep) const {
        if (cpu_ == nullptr) return "";
        if (const int64_t group = plan_.spec.group_columns(); group > 0 && sweep.is_last())
            return fmt::format(" (rows, then groups of {} columns, twice)", group);
        return sweep.is_last() ? fmt::format(" (strips of {} vectors, then rows)", cpu_->strip)
                               : fmt::format(" (rows, {} vectors a step)", cpu_->unroll);
    }

    /// Returns where later sweeps read a row from, as text.
    std::string source() const {
        if (cpu_ != nullptr) return " from cache";
        const auto& cuda = std::get<CudaSchedule>(plan_.schedule.device);
        if (cuda.form == CudaForm::two_pass) return " from memory";
        constexpr std::string_view sources[] = {" from registers", " from shared memory", " from L1"};
        return std::string(sources[static_cast<size_t>(cuda.row_memory)]);
    }

    /// Prints the launches of a path, and what a thread and a block hold.
    void path(const PlannedPath& planned) {
        line("path of vectors of {} elements: {} vectors a thread, {} of {} registers hold data",
             planned.path.vector_width, planned.steps, planned.data_registers, planned.register_limit);
        for (const CudaLaunch& launch : planned.path.launches) {
            const std::string blocks = launch.grid == CudaGrid::row_groups || launch.grid == CudaGrid::one_group
                                           ? ""
                                           : fmt::format(" {}", launch.blocks);
            line("    launch {}: grid {}{}, {} threads, cluster {}, {} bytes of shared memory{}", launch.entry,
                 normjit::name(launch.grid), blocks, launch.threads, launch.cluster, launch.shared_bytes,
                 launch.dependent ? ", overlaps the one before" : "");
        }
    }

    void final_reduce(const Epilogue& epilogue, bool per_slice) {
        if (epilogue.stores.empty() && epilogue.scalars.empty()) return;
        line("phase final_reduce{}: tasks of {} columns", per_slice ? ", of each slice" : "",
             plan_.geometry.final_cols);
        for (size_t k = 0; k < epilogue.sums.size(); ++k) {
            if (epilogue.sums[k] == ir::no_value) continue;
            const bool is_scalar = plan_.function[epilogue.sums[k]].shape == ir::Shape::scalar;
            line("    {} = {} of partial {} over the row groups", names_[epilogue.sums[k]],
                 is_scalar ? "largest" : "sum", k);
        }
        statements(epilogue.values, "    ");
        for (const auto* outputs : {&epilogue.stores, &epilogue.scalars}) {
            for (const ir::Output& output : *outputs) {
                line("    store {} as {}", plan_.function.operand(output.tensor).name,
                     normjit::name(plan_.function.dtype(output.tensor)));
            }
        }
    }

    std::string kept_arrays() const {
        if (cpu_ == nullptr) return "";
        return fmt::format(", {} segment sum(s) and {} kept column(s)", plan_.geometry.column_sums,
                           plan_.cpu().cached_columns.size());
    }

    void workspace() {
        const Geometry& geometry = plan_.geometry;
        line("workspace: {} partial(s){} of {}[{}] a row group; minimum {} bytes, preferred {} bytes",
             geometry.column_sums, kept_arrays(), normjit::name(plan_.function.compute), geometry.partial_cols,
             geometry.minimum_workspace(0), geometry.preferred_workspace(0));
        if (geometry.cuda.row_bytes > 0) line("    and {} bytes a row", geometry.cuda.row_bytes);
    }

    const Plan& plan_;
    const CpuSchedule* cpu_;  ///< null for CUDA
    const ir::PerValue<std::string> names_;
    const ir::PerValue<std::optional<std::string>> statements_;
};

}  // namespace

std::string print(const Plan& plan) { return Printer(plan).text(); }

}  // namespace normjit::plan
