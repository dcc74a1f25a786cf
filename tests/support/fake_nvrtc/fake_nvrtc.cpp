// SPDX-License-Identifier: Apache-2.0
// The functions that compiler/backend/cuda/nvrtc_library.h looks up, as nvrtc.h declares them.
#include "fake_nvrtc.h"

#include <cstring>
#include <mutex>
#include <string_view>

using normjit::test::FakeNvrtc;

namespace {

using Result = int;
struct Program {};

FakeNvrtc fake;
std::mutex mutex;

constexpr int known[] = {80, 90};
constexpr std::string_view image("\177ELF of the fake", 17);  // includes the zero at its end
constexpr std::string_view nothing("", 1);

Result enter(const char* function) {
    const std::lock_guard lock(mutex);
    const int number = static_cast<int>(fake.calls.size());
    fake.calls.emplace_back(function);
    return number == fake.failing_call ? fake.failure : 0;
}

Result give(const char* function, std::string_view text, char* to) {
    if (const Result told = enter(function); told != 0) return told;
    std::memcpy(to, text.data(), text.size());
    return 0;
}

Result give_size(const char* function, std::string_view text, size_t* bytes) {
    if (const Result told = enter(function); told != 0) return told;
    *bytes = text.size();
    return 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT FakeNvrtc* normjit_fake_nvrtc() { return &fake; }

EXPORT const char* nvrtcGetErrorString(Result) { return "NVRTC_ERROR_INTERNAL_ERROR"; }

EXPORT Result nvrtcVersion(int* major, int* minor) {
    *major = 13, *minor = 0;
    return enter("nvrtcVersion");
}
EXPORT Result nvrtcGetNumSupportedArchs(int* count) {
    *count = static_cast<int>(std::size(known));
    return enter("nvrtcGetNumSupportedArchs");
}
EXPORT Result nvrtcGetSupportedArchs(int* archs) {
    std::copy(std::begin(known), std::end(known), archs);
    return enter("nvrtcGetSupportedArchs");
}

EXPORT Result nvrtcCreateProgram(Program** program, const char*, const char*, int, const char* const*,
                                 const char* const*) {
    if (const Result told = enter("nvrtcCreateProgram"); told != 0) return told;
    *program = new Program;
    const std::lock_guard lock(mutex);
    ++fake.programs;
    return 0;
}
EXPORT Result nvrtcDestroyProgram(Program** program) {
    delete *program;
    *program = nullptr;
    {
        const std::lock_guard lock(mutex);
        --fake.programs;
    }
    return enter("nvrtcDestroyProgram");
}
EXPORT Result nvrtcCompileProgram(Program*, int, const char* const*) { return enter("nvrtcCompileProgram"); }

EXPORT Result nvrtcGetProgramLogSize(Program*, size_t* bytes) {
    return give_size("nvrtcGetProgramLogSize", nothing, bytes);
}
EXPORT Result nvrtcGetProgramLog(Program*, char* to) { return give("nvrtcGetProgramLog", nothing, to); }
EXPORT Result nvrtcGetCUBINSize(Program*, size_t* bytes) { return give_size("nvrtcGetCUBINSize", image, bytes); }
EXPORT Result nvrtcGetCUBIN(Program*, char* to) { return give("nvrtcGetCUBIN", image, to); }
EXPORT Result nvrtcGetPTXSize(Program*, size_t* bytes) { return give_size("nvrtcGetPTXSize", nothing, bytes); }
EXPORT Result nvrtcGetPTX(Program*, char* to) { return give("nvrtcGetPTX", nothing, to); }
