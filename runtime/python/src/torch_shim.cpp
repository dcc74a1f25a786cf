// SPDX-License-Identifier: Apache-2.0
#include "torch_shim.h"

#include "normjit/normjit.h"

#include <dlfcn.h>

namespace normjit::torch {

namespace {

/// Returns a library that is already loaded. Torch's libraries are not in the search path of the process.
void* loaded(const char* soname) { return dlopen(soname, RTLD_NOLOAD | RTLD_LAZY); }

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = library == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

Shim open() {
    void* cpu = libtorch();
    if (cpu == nullptr) throw Error("no libtorch is loaded in this process; import torch, or link it, first");
    void* cuda = loaded("libtorch_cuda.so");
    Shim shim;
    shim.has_cuda = cuda != nullptr;
    std::string missing;
#define FUNCTION(result, name, arguments) \
    if (!find(cpu, #name, shim.name)) missing = #name;
#define OPTIONAL(result, name, arguments) find(cpu, #name, shim.name);
#define CUDA(result, name, arguments) shim.has_cuda = find(cuda, #name, shim.name) && shim.has_cuda;
#include "torch_shim.def"
#undef FUNCTION
#undef OPTIONAL
#undef CUDA
    if (!missing.empty()) throw Error("this libtorch has no " + missing + "; torch 2.10 or newer is needed");
    static_assert(NORMJIT_F32 == 0 && NORMJIT_BF16 == 1 && NORMJIT_F16 == 2 && NORMJIT_F64 == 3);
    shim.cpu = shim.aoti_torch_device_type_cpu(), shim.cuda = shim.aoti_torch_device_type_cuda();
    shim.dtypes = {shim.aoti_torch_dtype_float32(), shim.aoti_torch_dtype_bfloat16(), shim.aoti_torch_dtype_float16(),
                   shim.aoti_torch_dtype_float64()};
    return shim;
}

}  // namespace

void* libtorch() {
    static void* const handle = loaded("libtorch_cpu.so");
    return handle;
}

const Shim& find_shim() {
    static const Shim opened = open();
    return opened;
}

void report_failure(const char* function) { throw Error(std::string(function) + " failed"); }

}  // namespace normjit::torch
