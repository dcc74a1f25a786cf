// SPDX-License-Identifier: Apache-2.0
#include "backend/llvm/library.h"

#include "support/lasting.h"
#include "support/try.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace normjit::backend::llvmir {

namespace {

/// It is a struct because g++ 12 warns about a plain pointer to a function in an Expected.
struct Library {
    Ask* ask;
};

/// Returns the folders in which the loader looks for a library that the binary with this code opens: its RUNPATH, and
/// the folders that every program has. The handle of a binary is its link_map.
std::vector<std::string> search_path() {
    Dl_info info{};
    void* own = nullptr;
    Dl_serinfo size{};
    if (dladdr1(reinterpret_cast<void*>(&search_path), &info, &own, RTLD_DL_LINKMAP) == 0 ||
        dlinfo(own, RTLD_DI_SERINFOSIZE, &size) != 0)
        return {};
    std::vector<Dl_serinfo> memory(size.dls_size / sizeof(Dl_serinfo) + 1, size);
    if (dlinfo(own, RTLD_DI_SERINFO, memory.data()) != 0) return {};
    std::vector<std::string> folders;
    for (const Dl_serpath& folder : std::span(memory[0].dls_serpath, size.dls_cnt)) folders.push_back(folder.dls_name);
    return folders;
}

/// True in a program that was linked with -static. A library that such a program opens gets its own C library, which
/// has not made the thread-local variables that LLVM needs. In a namespace that dlmopen() made, the first object is not
/// the program, which has no name.
bool is_static_program() {
    constexpr int dynamic = 1, without_interpreter = 2;
    const auto look = [](dl_phdr_info* first, size_t, void*) {  // stops at the first object
        const std::span headers(first->dlpi_phdr, first->dlpi_phnum);
        const bool interpreted = std::ranges::any_of(headers, [](auto& header) { return header.p_type == PT_INTERP; });
        return interpreted || *first->dlpi_name != '\0' ? dynamic : without_interpreter;
    };
    return dl_iterate_phdr(look, nullptr) == without_interpreter;
}

/// True if an error of dlopen() says that there is no such file or folder. Other errors are about a library that is
/// there, or about one that it needs.
bool is_missing(const std::string& path, std::string_view error) {
    const auto says = [error](int number) { return error.ends_with(std::strerror(number)); };
    return error.starts_with(path) &&
           std::ranges::any_of(std::array{ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG}, says);
}

/// Opens the library in the folders where the loader would look for it, one by one. Given only the name, the loader may
/// return a library of this name that the process has already loaded, for example from another build of normjit. With a
/// sanitizer, which calls dlopen() for the program, it would use the sanitizer's RUNPATH.
Expected<void*> open_library() {
    constexpr int how = RTLD_NOW | RTLD_LOCAL;
    for (const std::string& folder : search_path()) {
        const std::string path = folder + "/" NORMJIT_LLVM;
        if (void* library = dlopen(path.c_str(), how)) return library;
        const std::string_view error = dlerror();
        if (!is_missing(path, error)) return unavailable(fmt::format("llvm: {}", error));
    }
    if (void* library = dlopen(NORMJIT_LLVM, how)) return library;  // the loader's cache knows other folders
    return unavailable(fmt::format(
        "llvm: {}; it comes with normjit, and belongs next to its library or on the loader's path", dlerror()));
}

Expected<Library> open() {
    if (is_static_program()) {
        return unavailable(fmt::format(
            "llvm: {} cannot be opened by a program that is linked with -static; without AVX-512 such a program needs "
            "NORMJIT_ISA=portable",
            NORMJIT_LLVM));
    }
    NORMJIT_TRY(void* const library, open_library());
    auto* const function = reinterpret_cast<Ask*>(dlsym(library, function_name));
    if (function == nullptr) return unavailable(fmt::format("llvm: {} has no {}()", NORMJIT_LLVM, function_name));
    return Library{function};
}

}  // namespace

Expected<Answered> ask(const Question& question) {
    NORMJIT_TRY(const Library* llvm, opened_once([] { return open(); }));
    Answered all;
    const Answer answer{
        &all,
        [](void* self, const char* name, int64_t offset) {
            static_cast<Answered*>(self)->entries.push_back({name, offset});
        },
        [](void* self, const char* bytes, size_t count) { static_cast<Answered*>(self)->bytes.assign(bytes, count); }};
    const int code = llvm->ask(&question, &answer);
    if (code == out_of_memory) throw std::bad_alloc();
    if (code != answered) return Status(static_cast<Code>(code), std::move(all.bytes));
    return all;
}

}  // namespace normjit::backend::llvmir
