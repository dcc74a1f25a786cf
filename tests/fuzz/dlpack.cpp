// SPDX-License-Identifier: Apache-2.0
// Draws any DLPack tensor from the bytes. If it is accepted, it must describe the same elements as the argument that is
// made from it: each index has the same address.
#include "c_abi/dlpack.h"

#include "c_abi/convert.h"
#include "fuzz.h"
#include "random_spec.h"

#include "normjit/compile.h"

#include <algorithm>
#include <array>
#include <vector>

using namespace normjit;

namespace {

constexpr int most_dimensions = 6;

struct Drawn {
    dlpack::Tensor tensor{};
    std::array<int64_t, most_dimensions> shape{}, strides{};
};

void draw(test::Random& random, Drawn& to) {
    const auto number = [&] {
        return random.pick({random.between(0, 4), random.between(-3, 70), int64_t{1}, int64_t{64}, INT64_MAX, INT64_MIN,
                            int64_t{1} << 32, static_cast<int64_t>(random.bits())});
    };
    to.tensor.data = reinterpret_cast<void*>(0x100000);
    to.tensor.device.type = random.pick({1, 2, 3, 13, 1, 1, 0});
    to.tensor.dimensions = static_cast<int32_t>(random.between(0, most_dimensions));
    to.tensor.dtype = {random.pick<uint8_t>({2, 4, 1}), random.pick<uint8_t>({16, 32, 64, 8}), 1};
    int64_t contiguous = 1;
    for (size_t i = static_cast<size_t>(to.tensor.dimensions); i-- > 0;) {
        to.shape[i] = number();
        to.strides[i] = random.chance(60) ? contiguous : number();
        contiguous = static_cast<int64_t>(static_cast<uint64_t>(contiguous) * static_cast<uint64_t>(to.shape[i]));
    }
    to.tensor.shape = to.shape.data();
    to.tensor.strides = random.chance(60) ? to.strides.data() : nullptr;
    to.tensor.byte_offset = random.pick({uint64_t{0}, uint64_t{8}, uint64_t{1} << 20});
}

/// Returns how many elements lie before the one at `index`, according to the tensor's own strides. The number is modulo
/// 2^64, because a launch refuses larger offsets.
uint64_t offset_of(const dlpack::Tensor& tensor, const std::array<int64_t, most_dimensions>& index) {
    uint64_t offset = 0, contiguous = 1;
    for (int i = tensor.dimensions - 1; i >= 0; --i) {
        const auto stride = tensor.strides != nullptr ? static_cast<uint64_t>(tensor.strides[i]) : contiguous;
        offset += static_cast<uint64_t>(index[static_cast<size_t>(i)]) * stride;
        contiguous *= static_cast<uint64_t>(tensor.shape[i]);
    }
    return offset;
}

void compare(const dlpack::Tensor& from, const Spec& spec, Tensor tensor, const normjit_arguments& arguments) {
    constexpr int64_t most_elements = 5000;
    const int number = info(tensor).number;
    const normjit_argument& to = arguments.tensors[number];
    const Axes axes = info(tensor).axes;
    const int64_t cols = axes.column ? to.cols : 1;
    const int64_t rows = axes.row ? arguments.rows : 1;
    const int64_t slices = !axes.row && !spec.is_per_slice(tensor) ? 1
                           : arguments.slices == NORMJIT_NO_SLICES ? 0
                                                                   : std::max<int64_t>(arguments.slices, 1);
    fuzz::require(slices >= 0 && rows >= 0 && cols >= 0, "a negative size");
    if (slices == 0 || rows == 0 || cols == 0 || rows > most_elements / cols || slices > most_elements / (rows * cols))
        return;
    const auto stride = [](int64_t given, int64_t contiguous) {
        return static_cast<uint64_t>(given == 0 ? contiguous : given == NORMJIT_REPEAT_ROW ? 0 : given);
    };
    const uint64_t row_stride = stride(to.row_stride, cols);
    const int64_t slice_stride = arguments.slice_strides[number];
    std::array<int64_t, most_dimensions> at{};
    for (int64_t element = 0; element < slices * rows * cols; ++element) {
        const int64_t row = element / cols;
        const uint64_t ours = static_cast<uint64_t>(row / rows) * stride(slice_stride, rows * cols) +
                              static_cast<uint64_t>(row % rows) * row_stride + static_cast<uint64_t>(element % cols);
        fuzz::require(offset_of(from, at) == ours, "an element at another place", name(tensor));
        for (int i = from.dimensions - 1; i >= 0 && ++at[static_cast<size_t>(i)] == from.shape[i]; --i) {
            at[static_cast<size_t>(i)] = 0;
        }
    }
    fuzz::require(to.data == static_cast<char*>(from.data) + from.byte_offset, "another start", name(tensor));
}

std::vector<Artifact> artifacts() {
    std::vector<Artifact> made;
    for (const char* text : {"layernorm cols=64 source=y", "layernorm cols=64 source=y slices=any per_slice=gamma",
                             "layernorm cols=64 source=y slices=4 per_slice=gamma,beta"}) {
        const Spec spec = *parse_spec(text);
        const Target target = *parse_target("x86-64 backend=portable");
        made.push_back(*compile(spec, heuristic(spec, target), target));
    }
    return made;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const std::vector<Artifact> all = artifacts();
    test::Random random(std::span(data, size));
    const Artifact& artifact = all[static_cast<size_t>(random.between(0, std::ssize(all) - 1))];
    normjit_arguments arguments{};
    for (int i = 0; i < 3; ++i) {
        const Tensor tensor = all_tensors[static_cast<size_t>(random.between(0, tensor_count - 1))];
        Drawn drawn;
        draw(random, drawn);
        const Status status = c_abi::set_dlpack(artifact, arguments, tensor, &drawn.tensor);
        if (status.ok()) {
            compare(drawn.tensor, artifact.spec, tensor, arguments);
        } else {
            fuzz::require_error(status, "dlpack: ");
        }
    }
    return 0;
}
