// SPDX-License-Identifier: Apache-2.0
// The functions of normjit/torch.h.
#include "torch_engines.h"
#include "torch_kernels.h"
#include "torch_launch.h"

#include "normjit/torch.h"

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

struct Kernel {
    const char* name_space;
    const char* name;  ///< the operator's name
    const char* key;
    void (*function)(Value* stack, uint64_t inputs, uint64_t outputs);
};
constexpr Kernel kernels[NORMJIT_TORCH_KERNELS] = {
    {"aten", "native_layer_norm_backward", "CPU", aten_layer_norm_backward},
    {"aten", "native_layer_norm_backward", "CUDA", aten_layer_norm_backward},
    {"aten", "_fused_rms_norm_backward", "CUDA", aten_rms_norm_backward},
    {"normjit", "layer_norm_backward", "CPU", layer_norm_backward},
    {"normjit", "layer_norm_backward", "CUDA", layer_norm_backward},
    {"normjit", "rms_norm_backward", "CPU", rms_norm_backward},
    {"normjit", "rms_norm_backward", "CUDA", rms_norm_backward},
    {"normjit", "layer_norm_backward_into", "CPU", layer_norm_backward_into},
    {"normjit", "layer_norm_backward_into", "CUDA", layer_norm_backward_into},
    {"normjit", "rms_norm_backward_into", "CPU", rms_norm_backward_into},
    {"normjit", "rms_norm_backward_into", "CUDA", rms_norm_backward_into},
    {"normjit", "rms_norm", "CPU", rms_norm},
    {"normjit", "rms_norm", "CUDA", rms_norm},
    {"normjit", "layer_norm", "CPU", layer_norm},
    {"normjit", "layer_norm", "CUDA", layer_norm},
};
std::mutex registering;
std::array<Library, NORMJIT_TORCH_KERNELS> registered{};

void put(const Kernel& kernel, Library& library) {
    if (library != nullptr) return;
    NORMJIT_TORCH_CALL(aoti_torch_library_init_impl, kernel.name_space, kernel.key, __FILE__, __LINE__, &library);
    NORMJIT_TORCH_CALL(torch_library_impl, library, kernel.name, kernel.function, version);
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

int normjit_torch_choose_threads(int policy) {
    return guarded([&] {
        shim();
        if (policy < 0 || policy > NORMJIT_THREADS_OPENMP) throw Error("threads: there is no such policy");
        choose_threads(static_cast<normjit_thread_policy>(policy));
    });
}

void normjit_torch_set_log(normjit_log log) { set_log(log); }

void normjit_torch_keep_bits(int on) { keep_bits(on != 0); }

int normjit_torch_threads(int32_t* threads, char* whose, size_t capacity) {
    return guarded([&] {
        if (normjit_engine_threads(engine(-1), threads, whose, capacity, nullptr) != NORMJIT_OK) {
            throw Error(normjit_last_error());
        }
    });
}

int normjit_torch_register(int kernel, int on) {
    return guarded([&] {
        if (kernel < 0 || kernel >= NORMJIT_TORCH_KERNELS) throw Error("there is no such kernel");
        const std::lock_guard lock(registering);
        Library& library = registered[static_cast<size_t>(kernel)];
        if (on != 0) return put(kernels[kernel], library);
        if (library != nullptr) NORMJIT_TORCH_CALL(aoti_torch_delete_library_object, library);
        library = nullptr;
    });
}

void normjit_torch_calls(int64_t* by_normjit, int64_t* by_torch, char* reason, size_t capacity) {
    const Calls all = calls();
    *by_normjit = all.by_normjit, *by_torch = all.by_torch;
    last_reason(reason, capacity);
}
