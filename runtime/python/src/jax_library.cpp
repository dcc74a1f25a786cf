// SPDX-License-Identifier: Apache-2.0
// The functions of normjit_jax.h. They read a call of XLA and launch it.
#include "c_abi/dlpack.h"
#include "cpu_workspace.h"
#include "jax_kernels.h"
#include "jax_threads.h"
#include "normjit_jax.h"
#include "xla_ffi.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace normjit::jax {

namespace {

thread_local std::string last_error;

/// The dimensions of a buffer: [M,N], [N] and [M], after S if the spec has slices.
enum class Form : uint8_t { matrix, weight, statistic };

struct Place {
    normjit_tensor tensor;
    const char* name;
    Form form;
    uint32_t per_slice = 0;  ///< the spec's bit for a weight with a row for each slice
};
constexpr uint32_t gamma_bit = 1u << NORMJIT_GAMMA, beta_bit = 1u << NORMJIT_BETA;
constexpr Place inputs[] = {{NORMJIT_X, "x", Form::matrix},
                            {NORMJIT_DY, "dy", Form::matrix},
                            {NORMJIT_DRESIDUAL, "dresidual", Form::matrix},
                            {NORMJIT_GAMMA, "gamma", Form::weight, gamma_bit},
                            {NORMJIT_BETA, "beta", Form::weight, beta_bit},
                            {NORMJIT_MEAN, "mean", Form::statistic},
                            {NORMJIT_RSTD, "rstd", Form::statistic}};
constexpr Place outputs[] = {{NORMJIT_DX, "dx", Form::matrix},
                             {NORMJIT_DGAMMA, "dgamma", Form::weight, gamma_bit},
                             {NORMJIT_DBETA, "dbeta", Form::weight, beta_bit}};

/// Returns the attribute of a call with this name, as text.
std::string_view attribute_of(const CallFrame& call, std::string_view wanted) {
    for (int64_t i = 0; i < call.attributes.count; ++i) {
        const Text& name = *call.attributes.names[i];
        if (std::string_view(name.data, name.size) != wanted) continue;
        if (call.attributes.kinds[i] != AttributeKind::string) break;
        const Text& text = *static_cast<const Text*>(call.attributes.values[i]);
        return {text.data, text.size};
    }
    throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has no attribute " + std::string(wanted));
}

/// The device and stream of a call; the CPU has no streams.
struct Where {
    std::string device = "cpu";
    int32_t ordinal = 0;
    void* stream = nullptr;
};

Where gpu_of(const CallFrame& call) {
    StreamGet stream;
    stream.context = call.context;
    if (!succeeds(call, call.api->stream_get(&stream))) throw Failure(NORMJIT_FAILED, "XLA gives the call no stream");
    OrdinalGet ordinal;
    ordinal.context = call.context;
    if (!succeeds(call, call.api->ordinal_get(&ordinal)))
        throw Failure(NORMJIT_FAILED, "XLA does not say which GPU the call is for");
    return {"cuda:" + std::to_string(ordinal.ordinal), ordinal.ordinal, stream.stream};
}

[[noreturn]] void refuse(const Place& place, const std::string& reason) {
    throw Failure(NORMJIT_INVALID_ARGUMENT, std::string(place.name) + ": " + reason);
}

int32_t dtype_of(const Place& place, const Buffer& buffer) {
    switch (buffer.type) {
        case Element::f32: return NORMJIT_F32;
        case Element::bf16: return NORMJIT_BF16;
        case Element::f16: return NORMJIT_F16;
        case Element::f64: return NORMJIT_F64;
        default: refuse(place, "the buffer is of none of the types f32, bf16, f16 and f64");
    }
}

std::string text(std::span<const int64_t> dims) {
    std::string all;
    for (const int64_t size : dims) all += (all.empty() ? "" : ",") + std::to_string(size);
    return "[" + all + "]";
}

/// Turns the buffers of a call into the arguments of a launch. The first matrix gives the number of rows and slices,
/// and all others must have the same.
class Taker {
  public:
    Taker(const normjit_spec& spec, normjit_arguments& arguments) : spec_(spec), arguments_(arguments) {}

    /// Takes the tensors that the spec has, in the order of `all`, and returns their number.
    int64_t take(const Buffers& given, std::span<const Place> all) {
        int64_t next = 0;
        for (const Place& place : all) {
            if (spec_.dtypes[place.tensor] == NORMJIT_NONE) continue;
            if (next == given.count)
                throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has fewer buffers than the spec");
            take(*given.buffers[next++], place);
        }
        return next;
    }

  private:
    bool in_slices() const { return spec_.slices != 0 && spec_.slices != 1; }

    void take(const Buffer& buffer, const Place& place) {
        const std::span dims(buffer.dims, static_cast<size_t>(buffer.rank));
        if (!knows_rows_ && place.form == Form::matrix) take_rows(dims, place);
        const auto wanted = dims_of(place);
        if (!std::ranges::equal(dims, wanted)) {
            refuse(place, "the buffer's dimensions are " + text(dims) + "; must be " + text(wanted));
        }
        const int64_t cols = place.form == Form::statistic ? 0 : spec_.cols;
        arguments_.tensors[place.tensor] = {buffer.data, cols, 0, dtype_of(place, buffer), 0};
    }

    void take_rows(std::span<const int64_t> dims, const Place& place) {
        const size_t rank = in_slices() ? 3 : 2;
        if (dims.size() != rank) {
            refuse(place,
                   "the buffer has " + std::to_string(dims.size()) + " dimensions; must have " + std::to_string(rank));
        }
        arguments_.rows = rows_ = dims[rank - 2];
        if (in_slices()) slices_ = dims[0], arguments_.slices = slices_ == 0 ? NORMJIT_NO_SLICES : slices_;
        knows_rows_ = true;
    }

    std::vector<int64_t> dims_of(const Place& place) const {
        std::vector<int64_t> dims;
        const bool has_slices = in_slices() && place.form != Form::weight;
        if (has_slices || (spec_.per_slice & place.per_slice) != 0) dims.push_back(slices_);
        if (place.form != Form::weight) dims.push_back(rows_);
        if (place.form != Form::statistic) dims.push_back(spec_.cols);
        return dims;
    }

    const normjit_spec& spec_;
    normjit_arguments& arguments_;
    bool knows_rows_ = false;
    int64_t rows_ = 0, slices_ = 0;
};

/// Returns the rows of all slices of x, the first input; 0 if it has no columns.
int64_t rows_of(const CallFrame& call) {
    if (call.arguments.count == 0) return 0;
    const Buffer& x = *call.arguments.buffers[0];
    int64_t rows = x.rank > 1 ? 1 : 0;
    for (int64_t i = 0; i + 1 < x.rank; ++i) rows *= x.dims[i];
    return rows;
}

/// Launches with workspace: on a CPU this thread's, on a GPU the one that follows the results of the call.
void launch(const CallFrame& call, const Where& where, const Kernel& kernel, normjit_arguments& arguments,
            int64_t results) {
    const bool on_cpu = where.device == "cpu";
    if (call.results.count > results + (on_cpu ? 0 : 1))
        throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has more buffers than the spec");
    arguments.stream = where.stream;
    if (on_cpu) {
        check(normjit_kernel_workspace_bytes(kernel.kernel, arguments.rows, arguments.slices, nullptr,
                                             &arguments.workspace_bytes));
        arguments.workspace = python::cpu_workspace(arguments.workspace_bytes);
        if (arguments.workspace == nullptr)
            arguments.workspace_bytes = 0;  // a launch that needs a workspace refuses null
    } else if (results < call.results.count) {
        const Buffer& workspace = *call.results.buffers[results];
        arguments.workspace = workspace.data;
        arguments.workspace_bytes = workspace.rank == 1 ? workspace.dims[0] : 0;
    }
    check(normjit_launch(kernel.kernel, &arguments));
}

void execute_backward(const CallFrame& call, const Where& where) {
    const LentPool pool(call);
    const Kernel& kernel = kernel_of(where.device, attribute_of(call, "spec"), rows_of(call), where.stream);
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    Taker taker(kernel.spec, arguments);
    if (taker.take(call.arguments, inputs) != call.arguments.count)
        throw Failure(NORMJIT_INVALID_ARGUMENT, "the call has more buffers than the spec");
    launch(call, where, kernel, arguments, taker.take(call.results, outputs));
}

dlpack::DataType type_of(Element element) {
    using namespace dlpack;
    switch (element) {
        case Element::f16: return {type_float, 16, 1};
        case Element::f32: return {type_float, 32, 1};
        case Element::f64: return {type_float, 64, 1};
        case Element::bf16: return {type_bfloat, 16, 1};
        case Element::e4m3: return {type_float8_e4m3fn, 8, 1};
        case Element::e5m2: return {type_float8_e5m2, 8, 1};
        case Element::e8m0: return {type_float8_e8m0fnu, 8, 1};
        case Element::s8: return {type_int, 8, 1};
        default: return {0, 0, 1};
    }
}

/// Launches a call with a formula. The attribute `tensors` has the numbers of all arguments, then of all results.
void execute_formula(const CallFrame& call, const Where& where) {
    const LentPool pool(call);
    const Kernel& kernel = kernel_of(where.device, attribute_of(call, "spec"), rows_of(call), where.stream);
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    std::string_view numbers = attribute_of(call, "tensors");
    int64_t taken = 0;
    while (!numbers.empty()) {
        int32_t number = 0;
        const auto [end, error] = std::from_chars(numbers.data(), numbers.data() + numbers.size(), number);
        if (error != std::errc() || taken == call.arguments.count + call.results.count)
            throw Failure(NORMJIT_INVALID_ARGUMENT, "the attribute tensors does not fit the call");
        numbers.remove_prefix(std::min<size_t>(static_cast<size_t>(end - numbers.data()) + 1, numbers.size()));
        const bool is_argument = taken < call.arguments.count;
        const Buffer& buffer =
            is_argument ? *call.arguments.buffers[taken] : *call.results.buffers[taken - call.arguments.count];
        std::vector<int64_t> dims(buffer.dims, buffer.dims + buffer.rank);
        const dlpack::Device device = where.device == "cpu" ? dlpack::Device{dlpack::device_cpu, 0}
                                                            : dlpack::Device{dlpack::device_cuda, where.ordinal};
        const dlpack::Tensor tensor{
            buffer.data, device, static_cast<int32_t>(buffer.rank), type_of(buffer.type), dims.data(), nullptr, 0};
        check(normjit_set_dlpack(kernel.kernel, &arguments, static_cast<normjit_tensor>(number), &tensor));
        ++taken;
    }
    if (taken < call.arguments.count)
        throw Failure(NORMJIT_INVALID_ARGUMENT, "the attribute tensors does not fit the call");
    launch(call, where, kernel, arguments, taken - call.arguments.count);
}

Error* to_xla(const CallFrame& call, normjit_status status, const char* message) {
    ErrorCreate error;
    error.message = message;
    error.code = status == NORMJIT_INVALID_ARGUMENT ? ErrorCode::invalid_argument
                 : status == NORMJIT_UNAVAILABLE    ? ErrorCode::unavailable
                                                    : ErrorCode::internal;
    return call.api->error_create(&error);
}

/// Answers a question about the handler; false if the call is not a question.
bool describe(const CallFrame& call) {
    auto* extension = static_cast<MetadataExtension*>(call.head.extensions);
    if (extension == nullptr || extension->kind != metadata_extension) return false;
    Metadata& metadata = *extension->metadata;
    metadata.version = {head_of<Version>(), ffi_major, ffi_minor};
    metadata.traits = trait_may_be_captured;
    if (metadata.size >= offsetof(Metadata, state_type) + sizeof metadata.state_type) metadata.state_type = 0;
    return true;
}

using Execute = void (*)(const CallFrame& call, const Where& where);

Error* answer(NormjitXlaCall* given, bool on_gpu, Execute execute) noexcept {
    const auto& call = *reinterpret_cast<const CallFrame*>(given);
    if (describe(call) || call.stage != Stage::execute) return nullptr;
    try {
        execute(call, on_gpu ? gpu_of(call) : Where());
        return nullptr;
    } catch (const Failure& failure) {
        return to_xla(call, failure.status, failure.what());
    } catch (const std::exception& error) {
        return to_xla(call, NORMJIT_FAILED, error.what());
    }
}

}  // namespace

}  // namespace normjit::jax

using normjit::jax::answer, normjit::jax::execute_backward, normjit::jax::execute_formula;

void* normjit_jax_backward_cpu(NormjitXlaCall* call) { return answer(call, false, execute_backward); }
void* normjit_jax_backward_cuda(NormjitXlaCall* call) { return answer(call, true, execute_backward); }
void* normjit_jax_formula_cpu(NormjitXlaCall* call) { return answer(call, false, execute_formula); }
void* normjit_jax_formula_cuda(NormjitXlaCall* call) { return answer(call, true, execute_formula); }

const char* normjit_jax_last_error(void) { return normjit::jax::last_error.c_str(); }

int normjit_jax_prepare(const char* device, const char* spec, int64_t rows, int64_t slices, int64_t* workspace) {
    using namespace normjit::jax;
    try {
        const Kernel& kernel = kernel_of(device, spec, rows, nullptr);
        check(normjit_kernel_workspace_bytes(kernel.kernel, slices > 0 ? rows / slices : rows, slices, nullptr,
                                             workspace));
        return 0;
    } catch (const std::exception& error) {
        last_error = error.what();
        return 1;
    }
}
