// SPDX-License-Identifier: Apache-2.0
// DLTensor of dlpack/dlpack.h, which normjit_set_dlpack() takes. A test compares it with the original.
#pragma once

#include <cstdint>

namespace normjit::python {

enum DeviceType : int32_t { device_cpu = 1, device_cuda = 2 };

struct Device {
    DeviceType type;
    int32_t id;
};

struct DataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    int32_t dimensions;
    DataType dtype;
    int64_t* shape;
    int64_t* strides;  ///< in elements; null: contiguous
    uint64_t byte_offset;
};

}  // namespace normjit::python
