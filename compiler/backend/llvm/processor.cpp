// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/processor.h"

#include "backend/llvm/versions.h"

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

namespace normjit::backend::llvmir {

namespace {

/// The least capable processor with exactly the instructions of the Isa.
struct Processor {
    const char* triple;
    const char* name;
    const char* features;
    Features has;
    const char* pipeline = nullptr;  ///< the processor whose latencies decide the order of instructions; null: `name`
};

Processor processor_of(Isa isa) {
    constexpr const char* x86 = "x86_64-unknown-linux-gnu";
    switch (isa) {
        case Isa::x86_64_avx512:
            return {x86,
                    "x86-64",
                    "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx2,+fma,+f16c,+bmi,+bmi2",
                    {.x86 = true, .fma = true, .half = true, .masks = true}};
        case Isa::x86_64_v3:
            return {x86, "x86-64", "+avx2,+fma,+f16c,+bmi,+bmi2", {.x86 = true, .fma = true, .half = true}};
        case Isa::x86_64: return {x86, "x86-64", "", {.x86 = true}};
        // LLVM orders code for the generic processor as if it could not run instructions out of order, with loads so
        // early that vectors are spilled (NOTES N-206).
        default: return {"aarch64-unknown-linux-gnu", "generic", "+neon", {.fma = true, .half = true}, "neoverse-v1"};
    }
}

std::string features_text(const Target& target) {
    std::string text = processor_of(target.isa).features;
    if (target.cpu.avx512_bf16) text += ",+avx512bf16";
    return text;
}

/// Registers targets once per process, because LLVM keeps them in a global list.
void register_targets() {
    static const bool done = [] {
        LLVMInitializeX86TargetInfo();
        LLVMInitializeX86Target();
        LLVMInitializeX86TargetMC();
        LLVMInitializeX86AsmPrinter();
        LLVMInitializeX86Disassembler();
        LLVMInitializeAArch64TargetInfo();
        LLVMInitializeAArch64Target();
        LLVMInitializeAArch64TargetMC();
        LLVMInitializeAArch64AsmPrinter();
        LLVMInitializeAArch64Disassembler();
        return true;
    }();
    static_cast<void>(done);
}

/// Skips passes that make code slower. Machine sinking moves the sums of a loop behind the rare branches of bf16
/// stores, so that the values to be added are spilled. Loop strength reduction takes a fifth of the compile time for
/// f32 on x86, where it gains nothing, because addresses have a base, an index and a constant (NOTES N-206).
class PassGate final : public ConstPassGate {
  public:
    explicit PassGate(const llvm::Triple& triple) : has_indexed_addresses_(triple.isX86()) {}

    bool should_run(llvm::StringRef pass) const override {
        return pass != "Machine code sinking" && !(has_indexed_addresses_ && pass == "Loop Strength Reduction");
    }
    bool isEnabled() const override { return true; }

  private:
    const bool has_indexed_addresses_;
};

}  // namespace

Features features_of(const Target& target) {
    Features features = processor_of(target.isa).has;
    features.native_bf16 = target.cpu.avx512_bf16;
    return features;
}

const llvm::Target* find_target(const Target& target, std::string& triple) {
    register_targets();
    triple = processor_of(target.isa).triple;
    std::string error;
    return llvm::TargetRegistry::lookupTarget(triple, error);
}

Expected<std::unique_ptr<llvm::TargetMachine>> make_machine(const Target& target) {
    const Processor processor = processor_of(target.isa);
    std::string triple;
    const llvm::Target* found = find_target(target, triple);
    if (found == nullptr) return unavailable("llvm: makes no code for " + triple);
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    options.ExceptionModel = llvm::ExceptionHandling::None;
    // Constants are addressed relative to the instruction, without a page base, so that code can be at any address.
    const auto model = processor.has.x86 ? llvm::CodeModel::Small : llvm::CodeModel::Tiny;
    return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
        GivenTriple(processor.triple), processor.name, features_text(target), options, llvm::Reloc::PIC_, model));
}

void set_attributes(llvm::Function& function, const llvm::TargetMachine& machine, const Target& target) {
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    if (const char* pipeline = processor_of(target.isa).pipeline) function.addFnAttr("tune-cpu", pipeline);
    const std::string width = std::to_string(8 * target.vector_bytes());
    function.addFnAttr("prefer-vector-width", width);
    function.addFnAttr("min-legal-vector-width", width);
    function.addFnAttr("frame-pointer", "none");
    function.addFnAttr("probe-stack", "inline-asm");  // there is a guard page at the end of the stack
    function.setDoesNotThrow();
}

Expected<llvm::SmallVector<char, 0>> emit_object(llvm::Module& module, llvm::TargetMachine& machine) {
    std::string problem;
    llvm::raw_string_ostream problems(problem);
    if (llvm::verifyModule(module, &problems)) return failed("llvm: the generated module is not valid: " + problem);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile)) {
        return failed("llvm: this target cannot emit objects");
    }
    PassGate gate(machine.getTargetTriple());
    module.getContext().setOptPassGate(gate);
    passes.run(module);
    return bytes;
}

}  // namespace normjit::backend::llvmir
