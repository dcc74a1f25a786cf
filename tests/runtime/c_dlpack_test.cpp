// SPDX-License-Identifier: Apache-2.0
// Passes DLPack tensors as arguments of a launch, through normjit.h.
#include "c_abi/dlpack.h"
#include "c_objects.h"

#include <bit>
#include <cstdint>
#include <string>

#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

using namespace normjit::test;

namespace {

/// A DLTensor over memory of the test.
struct Dl {
    Dl(void* data, std::vector<int64_t> sizes, std::vector<int64_t> steps = {})
        : shape(std::move(sizes)), strides(std::move(steps)) {
        tensor = {data,
                  {normjit::dlpack::device_cpu, 0},
                  static_cast<int32_t>(shape.size()),
                  {2, 32, 1},
                  shape.data(),
                  strides.empty() ? nullptr : strides.data(),
                  0};
    }
    std::vector<int64_t> shape, strides;
    normjit::dlpack::Tensor tensor;
};

}  // namespace

TEST_CASE("c: DLPack tensors without elements may have any strides") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, sums);
    const Dl empty(nullptr, {3, 0, 40}, {0, 0, 0});
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    CHECK_MESSAGE(normjit_set_dlpack(kernel.get(), &arguments, NORMJIT_X, &empty.tensor) == NORMJIT_OK,
                  normjit_last_error());
    CHECK(arguments.rows == 0);
    CHECK(arguments.tensors[NORMJIT_X].cols == 40);
}

TEST_CASE("c: DLPack tensors of a program whose arguments have no slices yet") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle plain = prepared(engine, sums), sliced = prepared(engine, "rmsnorm slices=any cols=40 out=dx");
    std::vector<float> memory(1440);
    const Dl matrix(memory.data(), {12, 40}), slices(memory.data(), {3, 12, 40});
    const auto set = [](const KernelHandle& kernel, const Dl& dl, normjit_arguments& arguments) -> std::string {
        arguments.size = offsetof(normjit_arguments, slices);
        arguments.slices = 77;  // memory behind the program's struct
        const normjit_status status = normjit_set_dlpack(kernel.get(), &arguments, NORMJIT_X, &dl.tensor);
        CHECK(arguments.size == offsetof(normjit_arguments, slices));
        CHECK(arguments.slices == 77);
        return status == NORMJIT_OK ? "" : normjit_last_error();
    };
    normjit_arguments arguments{}, refused{};
    CHECK(set(plain, matrix, arguments) == "");
    CHECK(arguments.rows == 12);
    CHECK(arguments.tensors[NORMJIT_X].data == memory.data());
    CHECK(set(sliced, slices, refused) ==
          "arguments: size: this program was built with a normjit_arguments that has no slices");
    CHECK(refused.tensors[NORMJIT_X].data == nullptr);
    CHECK(normjit_set_dlpack(plain.get(), nullptr, NORMJIT_X, &matrix.tensor) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "arguments: null pointer");
}

TEST_CASE("c: DLPack tensors") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, sums);
    Ones ones(12, 40);
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    const auto set = [&](normjit_tensor tensor, const Dl& dl) -> std::string {
        return normjit_set_dlpack(kernel.get(), &arguments, tensor, &dl.tensor) == NORMJIT_OK ? ""
                                                                                              : normjit_last_error();
    };
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {3, 4, 40}}) == "");
    CHECK(arguments.rows == 12);
    CHECK(arguments.tensors[NORMJIT_X].row_stride == 40);
    CHECK(set(NORMJIT_DY, {ones.matrix.data(), {12, 40}, {40, 1}}) == "");
    CHECK(set(NORMJIT_RSTD, {ones.vector.data(), {3, 4, 1}}) == "");
    CHECK(set(NORMJIT_DGAMMA, {ones.dgamma.data(), {40}}) == "");
    std::vector<char> workspace((1 << 16) + 64);
    arguments.workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
    arguments.workspace_bytes = 1 << 16;
    REQUIRE_MESSAGE(normjit_launch(kernel.get(), &arguments) == NORMJIT_OK, normjit_last_error());
    CHECK(ones.dgamma == std::vector<float>(40, 12));

    // Strides that one row stride can describe, and others.
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {3, 4, 40}, {400, 100, 1}}) == "");
    CHECK(arguments.tensors[NORMJIT_X].row_stride == 100);
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {1, 12, 1, 40}, {7, 50, 3, 1}}) == "");
    CHECK(arguments.tensors[NORMJIT_X].row_stride == 50);
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {12, 40}, {0, 1}}) == "");
    CHECK(arguments.tensors[NORMJIT_X].row_stride == NORMJIT_REPEAT_ROW);
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {3, 4, 40}, {500, 100, 1}}) ==
          "dlpack: x: no single row stride describes its dimensions");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {12, 40}, {1, 12}}) ==
          "dlpack: x: the stride of its last dimension is 12; must be 1");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {12, 40}, {-40, 1}}) ==
          "dlpack: x: its row stride is -40; must be at least 0");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {12, -40}}) == "dlpack: x: dimension 1 is -40; must be at least 0");
    CHECK(set(NORMJIT_RSTD, {ones.vector.data(), {-3, -4}}) == "dlpack: rstd: dimension 0 is -3; must be at least 0");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {}}) == "dlpack: x: has no dimensions; the last must be cols");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {11, 40}}) == "dlpack: x: has 11 rows; the tensors before it have 12");
    CHECK(set(NORMJIT_GAMMA, {ones.vector.data(), {2, 40}}) == "dlpack: gamma: has 2 rows; must have one dimension");
    CHECK(set(NORMJIT_RSTD, {ones.vector.data(), {12}, {2}}) ==
          "dlpack: rstd: its elements are not contiguous; those of [M] must be");
    CHECK(set(NORMJIT_X, {ones.matrix.data(), {INT64_MAX, INT64_MAX, 40}}) ==
          "dlpack: x: no single row stride describes its dimensions");
    CHECK(set(std::bit_cast<normjit_tensor>(NORMJIT_TENSORS), {ones.matrix.data(), {12, 40}}) ==
          "tensor: 16; must be 0 to 15");

    Dl other{ones.matrix.data(), {12, 40}};
    other.tensor.byte_offset = 8;
    CHECK(set(NORMJIT_X, other) == "");
    CHECK(arguments.tensors[NORMJIT_X].data == ones.matrix.data() + 2);
    other.tensor.device.type = normjit::dlpack::device_cuda;
    CHECK(set(NORMJIT_X, other) == "dlpack: x: is on a device of type 2; the kernel runs on a CPU");
    other.tensor.device.type = normjit::dlpack::device_cuda_host;
    other.tensor.dtype = {4, 16, 1};
    CHECK(set(NORMJIT_X, other) == "");
    CHECK(arguments.tensors[NORMJIT_X].dtype == NORMJIT_BF16);
    for (const normjit::dlpack::DataType wrong : {normjit::dlpack::DataType{0, 32, 1}, {2, 8, 1}, {2, 32, 2}}) {
        other.tensor.dtype = wrong;
        const std::string refusal = set(NORMJIT_X, other);
        CHECK(refusal.starts_with("dlpack: x: type code "));
        CHECK(refusal.ends_with("lanes; allowed: f32, bf16, f16, f64, e4m3, e5m2, e8m0, i8"));
    }
    CHECK(normjit_set_dlpack(kernel.get(), &arguments, NORMJIT_X, nullptr) == NORMJIT_INVALID_ARGUMENT);
    Dl shapeless{ones.matrix.data(), {12, 40}};
    shapeless.tensor.shape = nullptr;
    CHECK(set(NORMJIT_X, shapeless) == "dlpack: x: has 2 dimensions and no shape");
    shapeless.tensor.dimensions = -1;
    CHECK(set(NORMJIT_X, shapeless) == "dlpack: x: has -1 dimensions; must be at least 0");
    Dl nowhere{nullptr, {12, 40}};
    nowhere.tensor.byte_offset = 64;
    CHECK(set(NORMJIT_X, nowhere) == "");
    CHECK(arguments.tensors[NORMJIT_X].data == nullptr);  // launch() refuses it
    const int64_t rows = arguments.rows;
    for (const std::vector<int64_t>& one : {std::vector<int64_t>{}, {1}, {1, 1}})
        CHECK(set(NORMJIT_AMAX, {ones.matrix.data(), one}) == "");
    CHECK(arguments.tensors[NORMJIT_AMAX].cols == 0);
    CHECK(arguments.rows == rows);
    CHECK(set(NORMJIT_AMAX, {ones.matrix.data(), {2}}) == "dlpack: amax: must have one element");
    normjit_arguments none{};
    none.size = sizeof none;
    const Dl empty{nullptr, {0, 40}};
    CHECK(normjit_set_dlpack(kernel.get(), &none, NORMJIT_X, &empty.tensor) == NORMJIT_OK);
    CHECK(none.rows == 0);
}

#if __has_include(<dlpack/dlpack.h>)
TEST_CASE("c: DLPack tensors with slices") {
    const EngineHandle engine = engine_with({});
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, "rmsnorm cols=40 slices=any out=dx,dgamma per_slice=gamma");
    std::vector<float> memory(4096);
    normjit_arguments arguments{};
    arguments.size = sizeof arguments;
    const auto set = [&](normjit_tensor tensor, const Dl& dl) -> std::string {
        return normjit_set_dlpack(kernel.get(), &arguments, tensor, &dl.tensor) == NORMJIT_OK ? ""
                                                                                              : normjit_last_error();
    };
    // Heads of a packed tensor [3, 5, 2, 40]: there are two slices, and their rows are 3 * 5 tokens.
    CHECK(set(NORMJIT_X, {memory.data(), {2, 3, 5, 40}, {40, 400, 80, 1}}) == "");
    CHECK(arguments.slices == 2);
    CHECK(arguments.rows == 15);
    CHECK(arguments.slice_strides[NORMJIT_X] == 40);
    CHECK(arguments.tensors[NORMJIT_X].row_stride == 80);
    CHECK(set(NORMJIT_DY, {memory.data(), {1, 15, 40}}) == "dlpack: dy: has 1 slices; the tensors before it have 2");
    CHECK(set(NORMJIT_DY, {memory.data(), {2, 15, 40}, {0, 40, 1}}) == "");
    CHECK(arguments.slice_strides[NORMJIT_DY] == NORMJIT_REPEAT_ROW);
    CHECK(set(NORMJIT_GAMMA, {memory.data(), {40}}) == "dlpack: gamma: has 1 slices; the tensors before it have 2");
    CHECK(set(NORMJIT_GAMMA, {memory.data(), {2, 40}, {120, 1}}) == "");
    CHECK(arguments.slice_strides[NORMJIT_GAMMA] == 120);
    CHECK(set(NORMJIT_RSTD, {memory.data(), {2, 15}}) == "");
    CHECK(set(NORMJIT_RSTD, {memory.data(), {30}}) == "dlpack: rstd: has 1 rows; the tensors before it have 15");
    CHECK(set(NORMJIT_DX, {memory.data(), {40}}) == "dlpack: dx: has no dimension for the slices, the first");
}

TEST_CASE("c: dlpack.h has the layout that is declared here") {
    using Mine = normjit::dlpack::Tensor;
    static_assert(sizeof(Mine) == sizeof(DLTensor));
    static_assert(offsetof(Mine, data) == offsetof(DLTensor, data));
    static_assert(offsetof(Mine, device) == offsetof(DLTensor, device));
    static_assert(offsetof(Mine, dimensions) == offsetof(DLTensor, ndim));
    static_assert(offsetof(Mine, dtype) == offsetof(DLTensor, dtype));
    static_assert(offsetof(Mine, shape) == offsetof(DLTensor, shape));
    static_assert(offsetof(Mine, strides) == offsetof(DLTensor, strides));
    static_assert(offsetof(Mine, byte_offset) == offsetof(DLTensor, byte_offset));
    CHECK(int{normjit::dlpack::device_cpu} == int{kDLCPU});
    CHECK(int{normjit::dlpack::device_cuda} == int{kDLCUDA});
    CHECK(int{normjit::dlpack::device_cuda_host} == int{kDLCUDAHost});
    CHECK(int{normjit::dlpack::device_cuda_managed} == int{kDLCUDAManaged});
    CHECK(int{normjit::dlpack::type_float} == int{kDLFloat});
    CHECK(int{normjit::dlpack::type_bfloat} == int{kDLBfloat});
}
#endif
