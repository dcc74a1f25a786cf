// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/executable_memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace normjit::cpu {

namespace {

Status no_pages(const char* call, size_t bytes) {
    const int error = errno;
    return failed(fmt::format("load: {} of {} bytes for machine code: {}", call, bytes, std::strerror(error)));
}

/// Says whether an error of mprotect() is a refusal; 0 is none. The only other reason why the call fails for fresh pages
/// is that memory runs out. The error of a filter of system calls may have any other number.
bool forbids_code(int error) { return error != 0 && error != ENOMEM; }

std::string code_is_forbidden(int error) {
    return fmt::format("this process may not run machine code that it makes (mprotect: {})", std::strerror(error));
}

}  // namespace

Status can_run_made_code() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return {};  // this says nothing about permission; loading will report the error
    const int error = mprotect(page, bytes, PROT_READ | PROT_EXEC) == 0 ? 0 : errno;
    munmap(page, bytes);
    return forbids_code(error) ? unavailable(code_is_forbidden(error)) : Status();
}

Expected<ExecutableMemory> ExecutableMemory::make(std::span<const uint8_t> code) {
    void* pages = mmap(nullptr, code.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return no_pages("mmap", code.size());
    ExecutableMemory memory(pages, code.size());
    std::memcpy(pages, code.data(), code.size());
    auto* begin = static_cast<char*>(pages);
    // Some processors do not notice by themselves that code was written.
    __builtin___clear_cache(begin, begin + code.size());
    if (mprotect(pages, code.size(), PROT_READ | PROT_EXEC) == 0) return memory;
    if (!forbids_code(errno)) return no_pages("mprotect", code.size());
    return unavailable(fmt::format("load: {}; kernels from before go on, and a new engine evaluates formulas",
                                   code_is_forbidden(errno)));
}

void ExecutableMemory::Unmap::operator()(void* pages) const { munmap(pages, bytes); }

}  // namespace normjit::cpu
