// SPDX-License-Identifier: Apache-2.0
// The phase `final_reduce`: for a range of columns, the sum of the row groups' partials in their order, rounded once.
#include "backend/x64/frame.h"
#include "backend/x64/rows.h"

#include "normjit/cpu_abi.h"

#include <cstddef>

namespace normjit::backend::x64 {

namespace {

using Xbyak::Label;
using Xbyak::Reg64;
using Xbyak::Zmm;

class FinalReduceEmitter {
  public:
    FinalReduceEmitter(Assembler& assembler, const plan::Plan& plan) : a_(assembler), plan_(plan) {}

    void emit() {
        Frame frame(a_, 0);
        a_.mov(left_, field(offsetof(FinalTask, cols)));
        a_.xor_(column_, column_);
        Label vector, tail, done;
        a_.L(vector);
        a_.cmp(left_, a_.unit_columns());
        a_.jl(tail, a_.T_NEAR);
        emit_unit(Lanes::all);
        a_.add(column_, a_.unit_columns());
        a_.sub(left_, a_.unit_columns());
        a_.jmp(vector, a_.T_NEAR);
        a_.L(tail);
        a_.test(left_, left_);
        a_.jz(done, a_.T_NEAR);
        a_.set_tail(left_);
        emit_unit(Lanes::tail);
        a_.L(done);
        frame.leave();
    }

  private:
    const Reg64 task_{Xbyak::Operand::RDI};
    const Reg64 column_{Xbyak::Operand::RSI};  ///< in elements, from the task's first column
    const Reg64 left_{Xbyak::Operand::RDX};    ///< columns still to do
    const Reg64 partial_{Xbyak::Operand::R8};
    const Reg64 groups_{Xbyak::Operand::R9};
    const Reg64 stride_{Xbyak::Operand::R10};
    const Reg64 out_{Xbyak::Operand::R11};

    Xbyak::Address field(size_t offset) { return a_.qword[task_ + offset]; }
    static Unit sum(int64_t k) { return {{Zmm(static_cast<int>(2 * k)), Zmm(static_cast<int>(2 * k + 1))}}; }
    static Unit out() { return {{Zmm(28), Zmm(29)}}; }

    template <class Visit>
    void for_each_register(Visit visit) {
        for (int64_t k = 0; k < plan_.geometry.column_sums; ++k) {
            for (int part = 0; part < a_.parts(); ++part) {
                const int64_t element = k * plan_.geometry.partial_cols + part * a_.lanes();
                visit(sum(k).part[static_cast<size_t>(part)], static_cast<size_t>(element * a_.element_bytes()));
            }
        }
    }

    void emit_unit(Lanes lanes) {
        for_each_register([&](const Zmm& reg, size_t) { a_.zero(reg); });
        a_.mov(partial_, field(offsetof(FinalTask, partials)));
        a_.mov(stride_, field(offsetof(FinalTask, group_stride)));
        a_.mov(groups_, field(offsetof(FinalTask, groups)));
        Label group, summed;
        a_.test(groups_, groups_);
        a_.jz(summed, a_.T_NEAR);
        a_.L(group);
        for_each_register([&](const Zmm& reg, size_t offset) {
            a_.add(reg, reg, a_.ptr[partial_ + column_ * a_.element_bytes() + offset]);
        });
        a_.add(partial_, stride_);
        a_.dec(groups_);
        a_.jnz(group, a_.T_NEAR);
        a_.L(summed);
        for (const plan::FinalReduce& final : plan_.finals) store(final, lanes);
    }

    void store(const plan::FinalReduce& final, Lanes lanes) {
        a_.mov(out_, field(offsetof(FinalTask, data) + index(final.output) * sizeof(void*)));
        for (size_t part = 0; part < 2; ++part) a_.move(out().part[part], sum(final.sum).part[part]);
        a_.store({out_, column_, 0}, out(), *plan_.function.dtypes[final.output], lanes, Caching::normal);
    }

    Assembler& a_;
    const plan::Plan& plan_;
};

}  // namespace

void emit_final_reduce(Assembler& assembler, const plan::Plan& plan) { FinalReduceEmitter(assembler, plan).emit(); }

}  // namespace normjit::backend::x64
