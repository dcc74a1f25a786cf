// SPDX-License-Identifier: Apache-2.0
// The functions of normjit_torch.h.
#include "normjit_torch.h"
#include "torch_engines.h"
#include "torch_kernels.h"

#include <array>
#include <mutex>
#include <string>

using namespace normjit::torch;

namespace {

thread_local std::string last_error;

template <class Function>
int guarded(const Function& function) noexcept {
    try {
        function();
        return 0;
    } catch (const std::exception& error) {
        last_error = error.what();
        return 1;
    }
}

struct Override {
    const char* name;  ///< of the operator in aten
    const char* key;
    void (*kernel)(Value* stack, uint64_t inputs, uint64_t outputs);
};
constexpr Override overrides[NORMJIT_TORCH_KERNELS] = {
    {"native_layer_norm_backward", "CPU", layer_norm_backward},
    {"native_layer_norm_backward", "CUDA", layer_norm_backward},
    {"_fused_rms_norm_backward", "CUDA", rms_norm_backward},
};
std::mutex registering;
std::array<Library, NORMJIT_TORCH_KERNELS> registered{};

void enable(const Override& which, Library& library) {
    if (library != nullptr) return;
    NORMJIT_TORCH_CALL(aoti_torch_library_init_impl, "aten", which.key, __FILE__, __LINE__, &library);
    NORMJIT_TORCH_CALL(torch_library_impl, library, which.name, which.kernel, version);
}

}  // namespace

const char* normjit_torch_last_error(void) { return last_error.c_str(); }

int normjit_torch_check(int cuda_index, char* backend, size_t capacity) {
    return guarded([&] {
        if (normjit_engine_backend(engine(cuda_index), backend, capacity, nullptr) != NORMJIT_OK) {
            throw Error(normjit_last_error());
        }
    });
}

int normjit_torch_choose_threads(int own) {
    return guarded([&] {
        shim();
        choose_threads(own != 0 ? Threads::own : Threads::torch);
    });
}

int normjit_torch_override(int kernel, int on) {
    return guarded([&] {
        if (kernel < 0 || kernel >= NORMJIT_TORCH_KERNELS) throw Error("there is no such override");
        const std::lock_guard lock(registering);
        Library& library = registered[static_cast<size_t>(kernel)];
        if (on != 0) return enable(overrides[kernel], library);
        if (library != nullptr) NORMJIT_TORCH_CALL(aoti_torch_delete_library_object, library);
        library = nullptr;
    });
}

void normjit_torch_calls(int64_t* by_normjit, int64_t* by_torch, char* reason, size_t capacity) {
    const Calls all = calls();
    *by_normjit = all.by_normjit, *by_torch = all.by_torch;
    last_reason(reason, capacity);
}
