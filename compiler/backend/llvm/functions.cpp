// SPDX-License-Identifier: Apache-2.0
// The instructions into which functions are expanded, written with comparisons and integer operations. Results have the
// same bits as those of the AVX-512 instructions.
#include "backend/llvm/builder.h"

#include <limits>

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

/// How a type represents a number.
struct Layout {
    uint64_t digits;    ///< bits of the fraction
    uint64_t bias;      ///< added to the exponent
    uint64_t infinity;  ///< the bits of infinity
    double integers;    ///< 2^digits
    double smallest;    ///< the smallest normal number
    double splitter;    ///< 2^s + 1: multiplying by it separates the upper half of the digits
};

constexpr Layout f32_layout = {23, 127, 0x7f800000, 0x1p23, 0x1p-126, 0x1p12 + 1};
constexpr Layout f64_layout = {52, 1023, 0x7ff0000000000000, 0x1p52, 0x1p-1022, 0x1p27 + 1};

const Layout& layout_of(const Value* value) {
    return value->getType()->getScalarSizeInBits() == 64 ? f64_layout : f32_layout;
}

}  // namespace

Value* Builder::compute(Instruction instruction, Value* a, Value* b, Value* c) {
    switch (instruction) {
        case Instruction::add: return CreateFAdd(a, b);
        case Instruction::sub: return CreateFSub(a, b);
        case Instruction::mul: return CreateFMul(a, b);
        case Instruction::div: return divide(a, b);
        case Instruction::div_or_zero: return div_or_zero(a, b);
        case Instruction::rsqrt: return rsqrt(a);
        case Instruction::sqrt: return CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a);
        case Instruction::abs: return CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a);
        case Instruction::compare: return compare(a, b);
        case Instruction::neighbour: return exchange_lanes(a, 1);
        case Instruction::product_error: return product_error(a, b);
        case Instruction::copysign: return CreateBinaryIntrinsic(llvm::Intrinsic::copysign, a, b);
        case Instruction::ldexp: return ldexp(a, b);
        case Instruction::mantissa: return mantissa(a);
        case Instruction::exponent: return exponent(a);
        case Instruction::round_bf16: return round_to(a, DType::bf16);
        case Instruction::round_f16: return round_to(a, DType::f16);
        case Instruction::finite_or_zero: return finite_or_zero(a);
        case Instruction::multiply_add: return multiply_add(a, b, c);
        case Instruction::negative_multiply_add: return multiply_add(CreateFNeg(a), b, c);
        case Instruction::multiply_subtract: return multiply_add(a, b, CreateFNeg(c));
        default: return select_by_size(instruction, a, b);
    }
}

Value* Builder::select_by_size(Instruction instruction, Value* a, Value* b) {
    const bool is_min = instruction == Instruction::min || instruction == Instruction::min_number;
    const bool may_be_nan = instruction == Instruction::min || instruction == Instruction::max;
    Value* chosen = CreateSelect(is_min ? CreateFCmpOLT(b, a) : CreateFCmpOGT(b, a), b, a);
    return may_be_nan ? CreateSelect(CreateFCmpUNO(b, b), b, chosen) : chosen;
}

Value* Builder::compare(Value* a, Value* b) {
    llvm::Type* type = a->getType();
    Value* ordered = CreateSelect(CreateFCmpOLT(a, b), number(-1, type), number(0, type));
    ordered = CreateSelect(CreateFCmpOGT(a, b), number(1, type), ordered);
    return CreateSelect(CreateFCmpUNO(a, b), CreateFAdd(a, b), ordered);
}

/// Without FMAs, each factor is split into halves whose products are exact (Dekker, "A floating-point technique for
/// extending the available precision", 1971).
Value* Builder::product_error(Value* a, Value* b) {
    Value* product = CreateFMul(a, b);
    if (features_.fma) return multiply_add(a, b, CreateFNeg(product));
    const auto halves = [&](Value* value) {
        Value* multiple = CreateFMul(value, number(layout_of(value).splitter, value->getType()));
        Value* upper = CreateFSub(multiple, CreateFSub(multiple, value));
        return std::pair(upper, CreateFSub(value, upper));
    };
    const auto [a_upper, a_lower] = halves(a);
    const auto [b_upper, b_lower] = halves(b);
    Value* error = CreateFSub(CreateFMul(a_upper, b_upper), product);
    error = CreateFAdd(error, CreateFMul(a_upper, b_lower));
    error = CreateFAdd(error, CreateFMul(a_lower, b_upper));
    return CreateFAdd(error, CreateFMul(a_lower, b_lower));
}

/// Multiplies by 2^b in two steps of half the exponent each, so that only the second product can leave the range of
/// normal numbers. Adding a large constant moves the integer b into the lowest bits.
Value* Builder::ldexp(Value* a, Value* b) {
    const Layout& layout = layout_of(b);
    Value* moved = number(1.5 * layout.integers, b->getType());
    Value* power = CreateSub(as_integers(CreateFAdd(b, moved)), as_integers(moved));
    Value* half = CreateAShr(power, 1);
    const auto times_power = [&](Value* value, Value* exponent) {
        Value* biased = CreateAdd(exponent, bits(exponent, layout.bias));
        return CreateFMul(value, as_floats(CreateShl(biased, layout.digits)));
    };
    return times_power(times_power(a, half), CreateSub(power, half));
}

/// Returns the exponent bits of a normal number m * 2^b, with m from 3/4 to 3/2, in their place. If the stored mantissa
/// is 3/2 or more, the addition carries into the exponent.
Value* Builder::exponent_bits(Value* scaled) {
    const Layout& layout = layout_of(scaled);
    Value* all = as_integers(scaled);
    return CreateAnd(CreateAdd(all, bits(all, uint64_t{1} << (layout.digits - 1))), bits(all, layout.infinity));
}

Value* Builder::mantissa(Value* a) {
    const Layout& layout = layout_of(a);
    llvm::Type* type = a->getType();
    Value* is_denormal = CreateFCmpOLT(a, number(layout.smallest, type));
    Value* scaled = CreateSelect(is_denormal, CreateFMul(a, number(layout.integers, type)), a);
    Value* all = as_integers(scaled);
    Value* fraction =
        as_floats(CreateAdd(CreateSub(all, exponent_bits(scaled)), bits(all, layout.bias << layout.digits)));
    const double infinity = std::numeric_limits<double>::infinity();
    Value* is_end = CreateOr(CreateFCmpOEQ(a, number(0, type)), CreateFCmpOEQ(a, number(infinity, type)));
    Value* positive = CreateSelect(is_end, number(1, type), fraction);
    Value* negative =
        CreateSelect(CreateFCmpUNO(a, a), a, CreateFNeg(number(std::numeric_limits<double>::quiet_NaN(), type)));
    return CreateSelect(CreateFCmpOGE(a, number(0, type)), positive, negative);
}

/// Converts the exponent field to a number by writing it into the lowest bits of a large constant, which is then
/// subtracted.
Value* Builder::exponent(Value* a) {
    const Layout& layout = layout_of(a);
    llvm::Type* type = a->getType();
    Value* is_denormal = CreateFCmpOLT(a, number(layout.smallest, type));
    Value* scaled = CreateSelect(is_denormal, CreateFMul(a, number(layout.integers, type)), a);
    Value* field = CreateLShr(exponent_bits(scaled), layout.digits);
    Value* sum = as_floats(CreateOr(field, as_integers(number(layout.integers, type))));
    const double bias = layout.integers + static_cast<double>(layout.bias);
    Value* shift =
        CreateSelect(is_denormal, number(bias + static_cast<double>(layout.digits), type), number(bias, type));
    Value* power = CreateFSub(sum, shift);
    const double infinity = std::numeric_limits<double>::infinity();
    power = CreateSelect(CreateFCmpOEQ(a, number(0, type)), number(-infinity, type), power);
    // infinity gives infinity; negative numbers and NaN give NaN
    power = CreateSelect(CreateFCmpOEQ(a, number(infinity, type)), a, power);
    Value* negative =
        CreateSelect(CreateFCmpUNO(a, a), a, CreateFNeg(number(std::numeric_limits<double>::quiet_NaN(), type)));
    return CreateSelect(CreateFCmpOGE(a, number(0, type)), power, negative);
}

}  // namespace normjit::backend::llvmir
