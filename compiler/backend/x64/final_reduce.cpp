// SPDX-License-Identifier: Apache-2.0
// The phase `final_reduce`: for a range of columns, the sum of the row groups' partials in their order, rounded once.
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
        a_.cmp(left_, a_.lanes());
        a_.jl(tail, a_.T_NEAR);
        emit_vector(Lanes::all);
        a_.add(column_, a_.lanes());
        a_.sub(left_, a_.lanes());
        a_.jmp(vector, a_.T_NEAR);
        a_.L(tail);
        a_.test(left_, left_);
        a_.jz(done, a_.T_NEAR);
        a_.set_tail(left_);
        emit_vector(Lanes::tail);
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
    static Zmm sum(int k) { return Zmm(k); }

    void emit_vector(Lanes lanes) {
        const int sums = static_cast<int>(plan_.geometry.column_sums);
        for (int k = 0; k < sums; ++k) a_.zero(sum(k));
        a_.mov(partial_, field(offsetof(FinalTask, partials)));
        a_.mov(stride_, field(offsetof(FinalTask, group_stride)));
        a_.mov(groups_, field(offsetof(FinalTask, groups)));
        Label group, summed;
        a_.test(groups_, groups_);
        a_.jz(summed, a_.T_NEAR);
        a_.L(group);
        for (int k = 0; k < sums; ++k) {
            const auto offset = static_cast<size_t>(k * plan_.geometry.partial_cols * a_.element_bytes());
            a_.add(sum(k), sum(k), a_.ptr[partial_ + column_ * a_.element_bytes() + offset]);
        }
        a_.add(partial_, stride_);
        a_.dec(groups_);
        a_.jnz(group, a_.T_NEAR);
        a_.L(summed);
        for (const plan::FinalReduce& final : plan_.finals) {
            a_.mov(out_, field(offsetof(FinalTask, data) + index(final.output) * sizeof(void*)));
            a_.move(Assembler::copy(), sum(final.sum));
            a_.store({out_, column_, 0}, Assembler::copy(), *plan_.function.dtypes[final.output], lanes,
                     Caching::normal);
        }
    }

    Assembler& a_;
    const plan::Plan& plan_;
};

}  // namespace

void emit_final_reduce(Assembler& assembler, const plan::Plan& plan) { FinalReduceEmitter(assembler, plan).emit(); }

}  // namespace normjit::backend::x64
