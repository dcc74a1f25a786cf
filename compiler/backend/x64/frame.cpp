// SPDX-License-Identifier: Apache-2.0
#include "backend/x64/frame.h"

#include "support/default_settings.h"

namespace normjit::backend::x64 {

namespace {

/// A guard page ends the stack, so a large frame must touch its pages in order.
constexpr int page_bytes = 4096;
constexpr int callee_saved[] = {Xbyak::Operand::RBX, Xbyak::Operand::RBP, Xbyak::Operand::R12,
                                Xbyak::Operand::R13, Xbyak::Operand::R14, Xbyak::Operand::R15};

}  // namespace

Frame::Frame(Assembler& assembler, int bytes) : a_(assembler), bytes_((bytes + 16 + 63) / 64 * 64) {
    for (const int reg : callee_saved) a_.push(Xbyak::Reg64(reg));
    a_.mov(a_.rax, a_.rsp);
    for (int page = page_bytes; page < bytes_; page += page_bytes) a_.test(a_.dword[a_.rsp - page], a_.eax);
    a_.sub(a_.rsp, bytes_);
    a_.and_(a_.rsp, -64);
    a_.mov(a_.qword[a_.rsp + bytes_ - 16], a_.rax);
    a_.stmxcsr(a_.dword[a_.rsp + bytes_ - 8]);
    a_.mov(a_.dword[a_.rsp + bytes_ - 4], default_mxcsr);
    a_.ldmxcsr(a_.dword[a_.rsp + bytes_ - 4]);
}

void Frame::leave() {
    a_.ldmxcsr(a_.dword[a_.rsp + bytes_ - 8]);
    a_.mov(a_.rsp, a_.qword[a_.rsp + bytes_ - 16]);
    for (size_t i = std::size(callee_saved); i-- > 0;) a_.pop(Xbyak::Reg64(callee_saved[i]));
    a_.vzeroupper();
    a_.ret();
}

}  // namespace normjit::backend::x64
