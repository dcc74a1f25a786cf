// SPDX-License-Identifier: Apache-2.0
// The functions of normjit_jax.h: XLA's call, read and launched.
#include "cpu_workspace.h"
#include "jax_kernels.h"
#include "jax_threads.h"
#include "normjit_jax.h"
#include "xla_ffi.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace normjit::jax {

namespace {

thread_local std::string last_error;

constexpr normjit_tensor inputs[] = {NORMJIT_X,    NORMJIT_DY,   NORMJIT_DRESIDUAL, NORMJIT_GAMMA,
                                     NORMJIT_BETA, NORMJIT_MEAN, NORMJIT_RSTD};
constexpr normjit_tensor outputs[] = {NORMJIT_DX, NORMJIT_DGAMMA, NORMJIT_DBETA};

std::string spec_of(const CallFrame& call) {
    for (int64_t i = 0; i < call.attributes.count; ++i) {
        const Text& name = *call.attributes.names[i];
        if (std::string_view(name.data, name.size) != "spec") continue;
        if (call.attributes.kinds[i] != AttributeKind::string) break;
        const Text& text = *static_cast<const Text*>(call.attributes.values[i]);
        return {text.data, text.size};
    }
    throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has no attribute spec");
}

/// Where a call is to run; the CPU has no streams.
struct Place {
    std::string device = "cpu";
    void* stream = nullptr;
};

void check_xla(const CallFrame& call, Error* error, const char* what) {
    if (error == nullptr) return;
    ErrorDestroy destroy;
    destroy.error = error;
    call.api->error_destroy(&destroy);
    throw Failure(NORMJIT_FAILED, what);
}

Place gpu_of(const CallFrame& call) {
    StreamGet stream;
    stream.context = call.context;
    check_xla(call, call.api->stream_get(&stream), "XLA gives the call no stream");
    OrdinalGet ordinal;
    ordinal.context = call.context;
    check_xla(call, call.api->ordinal_get(&ordinal), "XLA does not say which GPU the call is for");
    return {"cuda:" + std::to_string(ordinal.ordinal), stream.stream};
}

int32_t dtype_of(const Buffer& buffer) {
    switch (buffer.type) {
        case Element::f32:
            return NORMJIT_F32;
        case Element::bf16:
            return NORMJIT_BF16;
        case Element::f16:
            return NORMJIT_F16;
        case Element::f64:
            return NORMJIT_F64;
        default:
            throw Failure(NORMJIT_INVALID_ARGUMENT, "a buffer is of none of the types f32, bf16, f16 and f64");
    }
}

/// A matrix of [M,N], or with slices of [S,M,N].
void take_rows(const Buffer& matrix, bool in_slices, normjit_arguments& arguments) {
    if (matrix.rank != (in_slices ? 3 : 2)) throw Failure(NORMJIT_INVALID_ARGUMENT, "a matrix has other dimensions");
    arguments.rows = matrix.dims[matrix.rank - 2];
    if (in_slices) arguments.slices = matrix.dims[0] == 0 ? NORMJIT_NO_SLICES : matrix.dims[0];
}

/// Of the tensors that the spec has, in the order of `all`.
template <size_t count>
int64_t take(const Kernel& kernel, const Buffers& given, const normjit_tensor (&all)[count],
             normjit_arguments& arguments) {
    const bool in_slices = kernel.spec.slices == -1;
    int64_t next = 0;
    for (const normjit_tensor tensor : all) {
        if (kernel.spec.dtypes[tensor] == NORMJIT_NONE) continue;
        if (next == given.count) throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has fewer buffers than the spec");
        const Buffer& buffer = *given.buffers[next++];
        const bool is_of_rows = tensor == NORMJIT_MEAN || tensor == NORMJIT_RSTD;
        const int64_t cols = is_of_rows || buffer.rank == 0 ? 0 : buffer.dims[buffer.rank - 1];
        arguments.tensors[tensor] = {buffer.data, cols, 0, dtype_of(buffer), 0};
        if (tensor == NORMJIT_X || tensor == NORMJIT_DY) take_rows(buffer, in_slices, arguments);
    }
    return next;
}

void execute(const CallFrame& call, const Place& place) {
    const LentPool pool(call);
    const Kernel& kernel = kernel_of(place.device, spec_of(call), place.stream);
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    take(kernel, call.arguments, inputs, arguments);
    const int64_t results = take(kernel, call.results, outputs, arguments);
    arguments.stream = place.stream;
    if (place.device == "cpu") {
        check(normjit_kernel_workspace_bytes(kernel.kernel, arguments.rows, arguments.slices, nullptr,
                                             &arguments.workspace_bytes));
        arguments.workspace = python::cpu_workspace(arguments.workspace_bytes);
        if (arguments.workspace == nullptr) arguments.workspace_bytes = 0;  // which the launch refuses if it needs more
    } else if (results < call.results.count) {
        const Buffer& workspace = *call.results.buffers[results];
        arguments.workspace = workspace.data;
        arguments.workspace_bytes = workspace.rank == 1 ? workspace.dims[0] : 0;
    }
    check(normjit_launch(kernel.kernel, &arguments));
}

Error* to_xla(const CallFrame& call, normjit_status status, const char* message) {
    ErrorCreate error;
    error.message = message;
    error.code = status == NORMJIT_INVALID_ARGUMENT ? ErrorCode::invalid_argument
                 : status == NORMJIT_UNAVAILABLE    ? ErrorCode::unavailable
                                                    : ErrorCode::internal;
    return call.api->error_create(&error);
}

/// Answers a question about the handler; false when there is none.
bool describe(const CallFrame& call) {
    auto* extension = static_cast<MetadataExtension*>(call.head.extensions);
    if (extension == nullptr || extension->kind != metadata_extension) return false;
    Metadata& metadata = *extension->metadata;
    metadata.version = {head_of<Version>(), ffi_major, ffi_minor};
    metadata.traits = trait_may_be_captured;
    if (metadata.size >= offsetof(Metadata, state_type) + sizeof metadata.state_type) metadata.state_type = 0;
    return true;
}

template <class FindPlace>
Error* answer(const CallFrame& call, const FindPlace& place_of) noexcept {
    if (describe(call) || call.stage != Stage::execute) return nullptr;
    try {
        execute(call, place_of(call));
        return nullptr;
    } catch (const Failure& failure) {
        return to_xla(call, failure.status, failure.what());
    } catch (const std::exception& error) {
        return to_xla(call, NORMJIT_FAILED, error.what());
    }
}

}  // namespace

}  // namespace normjit::jax

void* normjit_jax_backward_cpu(NormjitXlaCall* call) {
    using namespace normjit::jax;
    return answer(*reinterpret_cast<const CallFrame*>(call), [](const CallFrame&) { return Place(); });
}

void* normjit_jax_backward_cuda(NormjitXlaCall* call) {
    using namespace normjit::jax;
    return answer(*reinterpret_cast<const CallFrame*>(call), gpu_of);
}

const char* normjit_jax_last_error(void) { return normjit::jax::last_error.c_str(); }

int normjit_jax_prepare(const char* device, const char* spec, int64_t rows, int64_t* workspace) {
    using namespace normjit::jax;
    try {
        check(normjit_kernel_workspace_bytes(kernel_of(device, spec, nullptr).kernel, rows, 0, nullptr, workspace));
        return 0;
    } catch (const std::exception& error) {
        last_error = error.what();
        return 1;
    }
}
