// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/nvrtc_library.h"

#include "support/lasting.h"
#include "support/text.h"
#include "support/try.h"

#include <algorithm>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <glob.h>
#include <stdlib.h>

namespace normjit::backend::cuda {

namespace {

constexpr const char* sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

/// Returns an environment variable. It is empty in a program with more rights than its caller (set-user-ID), because
/// the caller must not choose which library it loads.
std::string variable(const char* name) {
    const char* value = secure_getenv(name);
    return value == nullptr ? "" : value;
}

/// Returns the matching files, newest version first.
std::vector<std::string> matches(const std::string& pattern) {
    glob_t found{};
    std::vector<std::string> paths;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    std::ranges::reverse(paths);
    return paths;
}

/// Returns the folders in which Python packages may be installed.
std::vector<std::string> package_folders() {
    std::vector<std::string> folders;
    const std::string python_path = variable("PYTHONPATH");
    for (std::string_view folder : text::split(python_path, ':')) {
        if (!folder.empty()) folders.emplace_back(folder);
    }
    std::vector<std::string> prefixes = {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")};
    if (const std::string home = variable("HOME"); !home.empty()) prefixes.push_back(home + "/.local");
    for (const char* prefix : {"/usr/local", "/usr"}) prefixes.emplace_back(prefix);
    for (const std::string& prefix : prefixes) {
        if (prefix.empty()) continue;
        for (const char* kind : {"site-packages", "dist-packages"}) {
            for (std::string& path : matches(prefix + "/lib/python3*/" + kind)) folders.push_back(std::move(path));
        }
    }
    return folders;
}

/// What to pass to dlopen() to find NVRTC, and a description of the places that are searched.
struct Places {
    std::vector<std::string> names;
    std::string words;

    void add_folder(const std::string& folder) {
        for (const char* soname : sonames) names.push_back(folder + "/" + soname);
    }
};

Places find_places() {
    Places places;
    const std::string given = variable("NORMJIT_NVRTC_PATH");
    if (!given.empty()) {
        places.names.push_back(given);
        places.add_folder(given);
    }
    for (const char* soname : sonames) places.names.emplace_back(soname);
    for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
        if (const std::string folder = variable(name); !folder.empty()) places.add_folder(folder + "/lib64");
    }
    places.add_folder("/usr/local/cuda/lib64");
    for (const std::string& folder : package_folders()) {
        for (const char* part : {"/nvidia/cu13/lib", "/nvidia/cuda_nvrtc/lib"}) {
            for (std::string& path : matches(folder + part + "/libnvrtc.so*")) places.names.push_back(std::move(path));
        }
    }
    places.words =
        fmt::format("NORMJIT_NVRTC_PATH ({}), the loader's path, CUDA_HOME, /usr/local/cuda/lib64, Python packages",
                    given.empty() ? "not set" : given);
    return places;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool find_functions(void* library, Nvrtc& nvrtc) {
    return find(library, "nvrtcGetErrorString", nvrtc.error_string) && find(library, "nvrtcVersion", nvrtc.version) &&
           find(library, "nvrtcGetNumSupportedArchs", nvrtc.arch_count) &&
           find(library, "nvrtcGetSupportedArchs", nvrtc.archs) && find(library, "nvrtcCreateProgram", nvrtc.create) &&
           find(library, "nvrtcDestroyProgram", nvrtc.destroy) && find(library, "nvrtcCompileProgram", nvrtc.compile) &&
           find(library, "nvrtcGetProgramLogSize", nvrtc.log_size) && find(library, "nvrtcGetProgramLog", nvrtc.log) &&
           find(library, "nvrtcGetCUBINSize", nvrtc.cubin_size) && find(library, "nvrtcGetCUBIN", nvrtc.cubin) &&
           find(library, "nvrtcGetPTXSize", nvrtc.ptx_size) && find(library, "nvrtcGetPTX", nvrtc.ptx);
}

Status describe(Nvrtc& nvrtc) {
    int count = 0;
    CudaCompiler& compiler = nvrtc.compiler;
    bool good = nvrtc.version(&compiler.major, &compiler.minor) == nvrtc_success &&
                nvrtc.arch_count(&count) == nvrtc_success && count > 0;
    if (good) {
        compiler.sms.resize(static_cast<size_t>(count));
        good = nvrtc.archs(compiler.sms.data()) == nvrtc_success;
        std::ranges::sort(compiler.sms);
    }
    return good ? Status() : unavailable(fmt::format("NVRTC: {} does not say what it supports", compiler.path));
}

Expected<Nvrtc> open_first() {
    const Places places = find_places();
    for (const std::string& name : places.names) {
        void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) continue;
        Nvrtc nvrtc{};
        nvrtc.compiler.path = name;
        if (!find_functions(library, nvrtc)) continue;
        NORMJIT_RETURN_IF_ERROR(describe(nvrtc));
        return nvrtc;
    }
    return unavailable(fmt::format(
        "NVRTC, the CUDA compiler library (libnvrtc.so.13 or .12), is in none of: {}. It comes with the CUDA "
        "toolkit and with `pip install nvidia-cuda-nvrtc`",
        places.words));
}

}  // namespace

Expected<const Nvrtc*> nvrtc() {
    return opened_once([] { return open_first(); });
}

}  // namespace normjit::backend::cuda

namespace normjit {

Expected<CudaCompiler> cuda_compiler() {
    NORMJIT_TRY(const backend::cuda::Nvrtc* nvrtc, backend::cuda::nvrtc());
    return nvrtc->compiler;
}

}  // namespace normjit
