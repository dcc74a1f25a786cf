// SPDX-License-Identifier: Apache-2.0
// The part of tvm-ffi's C interface that normjit uses. It is declared here so that neither the build nor the library
// needs tvm-ffi: its functions are looked up in the process, whose caller has loaded it. The originals are
// tvm/ffi/c_api.h, tvm/ffi/extra/c_env_api.h and dlpack/dlpack.h in tvm-ffi's wheel; a test compares them.
#pragma once

#include "c_abi/dlpack.h"

#include <cstddef>
#include <cstdint>

namespace normjit::tvm {

enum class Kind : int32_t {  ///< TVMFFITypeIndex
    none = 0,
    integer = 1,
    device = 6,
    tensor_pointer = 7,
    raw_text = 8,
    small_text = 11,
    text = 65,
    function = 68,
    tensor = 70
};

using dlpack::DataType, dlpack::Device, dlpack::Tensor, dlpack::device_cpu, dlpack::device_cuda;
constexpr DataType type_u8{1, 8, 1};

struct Text {
    const char* data;
    size_t size;
};

/// The head of every object. It is followed by a Tensor in a tensor, and by a Text in a text.
struct Object {
    uint64_t references;
    Kind kind;
    uint32_t padding;
    void (*deleter)(void* self, int flags);
};

/// An argument or a result. Its kind decides which member holds it.
struct Any {
    Kind kind;
    uint32_t small_size;  ///< the size, if it is a small text
    union {
        int64_t integer;
        void* pointer;
        Device device;
        char small[8];
    };
};

/// A function: returns 0, or -1 after it has set this thread's error.
using Call = int(void* self, const Any* arguments, int32_t count, Any* result);

/// The functions of libtvm_ffi. Those that return an int return 0, or set this thread's error.
struct Api {
    int (*function_create)(void* self, Call* call, void (*deleter)(void* self), void** function);
    void (*error_set)(const char* kind, const char* message);
    void* (*stream)(int32_t device_type, int32_t device_id);
    void* (*allocator)();
    int (*tensor_alloc)(Tensor* prototype, void** tensor);
    int (*release)(void* object);
};

}  // namespace normjit::tvm
