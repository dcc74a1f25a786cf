// SPDX-License-Identifier: Apache-2.0
// The part of XLA's foreign function interface that normjit uses. It is a C interface: XLA passes a table of its
// functions to each call, so one binary serves every jaxlib whose interface has this major version, without linking it.
// The original is xla/ffi/api/c_api.h in jaxlib's wheel; a test compares the two.
#pragma once

#include <cstddef>
#include <cstdint>

namespace normjit::jax {

/// The version of the interface that is described here, except for parts marked as newer. XLA refuses versions newer
/// than its own.
constexpr int32_t ffi_major = 0, ffi_minor = 1;

/// Every struct of the interface starts with this. `size` says how much of the struct the other side knows.
struct Head {
    size_t size = 0;
    void* extensions = nullptr;
};

template <class Struct>
Head head_of() {
    return {sizeof(Struct), nullptr};
}

enum class Element : int32_t {  ///< XLA_FFI_DataType
    s8 = 2,
    u8 = 6,
    f16 = 10,
    f32 = 11,
    f64 = 12,
    bf16 = 16,
    e5m2 = 19,
    e4m3 = 20,
    e8m0 = 33
};

struct Buffer {
    Head head;
    Element type;
    void* data;
    int64_t rank;
    const int64_t* dims;
};

struct Text {
    const char* data;
    size_t size;
};

struct Scalar {
    Element type;
    void* value;
};

enum class AttributeKind : int32_t { array = 1, dictionary = 2, scalar = 3, string = 4 };

/// Arguments, or results in the same form: buffers are the only kind.
struct Buffers {
    Head head;
    int64_t count;
    const int32_t* kinds;
    Buffer** buffers;
};

struct Attributes {
    Head head;
    int64_t count;
    const AttributeKind* kinds;
    Text** names;
    void** values;
};

using Error = struct ErrorObject;
using Context = struct ContextObject;

enum class ErrorCode : int32_t { invalid_argument = 3, internal = 13, unavailable = 14 };

struct ErrorCreate {
    Head head = head_of<ErrorCreate>();
    const char* message;
    ErrorCode code;
};

struct ErrorDestroy {
    Head head = head_of<ErrorDestroy>();
    Error* error;
};

struct StreamGet {
    Head head = head_of<StreamGet>();
    Context* context;
    void* stream = nullptr;
};

struct OrdinalGet {
    Head head = head_of<OrdinalGet>();
    Context* context;
    int32_t ordinal = 0;
};

struct PoolSchedule {
    Head head = head_of<PoolSchedule>();
    Context* context;
    void (*task)(void* data);
    void* data;
};

struct PoolThreads {
    Head head = head_of<PoolThreads>();
    Context* context;
    int64_t* threads;
};

struct Version {
    Head head;
    int32_t major;
    int32_t minor;
};

/// XLA's functions. Those that normjit does not call are only placeholders.
struct Api {
    Head head;
    Version version;
    void* internal;
    Error* (*error_create)(ErrorCreate*);
    void* error_message;
    void (*error_destroy)(ErrorDestroy*);
    void* handler_register;
    Error* (*stream_get)(StreamGet*);
    void *type_register, *context_get, *state_set, *state_get, *memory_allocate, *memory_free;
    Error* (*pool_schedule)(PoolSchedule*);
    Error* (*pool_threads)(PoolThreads*);
    void *future_create, *future_available, *future_error, *run_id;
    Error* (*ordinal_get)(OrdinalGet*);
};

enum class Stage : int32_t { instantiate = 0, prepare = 1, initialize = 2, execute = 3 };

struct CallFrame {
    Head head;
    const Api* api;
    Context* context;
    Stage stage;
    Buffers arguments;
    Buffers results;
    Attributes attributes;
};

/// True if a call of XLA returned no error. Destroys the error.
inline bool succeeds(const CallFrame& call, Error* error) {
    if (error == nullptr) return true;
    ErrorDestroy destroy;
    destroy.error = error;
    call.api->error_destroy(&destroy);
    return false;
}

/// A question about the handler, instead of a call.
struct Metadata {
    size_t size;
    Version version;
    uint32_t traits;
    int64_t state_type;  ///< 0 if the handler keeps none; only in newer versions
};
constexpr uint32_t trait_may_be_captured = 1;  ///< XLA may put the call in a CUDA graph
constexpr int32_t metadata_extension = 1;

struct MetadataExtension {
    size_t size;
    int32_t kind;
    void* next;
    Metadata* metadata;
};

}  // namespace normjit::jax
