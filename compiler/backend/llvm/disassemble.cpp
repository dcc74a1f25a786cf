// SPDX-License-Identifier: Apache-2.0
// Prints machine code as text, through LLVM's MC layer.
#include "backend/llvm/disassemble.h"

#include "backend/llvm/processor.h"

#include <fmt/format.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrAnalysis.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>

namespace normjit::backend::llvmir {

namespace {

class Lister {
  public:
    Lister(const llvm::Target& target, const char* triple, bool x86)
        : registers_(target.createMCRegInfo(triple)),
          assembly_(target.createMCAsmInfo(*registers_, triple, llvm::MCTargetOptions())),
          subtarget_(target.createMCSubtargetInfo(triple, x86 ? "sapphirerapids" : "generic", x86 ? "" : "+all")),
          instructions_(target.createMCInstrInfo()),
          analysis_(target.createMCInstrAnalysis(instructions_.get())),
          context_(llvm::Triple(triple), assembly_.get(), registers_.get(), subtarget_.get()),
          disassembler_(target.createMCDisassembler(*subtarget_, context_)),
          printer_(
              target.createMCInstPrinter(llvm::Triple(triple), x86 ? 1 : 0, *assembly_, *instructions_, *registers_)),
          step_(x86 ? 1 : 4) {
        printer_->setPrintImmHex(true);
        printer_->setPrintBranchImmAsAddress(true);
    }

    std::string run(llvm::ArrayRef<uint8_t> code, llvm::ArrayRef<int64_t> entries) {
        std::string text;
        uint64_t begin = 0;
        for (const int64_t entry : entries) {  // constants before an entry may look like the first half of an
                                               // instruction
            const auto end = static_cast<uint64_t>(entry);
            text += list(code, begin, end);
            begin = end;
        }
        return text + list(code, begin, code.size());
    }

  private:
    std::string list(llvm::ArrayRef<uint8_t> code, uint64_t begin, uint64_t end) {
        std::string text;
        for (uint64_t at = begin; at < end;) {
            llvm::MCInst instruction;
            uint64_t size = 0;
            const auto status =
                disassembler_->getInstruction(instruction, size, code.slice(at, end - at), at, llvm::nulls());
            if (status == llvm::MCDisassembler::Success) {
                text += fmt::format("{:4x}:\t{}\n", at, line(instruction, at, size));
                at += size;
            } else {
                text += fmt::format("{:4x}:\t(bad)\n", at);
                at += step_;
            }
        }
        return text;
    }

    std::string line(const llvm::MCInst& instruction, uint64_t at, uint64_t size) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        const uint64_t origin = step_ == 1 ? at + size : at;  // the address from which a branch counts its distance
        printer_->printInst(&instruction, origin, "", *subtarget_, stream);
        text.erase(0, text.find_first_not_of('\t'));
        if (const auto read = analysis_->evaluateMemoryOperandAddress(instruction, subtarget_.get(), at, size))
            return text + fmt::format(" # 0x{:x}", *read);
        return text;
    }

    std::unique_ptr<llvm::MCRegisterInfo> registers_;
    std::unique_ptr<llvm::MCAsmInfo> assembly_;
    std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
    std::unique_ptr<llvm::MCInstrInfo> instructions_;
    std::unique_ptr<llvm::MCInstrAnalysis> analysis_;
    llvm::MCContext context_;
    std::unique_ptr<llvm::MCDisassembler> disassembler_;
    std::unique_ptr<llvm::MCInstPrinter> printer_;
    uint64_t step_;
};

}  // namespace

Expected<std::string> disassemble(const normjit::Target& target, llvm::ArrayRef<uint8_t> code,
                                  llvm::ArrayRef<int64_t> entries) {
    std::string triple;
    const llvm::Target* found = find_target(target, triple);
    if (found == nullptr) return unavailable("llvm: no disassembler for " + triple);
    return Lister(*found, triple.c_str(), target.isa != Isa::aarch64).run(code, entries);
}

}  // namespace normjit::backend::llvmir
