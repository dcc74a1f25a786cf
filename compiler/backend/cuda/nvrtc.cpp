// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nvrtc.h"

#include "backend/cuda/nvrtc_library.h"
#include "support/embedded.h"
#include "support/text.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::backend::cuda {

namespace {

/// Owns a program of NVRTC.
class Program {
  public:
    static Expected<Program> create(const Nvrtc& nvrtc, const std::string& source) {
        std::vector<const char*> texts, names;
        for (const embedded::Text& each : embedded::templates()) {
            texts.push_back(each.text.data());
            names.push_back(each.name.data());
        }
        NvrtcProgram* program = nullptr;
        const NvrtcResult result = nvrtc.create(&program, source.c_str(), "kernel.cu", static_cast<int>(texts.size()),
                                                texts.data(), names.data());
        if (result != nvrtc_success) return failed(fmt::format("NVRTC: {}", nvrtc.error_string(result)));
        return Program(nvrtc, program);
    }
    Program(Program&& other) noexcept : nvrtc_(other.nvrtc_), program_(other.program_) { other.program_ = nullptr; }
    Program& operator=(Program&&) = delete;
    ~Program() {
        if (program_ != nullptr) nvrtc_.destroy(&program_);
    }

    NvrtcResult compile(const std::vector<std::string>& options) {
        std::vector<const char*> texts;
        for (const std::string& option : options) texts.push_back(option.c_str());
        return nvrtc_.compile(program_, static_cast<int>(texts.size()), texts.data());
    }

    template <class Byte>
    Expected<Byte> get(NvrtcResult (*size)(NvrtcProgram*, size_t*), NvrtcResult (*text)(NvrtcProgram*, char*)) const {
        size_t bytes = 0;
        NvrtcResult result = size(program_, &bytes);
        Byte out(bytes, {});
        if (result == nvrtc_success && bytes > 0) result = text(program_, reinterpret_cast<char*>(out.data()));
        if (result != nvrtc_success) return failed(fmt::format("NVRTC: {}", nvrtc_.error_string(result)));
        return out;
    }

    /// Returns the log without its terminating zero.
    Expected<std::string> log() const {
        NORMJIT_TRY(std::string text, get<std::string>(nvrtc_.log_size, nvrtc_.log));
        return std::string(text.c_str());
    }

  private:
    Program(const Nvrtc& nvrtc, NvrtcProgram* program) : nvrtc_(nvrtc), program_(program) {}
    const Nvrtc& nvrtc_;
    NvrtcProgram* program_;
};

std::string numbered(const std::string& source) {
    std::string text;
    int number = 0;
    for (std::string_view line : text::split(source, '\n')) text += fmt::format("{:4}  {}\n", ++number, line);
    return text;
}

/// Returns the option for machine code if NVRTC knows the architecture; otherwise the option for PTX for the newest
/// older architecture that it knows.
Expected<std::string> architecture(const CudaCompiler& compiler, int sm, bool real) {
    int newest = 0;
    for (const int known : compiler.sms) {
        if (known <= sm) newest = known;
    }
    if (newest == 0) {
        return unavailable(fmt::format("NVRTC {}.{} ({}) does not support GPUs as old as sm_{}", compiler.major,
                                       compiler.minor, compiler.path, sm));
    }
    return fmt::format("{}_{}", real && newest == sm ? "sm" : "compute", newest);
}

Expected<Program> compile(const Nvrtc& nvrtc, const std::string& source, const std::string& arch,
                          Contraction contraction) {
    // An older NVRTC does not know the last two options. --minimal leaves out parts of the built-in headers that these
    // sources do not use. --split-compile optimises the kernels of a module in parallel, here on 2 threads
    // (NOTES N-303).
    const char* fmad = contraction == Contraction::none ? "--fmad=false" : "--fmad=true";
    std::vector<std::string> options = {"--gpu-architecture=" + arch, "-std=c++20", "-default-device",
                                        "--ptxas-options=-v",         fmad,         "--minimal",
                                        "--split-compile=2"};
    NORMJIT_TRY(Program program, Program::create(nvrtc, source));
    NvrtcResult result = program.compile(options);
    if (result == nvrtc_invalid_option) {
        options.resize(options.size() - 2);
        result = program.compile(options);
    }
    if (result == nvrtc_success) return program;
    NORMJIT_TRY(const std::string log, program.log());
    return failed(fmt::format("NVRTC {}.{}: {} for {}\n{}\n{}", nvrtc.compiler.major, nvrtc.compiler.minor,
                              nvrtc.error_string(result), arch, log, numbered(source)));
}

}  // namespace

Expected<Compiled> compile_source(const std::string& source, int sm, Contraction contraction) {
    NORMJIT_TRY(const Nvrtc* library, nvrtc());
    NORMJIT_TRY(const std::string arch, architecture(library->compiler, sm, true));
    NORMJIT_TRY(const Program program, compile(*library, source, arch, contraction));
    Compiled compiled{.format = arch.starts_with("sm_") ? CodeFormat::cubin : CodeFormat::ptx};
    compiled.maker = fmt::format("nvrtc-{}.{}", library->compiler.major, library->compiler.minor);
    const bool cubin = compiled.format == CodeFormat::cubin;
    NORMJIT_TRY(compiled.code, program.get<std::vector<uint8_t>>(cubin ? library->cubin_size : library->ptx_size,
                                                                 cubin ? library->cubin : library->ptx));
    NORMJIT_TRY(compiled.log, program.log());
    return compiled;
}

Expected<std::string> compile_to_ptx(const std::string& source, int sm, Contraction contraction) {
    NORMJIT_TRY(const Nvrtc* library, nvrtc());
    NORMJIT_TRY(const std::string arch, architecture(library->compiler, sm, false));
    NORMJIT_TRY(const Program program, compile(*library, source, arch, contraction));
    NORMJIT_TRY(const std::string text, program.get<std::string>(library->ptx_size, library->ptx));
    return std::string(text.c_str());
}

}  // namespace normjit::backend::cuda
