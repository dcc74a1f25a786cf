// SPDX-License-Identifier: Apache-2.0
// libtorch's stable C interface as a table of functions, which are looked up in the libtorch that the process has
// loaded. One binary serves every torch from 2.10 on, with any Python or none.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace normjit::torch {

using Code = int32_t;                                ///< 0: success
using Handle = struct TensorObject*;                 ///< torch's AtenTensorHandle
using List = struct ListObject*;                     ///< StableListHandle
using Library = struct LibraryObject*;               ///< TorchLibraryHandle
using Guard = struct GuardObject*;                   ///< CUDAGuardHandle
using Value = uint64_t;                              ///< StableIValue: an argument or a result of an operator
constexpr uint64_t version = 0x020a'0000'0000'0000;  ///< 2.10.0: a Value follows the conventions of this version

struct Shim {
#define FUNCTION(result, name, arguments) result(*name) arguments = nullptr;
#define OPTIONAL FUNCTION
#define CUDA FUNCTION
#include "torch_shim.def"
#undef FUNCTION
#undef OPTIONAL
#undef CUDA
    bool has_cuda = false;            ///< all functions for CUDA exist
    int32_t cpu = 0, cuda = 0;        ///< torch's numbers of these devices
    std::array<int32_t, 4> dtypes{};  ///< torch's numbers of f32, bf16, f16, f64, by normjit_dtype
};

/// An error with a message for the caller of the operator.
struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Returns the table. Throws Error if the process has no libtorch, or one that is too old. Thread safe. It searches
/// once, because a call of an operator needs the table some fifty times.
const Shim& find_shim();
inline const Shim& shim() {
    static std::atomic<const Shim*> found = nullptr;
    const Shim* known = found.load(std::memory_order_acquire);
    if (known == nullptr) found.store(known = &find_shim(), std::memory_order_release);
    return *known;
}

/// Returns the dlopen() handle of the libtorch that the table belongs to.
void* libtorch();

[[noreturn]] void report_failure(const char* function);
inline void check(Code code, const char* function) {
    if (code != 0) report_failure(function);
}

/// Calls a function of the table that returns a Code, and checks the Code.
#define NORMJIT_TORCH_CALL(name, ...) ::normjit::torch::check(::normjit::torch::shim().name(__VA_ARGS__), #name)

}  // namespace normjit::torch
