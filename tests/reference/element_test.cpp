// SPDX-License-Identifier: Apache-2.0
#include "element.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>

using namespace normjit;
using namespace normjit::reference;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double value_of(DType type, uint32_t bits) { return decode(type, &bits); }

uint32_t bits_of(DType type, double number) {
    uint32_t bits = 0;
    encode(type, number, &bits);
    return bits;
}

}  // namespace

TEST_CASE("known values") {
    CHECK(value_of(DType::f16, 0x3c00) == 1);
    CHECK(value_of(DType::f16, 0xc500) == -5);
    CHECK(value_of(DType::f16, 0x7bff) == 65504);
    CHECK(value_of(DType::f16, 0x0001) == 0x1p-24);
    CHECK(value_of(DType::bf16, 0x3f80) == 1);
    CHECK(value_of(DType::bf16, 0x0001) == 0x1p-133);
    CHECK(value_of(DType::f32, 0x7f7fffff) == largest(DType::f32));
    CHECK(largest(DType::f16) == 65504);
    CHECK(largest(DType::bf16) == 0x1.fep127);
    CHECK(smallest(DType::f32) == 0x1p-149);
    CHECK(spacing(DType::bf16, 1.0) == 0x1p-7);
    CHECK(spacing(DType::f16, -0.0) == 0x1p-24);
    CHECK(spacing(DType::f64, 1.5) == 0x1p-52);
}

TEST_CASE("every 16-bit value round trips, and midpoints of neighbours round to even") {
    for (DType type : {DType::bf16, DType::f16}) {
        int wrong = 0;
        for (uint32_t bits = 0; bits < 0x8000; ++bits) {
            const double number = value_of(type, bits);
            for (uint32_t sign : {0u, 0x8000u}) {
                const double signed_number = sign ? -number : number;
                if (std::isnan(number)) {
                    wrong += !std::isnan(value_of(type, bits_of(type, signed_number)));
                    continue;
                }
                wrong += bits_of(type, signed_number) != (bits | sign);
                if (std::isinf(number)) continue;
                // The value after the largest would have the code of infinity.
                const double next = number == largest(type) ? number + spacing(type, number) : value_of(type, bits + 1);
                const double middle = (signed_number + (sign ? -next : next)) / 2;
                const uint32_t even = (bits % 2 == 0 ? bits : bits + 1) | sign;
                wrong += bits_of(type, middle) != even;
                wrong += bits_of(type, std::nextafter(middle, 0.0)) != (bits | sign);
                wrong += bits_of(type, std::nextafter(middle, 2 * middle)) != ((bits + 1) | sign);
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("every 8-bit value round trips, midpoints round to even, and what is larger becomes the largest") {
    CHECK(value_of(DType::e4m3, 0x7e) == 448);
    CHECK(value_of(DType::e4m3, 0x01) == 0x1p-9);
    CHECK(value_of(DType::e4m3, 0xb8) == -1);
    CHECK(value_of(DType::e5m2, 0x7b) == 57344);
    CHECK(value_of(DType::e5m2, 0x01) == 0x1p-16);
    CHECK(value_of(DType::e5m2, 0x7c) == infinity);
    CHECK(value_of(DType::e8m0, 0x00) == 0x1p-127);
    CHECK(value_of(DType::e8m0, 0xfe) == 0x1p127);
    CHECK(std::isnan(value_of(DType::e8m0, 0xff)));
    for (uint32_t bits = 0; bits < 0xfe; ++bits) {
        const double number = value_of(DType::e8m0, bits);
        CHECK(bits_of(DType::e8m0, number) == bits);
        CHECK(bits_of(DType::e8m0, number * (1 + 0x1p-40)) == bits + 1);
        CHECK(bits_of(DType::e8m0, number * 2) == bits + 1);
    }
    for (const double number : {0.0, -1.0, -infinity, 0x1p-1000}) CHECK(bits_of(DType::e8m0, number) == 0);
    for (const double number : {0x1p128, infinity}) CHECK(bits_of(DType::e8m0, number) == 0xfe);
    CHECK(bits_of(DType::e8m0, std::nan("")) == 0xff);
    for (DType type : {DType::e4m3, DType::e5m2}) {
        for (double number : {1e30, largest(type) * 1.1, infinity}) {
            CHECK(value_of(type, bits_of(type, number)) == largest(type));
            CHECK(value_of(type, bits_of(type, -number)) == -largest(type));
        }
        CHECK(std::isnan(value_of(type, bits_of(type, std::nan("")))));
        int wrong = 0;
        for (uint32_t bits = 0; value_of(type, bits) < largest(type); ++bits) {
            const double number = value_of(type, bits), next = value_of(type, bits + 1), middle = (number + next) / 2;
            for (uint32_t sign : {0u, 0x80u}) {
                const double factor = sign == 0 ? 1 : -1;
                wrong += bits_of(type, factor * number) != (bits | sign);
                wrong += bits_of(type, factor * middle) != ((bits + bits % 2) | sign);
                wrong += bits_of(type, factor * std::nextafter(middle, 0.0)) != (bits | sign);
                wrong += bits_of(type, factor * std::nextafter(middle, next)) != ((bits + 1) | sign);
            }
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("rounding to f32 is the machine's") {
    for (double number : {1.0, 0.1, 1e-40, 0x1p-150, 0x1.8p-150, 16777217.0, 3.4028235e38, 3.4028236e38, 1e300}) {
        CHECK(round_to(DType::f32, number) == static_cast<double>(static_cast<float>(number)));
        CHECK(round_to(DType::f32, -number) == static_cast<double>(static_cast<float>(-number)));
    }
    CHECK(std::signbit(round_to(DType::f32, -1e-300)));
    CHECK(round_to(DType::f64, 0.1) == 0.1);
    CHECK(round_to(DType::f16, infinity) == infinity);
}
