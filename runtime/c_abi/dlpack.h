// SPDX-License-Identifier: Apache-2.0
// The part of DLPack that passes tensors. It is declared here, so that the build needs no DLPack header. Its layout is
// the same in all versions; tests/runtime compares it with dlpack.h if that exists.
// https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <cstdint>

namespace normjit::dlpack {

enum DeviceType : int32_t { device_cpu = 1, device_cuda = 2, device_cuda_host = 3, device_cuda_managed = 13 };
enum TypeCode : uint8_t {
    type_int = 0,
    type_float = 2,
    type_bfloat = 4,
    type_float8_e4m3fn = 10,
    type_float8_e5m2 = 12,
    type_float8_e8m0fnu = 14
};

struct Device {
    int32_t type;
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
    int64_t* strides;  ///< in elements; null: contiguous, and the last dimension varies fastest
    uint64_t byte_offset;
};

}  // namespace normjit::dlpack
