// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/rows.h"

#include "normjit/cpu_abi.h"

#include <algorithm>
#include <cstddef>

namespace normjit::backend::x64 {

namespace {

using plan::Sweep;
using Xbyak::Label;
using Xbyak::Reg64;
using Xbyak::RegExp;
using Xbyak::Zmm;

std::vector<ValueId> merged(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    std::vector<ValueId> all = a;
    all.insert(all.end(), b.begin(), b.end());
    std::sort(all.begin(), all.end());
    return all;
}

/// What a reduce sweep evaluates per vector: the columns' values anew for every row.
Piece reduce_piece(const Sweep& sweep) {
    return {
        .values = merged(sweep.column_values, sweep.elements), .sums = sweep.row_means, .stores = {}, .results = {}};
}

/// What the last sweep evaluates per vector; its columns' values live in registers for the whole strip.
Piece apply_piece(const Sweep& sweep) {
    return {.values = sweep.elements, .sums = sweep.column_sums, .stores = sweep.stores, .results = {}};
}

template <class Keep>
std::vector<ValueId> operands_where(const ir::Function& function, const std::vector<ValueId>& users, Keep keep) {
    std::vector<ValueId> found;
    for (const ValueId user : users) {
        for (const ValueId operand : function[user].operands) {
            if (operand == ir::no_value || !keep(operand)) continue;
            if (std::find(found.begin(), found.end(), operand) == found.end()) found.push_back(operand);
        }
    }
    return found;
}

/// The [M] values that the elements of a sweep read.
std::vector<ValueId> row_operands(const ir::Function& function, const Sweep& sweep) {
    return operands_where(function, sweep.elements, [&](ValueId id) { return function[id].shape == ir::Shape::rows; });
}

/// The [N] values that the elements of a sweep read.
Piece column_piece(const ir::Function& function, const Sweep& sweep) {
    return {.values = sweep.column_values,
            .sums = {},
            .stores = {},
            .results = operands_where(function, sweep.elements,
                                      [&](ValueId id) { return function[id].shape == ir::Shape::cols; })};
}

class RowsEmitter {
  public:
    RowsEmitter(Assembler& assembler, const plan::Plan& plan, Caching caching)
        : a_(assembler),
          plan_(plan),
          function_(plan.function),
          cpu_(std::get<CpuSchedule>(plan.schedule.device)),
          caching_(caching),
          full_(static_cast<int>(plan.spec.cols / a_.lanes())),
          tail_(static_cast<int>(plan.spec.cols % a_.lanes())) {
        assign_registers();
        lay_out_frame();
    }

    void emit() {
        Frame frame(a_, frame_bytes_);
        begin_group();
        Label block, done;
        a_.L(block);
        begin_block();
        load_row_inputs();
        for (const Sweep& sweep : plan_.sweeps) sweep.is_last() ? apply_sweep(sweep) : reduce_sweep(sweep);
        next_block(block);
        if (caching_ == Caching::stream) a_.sfence();
        frame.leave();
    }

  private:
    struct Vector {
        int64_t elements;  ///< from the column index on
        Lanes lanes;
    };

    // Registers. task_ and the column pointers are set once; the others belong to the loops.
    const Reg64 task_{Xbyak::Operand::RDI};
    const Reg64 column_{Xbyak::Operand::RSI};  ///< first column of the step or strip, in elements
    const Reg64 row_{Xbyak::Operand::RDX};     ///< row within the block
    const Reg64 partials_{Xbyak::Operand::R14};
    const Reg64 scratch_{Xbyak::Operand::RAX};

    void assign_registers() {
        std::vector<int> free = {Xbyak::Operand::R8,  Xbyak::Operand::R9,  Xbyak::Operand::R10, Xbyak::Operand::R11,
                                 Xbyak::Operand::RBX, Xbyak::Operand::RBP, Xbyak::Operand::R12, Xbyak::Operand::R13,
                                 Xbyak::Operand::R15, Xbyak::Operand::RCX};
        for (const Tensor tensor : all_tensors) {
            if (!uses(tensor)) continue;
            const TensorShape shape = normjit::info(tensor).shape;
            if (shape == TensorShape::cols && is_output(tensor)) continue;  // the final reduce's
            if (shape == TensorShape::rows) continue;                       // their pointers stay in the frame
            pointer_register_[tensor] = free.front();
            free.erase(free.begin());
        }
    }

    bool uses(Tensor tensor) const {
        const auto reads = [&](const ir::Value& value) { return value.op == ir::Op::input && value.tensor == tensor; };
        const auto writes = [&](const ir::Output& output) { return output.tensor == tensor; };
        return std::any_of(function_.values.begin(), function_.values.end(), reads) ||
               std::any_of(function_.outputs.begin(), function_.outputs.end(), writes);
    }

    void lay_out_frame() {
        const auto slot_bytes = static_cast<int>(plan_.row_slots.size()) * cpu_.row_block * a_.element_bytes();
        pointers_at_ = (slot_bytes + 7) / 8 * 8;
        block_rows_at_ = pointers_at_ + static_cast<int>(tensor_count) * 8;
        rows_left_at_ = block_rows_at_ + 8;
        first_block_at_ = rows_left_at_ + 8;
        frame_bytes_ = first_block_at_ + 8;
    }

    Reg64 pointer(Tensor tensor) const { return Reg64(pointer_register_[tensor]); }

    // Operands in memory
    Xbyak::Address frame(int offset) { return a_.qword[a_.rsp + offset]; }
    Xbyak::Address block_pointer(Tensor tensor) { return frame(pointers_at_ + static_cast<int>(index(tensor)) * 8); }
    Xbyak::Address task_data(Tensor tensor) {
        return a_.qword[task_ + offsetof(RowsTask, data) + index(tensor) * sizeof(void*)];
    }
    Xbyak::Address task_stride(Tensor tensor) {
        return a_.qword[task_ + offsetof(RowsTask, stride) + index(tensor) * sizeof(int64_t)];
    }
    bool has_slot(ValueId id) const {
        return std::find(plan_.row_slots.begin(), plan_.row_slots.end(), id) != plan_.row_slots.end();
    }
    RegExp slot(ValueId id) const {
        const auto found = std::find(plan_.row_slots.begin(), plan_.row_slots.end(), id) - plan_.row_slots.begin();
        return a_.rsp + row_ * a_.element_bytes() + static_cast<size_t>(found * cpu_.row_block * a_.element_bytes());
    }
    DType dtype(Tensor tensor) const { return *function_.dtypes[tensor]; }

    // The block loop
    void begin_group() {
        for (const Tensor tensor : all_tensors) {
            if (!uses(tensor)) continue;
            if (normjit::info(tensor).shape == TensorShape::cols) {
                if (!is_output(tensor)) a_.mov(pointer(tensor), task_data(tensor));
                continue;
            }
            a_.mov(scratch_, task_data(tensor));
            a_.mov(block_pointer(tensor), scratch_);
        }
        a_.mov(partials_, a_.qword[task_ + offsetof(RowsTask, partials)]);
        a_.mov(scratch_, a_.qword[task_ + offsetof(RowsTask, rows)]);
        a_.mov(frame(rows_left_at_), scratch_);
        a_.mov(frame(first_block_at_), 1);
        if (tail_ > 0) a_.set_tail(tail_);
    }

    void begin_block() {
        a_.mov(scratch_, frame(rows_left_at_));
        a_.mov(row_, cpu_.row_block);
        a_.cmp(scratch_, row_);
        a_.cmovg(scratch_, row_);
        a_.mov(frame(block_rows_at_), scratch_);
    }

    void next_block(const Label& block) {
        for (const Tensor tensor : all_tensors) {
            if (!uses(tensor) || normjit::info(tensor).shape == TensorShape::cols) continue;
            if (is_matrix(tensor)) {
                a_.imul(scratch_, task_stride(tensor), cpu_.row_block);
            } else {
                a_.mov(scratch_, cpu_.row_block * static_cast<int>(size_of(dtype(tensor))));
            }
            a_.add(block_pointer(tensor), scratch_);
        }
        a_.mov(frame(first_block_at_), 0);
        a_.sub(frame(rows_left_at_), cpu_.row_block);
        a_.jg(block, a_.T_NEAR);
    }

    // Loops over the rows of a block
    std::vector<Tensor> matrices(const Sweep& sweep) const {
        std::vector<Tensor> found;
        for (const ValueId id : sweep.elements) {
            if (function_[id].op == ir::Op::input) found.push_back(function_[id].tensor);
        }
        for (const ir::Output& output : sweep.stores) found.push_back(output.tensor);
        return found;
    }

    template <class Body>
    void for_each_row(const std::vector<Tensor>& matrices, Body body) {
        for (const Tensor tensor : matrices) a_.mov(pointer(tensor), block_pointer(tensor));
        a_.xor_(row_, row_);
        Label row;
        a_.L(row);
        body();
        for (const Tensor tensor : matrices) a_.add(pointer(tensor), task_stride(tensor));
        a_.inc(row_);
        a_.cmp(row_, frame(block_rows_at_));
        a_.jl(row, a_.T_NEAR);
    }

    /// body(vectors) for all columns, `width` full vectors at a time; the rest and the tail come last, together.
    template <class Body>
    void for_each_columns(int width, Body body) {
        a_.xor_(column_, column_);
        const int steps = full_ / width;
        const int step_columns = width * a_.lanes();
        if (steps > 0) {
            Label step;
            a_.L(step);
            body(vectors(width, false));
            a_.add(column_, step_columns);
            a_.cmp(column_, steps * step_columns);
            if (steps > 1) a_.jl(step, a_.T_NEAR);
        }
        const std::vector<Vector> rest = vectors(full_ % width, tail_ > 0);
        if (!rest.empty()) body(rest);
    }

    std::vector<Vector> vectors(int full, bool tail) const {
        std::vector<Vector> all;
        for (int u = 0; u < full; ++u) all.push_back({u * a_.lanes(), Lanes::all});
        if (tail) all.push_back({full * a_.lanes(), Lanes::tail});
        return all;
    }

    // Row values
    void load_row_inputs() {
        const std::vector<ValueId>& values = plan_.sweeps.front().row_values;
        if (values.empty()) return;
        for_each_row({}, [&] { compute_row_values(values, {}); });
    }

    /// Computes row values that follow from the sums in `means` and from slots; stores those that have a slot.
    void compute_row_values(const std::vector<ValueId>& values, const std::map<ValueId, Zmm>& means) {
        Registers registers = registers_without(means);
        Surroundings around{.live = means, .sums = {}, .load = {}, .store = {}};
        for (const auto& [id, reg] : means) {
            if (has_slot(id)) a_.store_lane(slot(id), reg);
        }
        const auto from_slot = operands_where(function_, values, [&](ValueId id) {
            return has_slot(id) && !means.contains(id) && std::find(values.begin(), values.end(), id) == values.end();
        });
        for (const ValueId id : from_slot) {
            around.live.insert_or_assign(id, registers.take());
            a_.broadcast(around.live.at(id), slot(id));
        }
        around.load = [&](const Zmm& to, ValueId id) {
            const Tensor tensor = function_[id].tensor;
            a_.mov(scratch_, block_pointer(tensor));
            a_.load_scalar(to, scratch_, row_, dtype(tensor));
        };
        evaluate(a_, registers, function_, {.values = values, .sums = {}, .stores = {}, .results = values}, around);
        for (const ValueId id : values) {
            if (has_slot(id)) a_.store_lane(slot(id), around.live.at(id));
        }
    }

    static Registers registers_without(const std::map<ValueId, Zmm>& live) {
        Registers registers;
        std::set<int> taken;
        for (const auto& [id, reg] : live) taken.insert(reg.getIdx());
        std::vector<Zmm> others;
        for (int i = 0; i < Assembler::value_registers; ++i) {
            const Zmm reg = registers.take();
            if (!taken.contains(reg.getIdx())) others.push_back(reg);
        }
        for (const Zmm& reg : others) registers.give_back(reg);
        return registers;
    }

    std::map<ValueId, Zmm> broadcast_row_operands(const Sweep& sweep, Registers& registers) {
        std::map<ValueId, Zmm> live;
        for (const ValueId id : row_operands(function_, sweep)) {
            live.insert_or_assign(id, registers.take());
            a_.broadcast(live.at(id), slot(id));
        }
        return live;
    }

    void load_vector(const Zmm& to, ValueId id, const Vector& vector) {
        const Tensor tensor = function_[id].tensor;
        a_.load(to, {pointer(tensor), column_, vector.elements}, dtype(tensor), vector.lanes);
    }

    // Sweeps that end in row means
    void reduce_sweep(const Sweep& sweep) {
        const Sweep& next = *(&sweep + 1);
        const Piece piece = reduce_piece(sweep);
        for_each_row(matrices(sweep), [&] {
            Registers registers;
            const std::map<ValueId, Zmm> rows = broadcast_row_operands(sweep, registers);
            const auto sums = take_sums(registers, sweep.row_means.size(), static_cast<size_t>(cpu_.unroll));
            for (const auto& lane_sums : sums) {
                for (const Zmm& sum : lane_sums) a_.zero(sum);
            }
            for_each_columns(cpu_.unroll, [&](const std::vector<Vector>& vectors) {
                for (size_t u = 0; u < vectors.size(); ++u) {
                    Surroundings around{.live = rows, .sums = {}, .load = {}, .store = {}, .lanes = vectors[u].lanes};
                    around.sums = sums[u % sums.size()];
                    around.load = [&](const Zmm& to, ValueId id) { load_vector(to, id, vectors[u]); };
                    evaluate(a_, registers, function_, piece, around);
                }
            });
            compute_row_values(next.row_values, fold_means(sweep, sums));
        });
    }

    /// sums[u][k]: accumulator of row mean k for the u-th vector of a step.
    static std::vector<std::vector<Zmm>> take_sums(Registers& registers, size_t means, size_t unroll) {
        std::vector<std::vector<Zmm>> sums(unroll);
        for (auto& of_vector : sums) {
            for (size_t k = 0; k < means; ++k) of_vector.push_back(registers.take());
        }
        return sums;
    }

    std::map<ValueId, Zmm> fold_means(const Sweep& sweep, const std::vector<std::vector<Zmm>>& sums) {
        std::map<ValueId, Zmm> means;
        for (size_t k = 0; k < sweep.row_means.size(); ++k) {
            const Zmm total = sums[0][k];
            for (size_t distance = 1; distance < sums.size(); distance *= 2) {
                for (size_t u = 0; u + distance < sums.size(); u += 2 * distance) {
                    a_.add(sums[u][k], sums[u][k], sums[u + distance][k]);
                }
            }
            a_.sum_lanes(total);
            a_.load_constant(Assembler::copy(), 1.0 / static_cast<double>(function_.cols));
            a_.mul(total, total, Assembler::copy());
            means.insert_or_assign(sweep.row_means[k], total);
        }
        return means;
    }

    // The last sweep
    void apply_sweep(const Sweep& sweep) {
        for_each_columns(cpu_.strip, [&](const std::vector<Vector>& strip) { apply_strip(sweep, strip); });
    }

    void apply_strip(const Sweep& sweep, const std::vector<Vector>& strip) {
        Registers registers;
        std::vector<std::map<ValueId, Zmm>> columns;
        std::vector<std::vector<Zmm>> sums;
        for (const Vector& vector : strip) columns.push_back(load_columns(sweep, vector, registers));
        for (size_t u = 0; u < strip.size(); ++u) sums.push_back(take_sums(registers, sweep.column_sums.size(), 1)[0]);
        begin_sums(strip, sums);
        const Piece piece = apply_piece(sweep);
        for_each_row(matrices(sweep), [&] {
            Registers in_row = registers;
            const std::map<ValueId, Zmm> rows = broadcast_row_operands(sweep, in_row);
            for (size_t u = 0; u < strip.size(); ++u) {
                Surroundings around{.live = rows, .sums = sums[u], .load = {}, .store = {}};
                around.live.insert(columns[u].begin(), columns[u].end());
                around.load = [&](const Zmm& to, ValueId id) { load_vector(to, id, strip[u]); };
                around.store = [&](const Zmm& value, Tensor tensor) {
                    a_.store({pointer(tensor), column_, strip[u].elements}, value, dtype(tensor), strip[u].lanes,
                             caching_);
                };
                evaluate(a_, in_row, function_, piece, around);
            }
        });
        for_each_sum(strip, sums, [&](const Xbyak::Address& partial, const Zmm& sum) { a_.move_out(partial, sum); });
    }

    std::map<ValueId, Zmm> load_columns(const Sweep& sweep, const Vector& vector, Registers& registers) {
        const Piece piece = column_piece(function_, sweep);
        Surroundings around{.live = {}, .sums = {}, .load = {}, .store = {}};
        around.load = [&](const Zmm& to, ValueId id) { load_vector(to, id, vector); };
        evaluate(a_, registers, function_, piece, around);
        return around.live;
    }

    /// Column sums start from zero in the first block of the group, from the partials in the others.
    void begin_sums(const std::vector<Vector>& strip, const std::vector<std::vector<Zmm>>& sums) {
        if (sums.empty() || sums[0].empty()) return;
        Label first, ready;
        a_.cmp(frame(first_block_at_), 0);
        a_.jne(first, a_.T_NEAR);
        for_each_sum(strip, sums, [&](const Xbyak::Address& partial, const Zmm& sum) { a_.move(sum, partial); });
        a_.jmp(ready, a_.T_NEAR);
        a_.L(first);
        for_each_sum(strip, sums, [&](const Xbyak::Address&, const Zmm& sum) { a_.zero(sum); });
        a_.L(ready);
    }

    /// Partials are padded to whole cache lines, so that the tail needs no mask here.
    template <class Visit>
    void for_each_sum(const std::vector<Vector>& strip, const std::vector<std::vector<Zmm>>& sums, Visit visit) {
        for (size_t u = 0; u < strip.size(); ++u) {
            for (size_t k = 0; k < sums[u].size(); ++k) {
                const int64_t elements = static_cast<int64_t>(k) * plan_.geometry.partial_cols + strip[u].elements;
                visit(a_.ptr[partials_ + column_ * a_.element_bytes() +
                             static_cast<size_t>(elements * a_.element_bytes())],
                      sums[u][k]);
            }
        }
    }

    Assembler& a_;
    const plan::Plan& plan_;
    const ir::Function& function_;
    const CpuSchedule& cpu_;
    Caching caching_;
    int full_;  ///< whole vectors of a row
    int tail_;  ///< columns beyond them
    PerTensor<int> pointer_register_;
    int pointers_at_ = 0, block_rows_at_ = 0, rows_left_at_ = 0, first_block_at_ = 0, frame_bytes_ = 0;  ///< from rsp
};

}  // namespace

void emit_rows(Assembler& assembler, const plan::Plan& plan, Caching caching) {
    RowsEmitter(assembler, plan, caching).emit();
}

Demand register_demand(const plan::Plan& plan) {
    const auto& cpu = std::get<CpuSchedule>(plan.schedule.device);
    Demand demand;
    for (const Sweep& sweep : plan.sweeps) {
        const auto rows = static_cast<int>(row_operands(plan.function, sweep).size());
        const Piece columns = column_piece(plan.function, sweep);
        const Piece piece = sweep.is_last() ? apply_piece(sweep) : reduce_piece(sweep);
        const int own = registers_needed(select(plan.function, piece), piece.results);
        const int total =
            sweep.is_last()
                ? cpu.strip * static_cast<int>(columns.results.size() + sweep.column_sums.size()) + rows + own
                : cpu.unroll * static_cast<int>(sweep.row_means.size()) + rows + own;
        if (total > demand.registers) demand = {total, sweep.is_last() ? "strip" : "unroll"};
    }
    return demand;
}

}  // namespace normjit::backend::x64
