// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/source.h"

#include "backend/cuda/expression.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

using ir::Op;
using ir::Shape;
using ir::ValueId;
using plan::CudaVariant;
using plan::Sweep;

constexpr std::string_view device_function = "static __device__ __forceinline__ void";

std::string_view type_name(DType type) {
    constexpr std::string_view names[] = {"float", "bf16", "f16", "double"};
    return names[static_cast<size_t>(type)];
}

bool contains(const std::vector<ValueId>& ids, ValueId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

class Printer {
  public:
    explicit Printer(const plan::Plan& plan)
        : plan_(plan), function_(plan.function), operands_(plan.cuda.operands), expressions_(plan) {}

    std::string text() {
        header();
        formula();
        for (const CudaVariant& variant : plan_.cuda.variants) schedule(variant);
        for (const CudaVariant& variant : plan_.cuda.variants) {
            for (const CudaLaunch& launch : variant.path.launches) {
                if (launch.grid != CudaGrid::columns_by_sums) kernel(variant, launch);
            }
        }
        final_reduce();
        return std::move(out_);
    }

  private:
    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
        out_ += fmt::format(format, std::forward<Args>(args)...) + "\n";
    }

    int levels() const { return static_cast<int>(plan_.sweeps.size()) - 1; }

    void header() {
        line("// {}", to_text(plan_.spec));
        line("// {}", to_text(plan_.schedule));
        line("// {}", to_text(plan_.target));
        for (const CudaForm form : {CudaForm::rows, CudaForm::streaming}) {
            const auto has_form = [&](const CudaVariant& variant) { return variant.schedule.form == form; };
            if (std::ranges::any_of(plan_.cuda.variants, has_form))
                line("#include \"{}_kernel.cuh\"", form == CudaForm::rows ? "row" : "streaming");
        }
        if (!plan_.finals.empty()) line("#include \"final_reduce.cuh\"");
        line("using namespace normjit;\n");
    }

    void list(std::string_view name, const std::vector<Tensor>& tensors) {
        std::vector<std::string_view> types, names;
        for (const Tensor tensor : tensors) {
            types.push_back(type_name(*plan_.spec.dtypes[tensor]));
            names.push_back(normjit::name(tensor));
        }
        line("    using {} = List<{}>;{}{}", name, fmt::join(types, ", "), names.empty() ? "" : "  // ",
             fmt::join(names, ", "));
    }

    /// Per sweep, a bit for each of the tensors that it reads.
    std::string masks(const std::vector<Tensor>& tensors) const {
        std::vector<unsigned> masks;
        for (const Sweep& sweep : plan_.sweeps) {
            unsigned mask = 0;
            for (size_t i = 0; i < tensors.size(); ++i) {
                if (reads(sweep, tensors[i])) mask |= 1u << i;
            }
            masks.push_back(mask);
        }
        return fmt::format("{}", fmt::join(masks, ", "));
    }

    bool reads(const Sweep& sweep, Tensor tensor) const {
        for (const auto* ids : {&sweep.elements, &sweep.column_values}) {
            for (const ValueId id : *ids) {
                if (function_[id].op == Op::input && function_[id].tensor == tensor) return true;
            }
        }
        return false;
    }

    void formula() {
        const auto dx = plan_.spec.dtypes[Tensor::dx];
        line("struct Formula {{");
        line("    using Math = {};", type_name(function_.compute));
        list("Matrices", operands_.matrices);
        list("Columns", operands_.columns);
        list("Rows", operands_.rows);
        line("    using Output = {};{}", dx ? type_name(*dx) : "none", dx ? "  // dx" : "");
        list("ColumnOutputs", operands_.column_outputs);
        line("    static constexpr int cols = {}, levels = {}, row_sums = {}, column_sweep = {};", plan_.spec.cols,
             levels(), plan_.cuda.row_sums, plan_.column_sweep);
        line("    static constexpr uint32 matrices_read[] = {{{}}}, columns_read[] = {{{}}};",
             masks(operands_.matrices), masks(operands_.columns));
        line("    static constexpr bool dependents = {};", plan_.cuda.dependents);
        line("    static constexpr int row_bytes = {};", plan_.geometry.row_bytes);
        if (!plan_.finals.empty()) {
            const plan::CudaFinal& final = plan_.cuda.final;
            line("    static constexpr int final_threads = {}, final_columns = {}, final_loads = {};", final.threads,
                 final.columns, final.loads);
        }
        if (levels() > 0) {
            line("    static constexpr Math per_column = {};  // 1 / cols",
                 literal(1.0 / static_cast<double>(plan_.spec.cols), function_.compute));
        }
        line("");
        row_struct();
        begin();
        for (int i = 0; i <= levels(); ++i) {
            element(i);
            if (i < levels()) reduced(i);
        }
        line("}};\n");
    }

    void row_struct() {
        std::vector<std::string> names;
        for (const ValueId id : plan_.row_slots) names.push_back(expressions_.name(id));
        if (names.empty()) {
            line("    struct Row {{}};");
        } else {
            line("    struct Row {{ Math {}; }};", fmt::join(names, ", "));
        }
    }

    void assign_row(ValueId id, const std::string& value) {
        const bool kept = expressions_.in_row(id);
        line("        {}{} = {};", kept ? "row." : "const Math ", expressions_.name(id), value);
    }

    /// The arithmetic on row values before sweep `index`.
    void row_values(int index) {
        for (const ValueId id : plan_.sweeps[static_cast<size_t>(index)].row_values) {
            if (function_[id].op == Op::input || expressions_.name(id).empty()) continue;
            assign_row(id, expressions_.body(id));
        }
    }

    void begin() {
        line("    {} begin(Row& row, const Math* in) {{", device_function);
        for (size_t i = 0; i < operands_.rows.size(); ++i) {
            for (ValueId id = 0; id < function_.size(); ++id) {
                const ir::Value& value = function_[id];
                if (value.op == Op::input && value.tensor == operands_.rows[i])
                    assign_row(id, fmt::format("in[{}]", i));
            }
        }
        row_values(0);
        line("    }}");
    }

    /// "const Math x = m[0], dy = m[1], gamma = c[0];", of what the sweep reads.
    void element_inputs(const Sweep& sweep) {
        std::vector<std::string> definitions;
        const auto add = [&](const std::vector<Tensor>& tensors, std::string_view array) {
            for (size_t i = 0; i < tensors.size(); ++i) {
                if (reads(sweep, tensors[i]))
                    definitions.push_back(fmt::format("{} = {}[{}]", normjit::name(tensors[i]), array, i));
            }
        };
        add(operands_.matrices, "m");
        add(operands_.columns, "c");
        if (!definitions.empty()) line("        const Math {};", fmt::join(definitions, ", "));
    }

    void element(int index) {
        const Sweep& sweep = plan_.sweeps[static_cast<size_t>(index)];
        line("    {} element(Index<{}>, const Row& row, const Math* m, const Math* c, Values<Formula>& out) {{",
             device_function, index);
        element_inputs(sweep);
        for (ValueId id = 0; id < function_.size(); ++id) {
            if (!contains(sweep.elements, id) && !contains(sweep.column_values, id)) continue;
            const Op op = function_[id].op;
            if (op == Op::input || op == Op::constant || expressions_.name(id).empty()) continue;
            line("        const Math {} = {};", expressions_.name(id), expressions_.body(id));
        }
        const int sums = index < levels() ? plan_.cuda.row_sums : 0;
        for (int s = 0; s < sums; ++s) {
            const bool there = static_cast<size_t>(s) < sweep.row_means.size();
            line("        out.sum[{}] = {};", s, there ? operand(sweep.row_means[static_cast<size_t>(s)]) : "0");
        }
        column_sums(sweep);
        for (const ir::Output& store : sweep.stores) line("        out.output = {};", expressions_.use(store.value));
        line("    }}");
    }

    void column_sums(const Sweep& sweep) {
        if (sweep.column_sums.empty()) return;
        for (size_t i = 0; i < operands_.column_outputs.size(); ++i) {
            const auto final = std::ranges::find(plan_.finals, operands_.column_outputs[i], &plan::FinalReduce::output);
            line("        out.column[{}] = {};", i, operand(sweep.column_sums[static_cast<size_t>(final->sum)]));
        }
    }

    std::string operand(ValueId id) const { return expressions_.use(function_[id].operands[0]); }

    void reduced(int index) {
        const Sweep& sweep = plan_.sweeps[static_cast<size_t>(index)];
        line("    {} reduced(Index<{}>, Row& row, const Math* sum) {{", device_function, index);
        for (size_t s = 0; s < sweep.row_means.size(); ++s) {
            assign_row(sweep.row_means[s], fmt::format("sum[{}] * per_column", s));
        }
        row_values(index + 1);
        line("    }}");
    }

    static std::string_view struct_of(const CudaVariant& variant) {
        return variant.suffix.empty() ? "Plan" : "NarrowPlan";
    }

    void schedule(const CudaVariant& variant) {
        const CudaSchedule& s = variant.schedule;
        line("struct {} : Formula {{", struct_of(variant));
        line(
            "    static constexpr int threads_per_row = {}, rows_per_block = {}, cluster = {}, vector_width = {}, "
            "stages = {};",
            s.threads_per_row, s.rows_per_block, s.cluster, s.vector_width, s.stages);
        line("    static constexpr Staging staging = Staging::{};", normjit::name(s.staging));
        line("    static constexpr Keep keep = Keep::{}, keep_columns = Keep::{};", normjit::name(s.keep),
             normjit::name(s.keep_columns));
        line("    static constexpr int pace = {}, pace_slack = {}, shared_bytes = {};", s.pace, s.pace_slack,
             variant.shared_bytes);
        line("}};\n");
    }

    static std::string_view skeleton(CudaGrid grid) {
        switch (grid) {
            case CudaGrid::row_groups:
                return "row_kernel";
            case CudaGrid::rows:
                return "streaming_rows";
            case CudaGrid::columns_by_row_groups:
                return "streaming_columns";
            case CudaGrid::columns_by_sums:
                break;
        }
        return "final_reduce";
    }

    void kernel(const CudaVariant& variant, const CudaLaunch& launch) {
        std::string bounds = fmt::format("{}", launch.threads);
        if (launch.grid != CudaGrid::columns_by_sums) bounds += fmt::format(", {}", variant.schedule.blocks_per_sm);
        line("extern \"C\" __global__ void __launch_bounds__({}) {}(const __grid_constant__ Arguments a) {{", bounds,
             launch.entry);
        line("    normjit::{}<{}>(a);", skeleton(launch.grid), struct_of(variant));
        line("}}\n");
    }

    /// All variants' last launch.
    void final_reduce() {
        const CudaVariant& variant = plan_.cuda.variants.front();
        if (!plan_.finals.empty()) kernel(variant, variant.path.launches.back());
    }

    const plan::Plan& plan_;
    const ir::Function& function_;
    const plan::CudaOperands& operands_;
    const Expressions expressions_;
    std::string out_;
};

}  // namespace

std::string print_source(const plan::Plan& plan) { return Printer(plan).text(); }

}  // namespace normjit::backend::cuda
