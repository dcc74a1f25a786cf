// SPDX-License-Identifier: Apache-2.0
#include "c_abi/convert.h"

#include "spec/attributes.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::c_abi {

namespace {

template <class Enum>
constexpr bool same(int c, Enum cpp) {
    return c == static_cast<int>(cpp);
}
static_assert(same(NORMJIT_OK, Code::ok) && same(NORMJIT_INVALID_ARGUMENT, Code::invalid_argument) &&
              same(NORMJIT_UNAVAILABLE, Code::unavailable) && same(NORMJIT_FAILED, Code::failed) &&
              same(NORMJIT_PENDING, Code::pending) && same(NORMJIT_CAPTURING, Code::capturing));
static_assert(same(NORMJIT_SYNC, OnMiss::sync) && same(NORMJIT_BACKGROUND, OnMiss::background) &&
              same(NORMJIT_ERROR, OnMiss::error) && same(NORMJIT_LOAD, OnMiss::load));
static_assert(same(NORMJIT_GRADIENT_DERIVED, GradientKind::derived) &&
              same(NORMJIT_GRADIENT_ZERO, GradientKind::zero) && same(NORMJIT_GRADIENT_ABSENT, GradientKind::absent));
static_assert(same(NORMJIT_TUNE_OFF, TunePolicy::off) && same(NORMJIT_TUNE_ON_MISS, TunePolicy::on_miss) &&
              same(NORMJIT_TUNE_BACKGROUND, TunePolicy::background));
static_assert(same(NORMJIT_THREADS_AUTOMATIC - 1, ThreadPolicy::automatic) &&
              same(NORMJIT_THREADS_OWN - 1, ThreadPolicy::own) &&
              same(NORMJIT_THREADS_OPENMP - 1, ThreadPolicy::openmp) && std::size(all_thread_policies) == 3);
static_assert(same(NORMJIT_LOG_INFO, LogLevel::info) && same(NORMJIT_LOG_WARNING, LogLevel::warning));
static_assert(tensor_count <= NORMJIT_TENSORS);

/// Returns the value with this number.
template <class Enum, size_t count>
Status read_enum(const char* field, int number, const Enum (&all)[count], Enum& value) {
    if (number < 0 || number >= static_cast<int>(count))
        return invalid_argument(fmt::format("{}: {}; must be 0 to {}", field, number, count - 1));
    value = all[number];
    return {};
}

Status read_flag(const char* field, int64_t number, bool& value) {
    if (number < 0 || number > 1) return invalid_argument(fmt::format("{}: {}; must be 0 or 1", field, number));
    value = number == 1;
    return {};
}

uint32_t bit_of(Tensor tensor) { return 1u << info(tensor).number; }

/// Gives an attribute to the tensors whose bits are set in `bits`.
Status read_attribute(const Attribute& attribute, uint32_t bits, Spec& spec) {
    for (const Tensor tensor : all_tensors) {
        if ((bits & bit_of(tensor)) == 0) continue;
        bits &= ~bit_of(tensor);
        attribute.give(spec, tensor);
        if (attribute.may_be_named(tensor) && attribute.has(spec, tensor)) continue;
        const std::string_view reason =
            attribute.may_be_named(tensor) ? "the spec has no such tensor" : attribute.refusal;
        return invalid_argument(fmt::format("spec: {}={}: {}", attribute.key, name(tensor), reason));
    }
    if (bits == 0) return {};
    return invalid_argument(fmt::format("spec: {}: {:#x}; there are no such tensors", attribute.key, bits));
}

/// Checks a field that is reserved for later versions.
Status read_reserved(const std::string& field, int64_t number) {
    return number == 0 ? Status() : invalid_argument(fmt::format("{}: {}; must be 0", field, number));
}

/// Reads the names of `count` files. Returns nothing if `names` is null; the environment then decides.
Expected<std::optional<std::vector<std::string>>> read_files(const char* field, const char* const* names,
                                                             size_t count) {
    if (names == nullptr) return std::optional<std::vector<std::string>>();
    std::optional<std::vector<std::string>> files(std::in_place);
    for (size_t i = 0; i < count; ++i) {
        if (names[i] == nullptr) {
            return invalid_argument(fmt::format("engine options: {}[{}]: null pointer, of {} files", field, i, count));
        }
        files->emplace_back(names[i]);
    }
    return files;
}

int64_t to_cpp_stride(int64_t c) {
    if (c == 0) return Argument::contiguous;
    return c == NORMJIT_REPEAT_ROW ? 0 : c;
}

Status wrong_stride(std::string_view tensor, std::string_view field, int64_t stride) {
    return invalid_argument(
        fmt::format("launch: {}: {} is {}; must be at least 0, or NORMJIT_REPEAT_ROW", tensor, field, stride));
}

Status repeated_output(std::string_view tensor, std::string_view field, std::string_view what) {
    return invalid_argument(fmt::format(
        "launch: {}: {} is NORMJIT_REPEAT_ROW, which repeats a {}; only inputs may do so", tensor, field, what));
}

}  // namespace

Expected<Tensor> to_tensor(int number) {
    for (const Tensor tensor : all_tensors) {
        if (info(tensor).number == number) return tensor;
    }
    return invalid_argument(fmt::format("tensor: {}; must be 0 to {}", number, tensor_count - 1));
}

Expected<Spec> to_cpp(const normjit_spec* given) {
    NORMJIT_TRY(const normjit_spec from, read_struct(given, "spec"));
    if (from.text != nullptr) return parse_spec(from.text);
    Spec spec;
    NORMJIT_RETURN_IF_ERROR(read_enum("spec: norm", from.norm, all_norms, spec.norm));
    NORMJIT_RETURN_IF_ERROR(read_enum("spec: stats", from.stats, all_stats, spec.stats));
#define CHOICE(key, values_of, ...) NORMJIT_RETURN_IF_ERROR(read_enum("spec: " #key, from.key, values_of, spec.key));
#define NUMBER(key, ...) spec.key = from.key;
#define FLAG(key, ...) NORMJIT_RETURN_IF_ERROR(read_flag("spec: " #key, from.key, spec.key));
#include "normjit/keys.def"
    if (spec.pass == Pass::forward) spec.stats = Stats::recompute;
    if (spec.stats != Stats::recompute) spec.eps = Spec().eps;
    if (from.rows != -1) spec.rows = from.rows;
    spec.slices = from.slices == 0 ? 1 : from.slices;
    if (from.slices == -1) spec.slices.reset();
    spec.cols = from.cols;
    for (const Tensor tensor : all_tensors) {
        const int number = from.dtypes[info(tensor).number];
        if (number == NORMJIT_NONE) continue;
        DType dtype{};
        NORMJIT_RETURN_IF_ERROR(read_enum("spec: dtypes", number, all_dtypes, dtype));
        spec.set(tensor, dtype);
    }
#define ATTRIBUTE(key, ...) NORMJIT_RETURN_IF_ERROR(read_attribute(attributes::key, from.key, spec));
#include "normjit/keys.def"
    return spec;
}

normjit_spec to_c(const Spec& spec) {
    normjit_spec to{};
    to.size = sizeof to;
    to.norm = static_cast<int32_t>(spec.norm);
    to.stats = static_cast<int32_t>(spec.stats);
#define CHOICE(key, ...) to.key = static_cast<int32_t>(spec.key);
#define NUMBER(key, ...) to.key = spec.key;
#define FLAG(key, ...) to.key = spec.key ? 1 : 0;
#include "normjit/keys.def"
    to.rows = spec.rows.value_or(-1);
    to.slices = spec.slices.value_or(-1);
    to.cols = spec.cols;
    std::ranges::fill(to.dtypes, NORMJIT_NONE);
    for (const Tensor tensor : all_tensors) {
        if (!spec.has(tensor)) continue;
        to.dtypes[info(tensor).number] = static_cast<int32_t>(spec.dtype(tensor));
    }
#define ATTRIBUTE(key, ...)                                              \
    for (const Tensor tensor : all_tensors) {                            \
        if (attributes::key.has(spec, tensor)) to.key |= bit_of(tensor); \
    }
#include "normjit/keys.def"
    return to;
}

normjit_operand to_c(const Operand& operand, int64_t cols) {
    normjit_operand to{};
    to.size = sizeof to;
    to.tensor = info(operand.tensor).number;
    to.dtype = static_cast<int32_t>(operand.dtype);
    to.is_output = operand.is_written() ? 1 : 0;
    to.per_slice = operand.axes.slice ? 1 : 0;
    to.per_row = operand.axes.row ? 1 : 0;
    to.accumulate = operand.accumulate ? 1 : 0;
    to.cols = operand.axes.columns(cols);
    operand.name.copy(to.name, sizeof to.name - 1);
    return to;
}

Expected<EngineOptions> to_cpp(const normjit_engine_options& from) {
    EngineOptions options;
    if (from.device != nullptr) options.device = from.device;
    options.threads = from.threads;
    options.parallel_for = {from.parallel_for.run, from.parallel_for.self};
    if (from.thread_policy != NORMJIT_THREADS_DEFAULT) {
        if (from.thread_policy < 0 || from.thread_policy > NORMJIT_THREADS_OPENMP) {
            return invalid_argument(fmt::format("engine options: thread_policy: {}; must be 0 to {}",
                                                from.thread_policy, int{NORMJIT_THREADS_OPENMP}));
        }
        options.thread_policy = all_thread_policies[from.thread_policy - 1];
    }
    options.openmp_user = from.openmp_user;
    if ((from.allocator.allocate == nullptr) != (from.allocator.release == nullptr)) {
        return invalid_argument("engine options: allocator: allocate and release must be given together");
    }
    options.allocator = {from.allocator.allocate, from.allocator.release, from.allocator.self};
    if (from.cache_folder != nullptr) options.cache.folder = from.cache_folder;
    if (from.cache_bytes < 0) return invalid_argument("engine options: cache_bytes: must be at least 0");
    if (from.cache_bytes > 0) options.cache.bytes = from.cache_bytes;
    if (from.most_kernels != 0) options.most_kernels = from.most_kernels;
    if (from.most_kernel_bytes != 0) options.most_kernel_bytes = from.most_kernel_bytes;
    bool trusts_others = false, has_no_records = false;
    NORMJIT_RETURN_IF_ERROR(read_flag("engine options: cache_trust_others", from.cache_trust_others, trusts_others));
    if (trusts_others) options.cache.trust_others = true;
    NORMJIT_TRY(options.cache.packs, read_files("packs", from.packs, from.pack_count));
    NORMJIT_TRY(options.record_files, read_files("record_files", from.record_files, from.record_file_count));
    NORMJIT_RETURN_IF_ERROR(read_flag("engine options: no_shipped_records", from.no_shipped_records, has_no_records));
    options.shipped_records = !has_no_records;
    NORMJIT_RETURN_IF_ERROR(read_enum("engine options: tune", from.tune, all_tune_policies, options.tune));
    if (from.tune_seconds != 0) options.tune_seconds = from.tune_seconds;  // Engine::create() checks the value
    return options;
}

Expected<PrepareOptions> to_cpp(const normjit_prepare_options& from) {
    PrepareOptions options{.on_miss = OnMiss::sync,
                           .stream = from.stream,
                           .expected_rows = from.expected_rows,
                           .expected_slices = from.expected_slices};
    for (const auto& [name, count] :
         {std::pair("expected_rows", from.expected_rows), std::pair("expected_slices", from.expected_slices)})
        if (count < 0) return invalid_argument(fmt::format("prepare options: {}: {}; must be at least 0", name, count));
    NORMJIT_RETURN_IF_ERROR(read_enum("prepare options: on_miss", from.on_miss, all_on_miss, options.on_miss));
    return options;
}

Expected<Arguments> to_cpp(const normjit_arguments& from, const Spec& spec) {
    Arguments to;
    to.rows = from.rows;
    to.slices = to_slices(from.slices);
    for (Tensor tensor : all_tensors) {
        if (!spec.takes_part(tensor)) continue;
        const normjit_argument& given = from.tensors[info(tensor).number];
        if (given.reserved != 0)
            return read_reserved(fmt::format("launch: {}: reserved", spec.name(tensor)), given.reserved);
        to[tensor] = {.data = given.data, .cols = given.cols};
        const int64_t slice_stride = from.slice_strides[info(tensor).number];
        to[tensor].row_stride = to_cpp_stride(given.row_stride);
        to[tensor].slice_stride = to_cpp_stride(slice_stride);
        if (given.row_stride < NORMJIT_REPEAT_ROW)
            return wrong_stride(spec.name(tensor), "row_stride", given.row_stride);
        if (slice_stride < NORMJIT_REPEAT_ROW) return wrong_stride(spec.name(tensor), "slice_stride", slice_stride);
        const bool is_written = spec.writes(tensor) && to.rows > 0 && to.slices > 0;
        if (is_written && to.rows > 1 && given.row_stride == NORMJIT_REPEAT_ROW)
            return repeated_output(spec.name(tensor), "row_stride", "row");
        if (is_written && to.slices > 1 && slice_stride == NORMJIT_REPEAT_ROW)
            return repeated_output(spec.name(tensor), "slice_stride", "slice");
        if (given.dtype >= 0 && given.dtype < static_cast<int>(std::size(all_dtypes))) {
            to[tensor].dtype = static_cast<DType>(given.dtype);
        } else {
            return invalid_argument(fmt::format("launch: {}: dtype: {}; must be 0 to {}", spec.name(tensor),
                                                given.dtype, std::size(all_dtypes) - 1));
        }
    }
    to.workspace = from.workspace;
    to.workspace_bytes = from.workspace_bytes;
    to.stream = from.stream;
    return to;
}

}  // namespace normjit::c_abi
