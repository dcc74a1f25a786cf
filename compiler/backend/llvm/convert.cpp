// SPDX-License-Identifier: Apache-2.0
// Converts between tensors in memory and units of the compute type in registers.
#include "backend/llvm/builder.h"

#include "normjit/artifact.h"

#include <algorithm>

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>

namespace normjit::backend::llvmir {

using llvm::Value;

namespace {

/// Returns first, first + step, ...
std::vector<int> sequence(int count, int first = 0, int step = 1) {
    std::vector<int> indices;
    for (int i = 0; i < count; ++i) indices.push_back(first + i * step);
    return indices;
}

int lanes_of(const Value* value) {
    return static_cast<int>(llvm::cast<llvm::FixedVectorType>(value->getType())->getNumElements());
}

}  // namespace

llvm::Type* Builder::memory_type(DType type) {
    return type == DType::f64   ? getDoubleTy()
           : type == DType::f32 ? getFloatTy()
                                : static_cast<llvm::Type*>(getIntNTy(8 * static_cast<unsigned>(size_of(type))));
}

llvm::Type* Builder::like(llvm::Type* type, llvm::Type* element) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    return vector == nullptr ? element : llvm::FixedVectorType::get(element, vector->getNumElements());
}

Value* Builder::bits(Value* value, uint64_t number) { return llvm::ConstantInt::get(value->getType(), number); }
Value* Builder::as_integers(Value* value) {
    return CreateBitCast(value, like(value->getType(), getIntNTy(value->getType()->getScalarSizeInBits())));
}
Value* Builder::as_floats(Value* integers) {
    const bool is_wide = integers->getType()->getScalarSizeInBits() == 64;
    return CreateBitCast(integers, like(integers->getType(), is_wide ? getDoubleTy() : getFloatTy()));
}

Vectors Builder::load(Value* from, DType type, Lanes lanes) {
    Value* elements = load_elements(from, type, unit_columns(), lanes);
    if (packing_ == Packing::one) return {{to_compute(elements, type), nullptr}};
    if (type == DType::bf16) {
        // An odd column is the upper half of its 32 bits: clearing the lower half makes an f32. An even column is
        // shifted up.
        Value* pairs = CreateBitCast(elements, llvm::FixedVectorType::get(getInt32Ty(), static_cast<unsigned>(lanes_)));
        return {{as_floats(CreateShl(pairs, 16)), as_floats(CreateAnd(pairs, bits(pairs, 0xffff0000)))}};
    }
    Value* values = to_compute(elements, type);
    return {{CreateShuffleVector(values, sequence(lanes_, 0, 2)), CreateShuffleVector(values, sequence(lanes_, 1, 2))}};
}

/// Returns a mask for `count` lanes that is set for the columns of the tail.
Value* Builder::mask_of_tail(int count) {
    std::vector<llvm::Constant*> mask;
    for (int i = 0; i < count; ++i) mask.push_back(getInt1(i < tail_));
    return llvm::ConstantVector::get(mask);
}

/// Loads `count` elements. With Lanes::tail, lanes beyond the row are zero, and their memory is not read.
Value* Builder::load_elements(Value* from, DType type, int count, Lanes lanes) {
    const llvm::Align alignment(size_of(type));
    llvm::Type* all = llvm::FixedVectorType::get(memory_type(type), static_cast<unsigned>(count));
    if (lanes == Lanes::all) return CreateAlignedLoad(all, from, alignment);
    if (features_.masks)
        return CreateMaskedLoad(all, from, alignment, mask_of_tail(count), llvm::Constant::getNullValue(all));
    // LLVM splits an odd number of elements into several loads, none of which reads beyond them.
    const auto present = static_cast<int>(tail_);
    Value* some = CreateAlignedLoad(llvm::FixedVectorType::get(memory_type(type), static_cast<unsigned>(present)), from,
                                    alignment);
    std::vector<int> widen = sequence(present);
    widen.resize(static_cast<size_t>(count), present);  // takes an element of the zeros
    return CreateShuffleVector(some, llvm::Constant::getNullValue(some->getType()), widen);
}

Value* Builder::load_scalar(Value* from, DType type) {
    return to_compute(CreateAlignedLoad(memory_type(type), from, llvm::Align(size_of(type))), type);
}

void Builder::store_scalar(Value* to, Value* value, DType type) {
    Value* element = type == DType::bf16 ? CreateTrunc(CreateLShr(round_to_bf16(value), 16), getInt16Ty())
                                         : from_compute(value, type);
    CreateAlignedStore(element, to, llvm::Align(size_of(type)));
}

Value* Builder::load_register(Value* from) {
    return CreateAlignedLoad(vector_type(), from, llvm::Align(static_cast<uint64_t>(lanes_ * element_bytes())));
}

void Builder::store_register(Value* to, Value* value) {
    CreateAlignedStore(value, to, llvm::Align(static_cast<uint64_t>(lanes_ * element_bytes())));
}

void Builder::store(Value* to, const Vectors& value, DType type, Lanes lanes, Caching caching) {
    store_elements(to, packed(value, type), type, lanes, caching);
}

void Builder::store_elements(Value* to, Value* elements, DType type, Lanes lanes, Caching caching) {
    const llvm::Align alignment(size_of(type));
    if (lanes == Lanes::all) {
        const auto bytes = static_cast<uint64_t>(lanes_of(elements)) * size_of(type);
        const bool stream = caching == Caching::nontemporal;
        store_aligned(to, elements, stream ? std::min<uint64_t>(bytes, 64) : size_of(type), caching);
    } else if (features_.masks) {
        CreateMaskedStore(elements, to, alignment, mask_of_tail(lanes_of(elements)));
    } else {
        CreateAlignedStore(CreateShuffleVector(elements, sequence(static_cast<int>(tail_))), to, alignment);
    }
}

void Builder::store_aligned(Value* to, Value* value, uint64_t alignment, Caching caching) {
    llvm::StoreInst* store = CreateAlignedStore(value, to, llvm::Align(alignment));
    if (caching != Caching::nontemporal) return;
    store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                       llvm::MDNode::get(getContext(), llvm::ConstantAsMetadata::get(getInt32(1))));
}

void Builder::copy_line(Value* to, Value* from, Caching caching) {
    const int bytes = lanes_ * element_bytes();
    for (int64_t offset = 0; offset < 64; offset += bytes)
        store_aligned(at(to, offset), load_register(at(from, offset)), static_cast<uint64_t>(bytes), caching);
}

void Builder::fence_nontemporal() {
    if (features_.x86) CreateIntrinsic(getVoidTy(), llvm::Intrinsic::x86_sse_sfence, {});
}

/// Returns the elements of the unit in the order of memory.
Value* Builder::packed(const Vectors& value, DType type) {
    if (type == DType::bf16) return pack_bf16(value);
    if (packing_ == Packing::one) return from_compute(value.vectors[0], type);
    return from_compute(CreateShuffleVector(value.vectors[0], value.vectors[1], interleaved()), type);
}

Value* Builder::to_compute(Value* elements, DType type) {
    switch (type) {
        case DType::bf16:
            return as_floats(CreateShl(CreateZExt(elements, like(elements->getType(), getInt32Ty())), 16));
        case DType::f16:
            if (!features_.half) return from_half_bits(elements);
            return CreateFPExt(CreateBitCast(elements, like(elements->getType(), getHalfTy())),
                               like(elements->getType(), getFloatTy()));
        case DType::e4m3:
        case DType::e5m2: return from_8bit(elements, type);
        case DType::i8: return CreateSIToFP(elements, like(elements->getType(), getFloatTy()));
        case DType::e8m0:  // only outputs have this type
        case DType::f32:
        case DType::f64: break;
    }
    return elements;
}

/// Converts 8-bit codes to f16. An e5m2 is the upper half of an f16; an e4m3 has one exponent bit less, so its values
/// come out 2^-8 times as large.
Value* Builder::from_8bit(Value* codes, DType type) {
    Value* words = CreateZExt(codes, like(codes->getType(), getInt16Ty()));
    if (type == DType::e5m2) return to_compute(CreateShl(words, 8), DType::f16);
    Value* magnitude = CreateAnd(words, bits(words, 0x7f));
    Value* moved = CreateOr(CreateShl(magnitude, 7), CreateShl(CreateAnd(words, bits(words, 0x80)), 8));
    Value* number = to_compute(moved, DType::f16);
    Value* scaled = CreateFMul(number, this->number(256, number->getType()));
    Value* is_nan = CreateICmpEQ(magnitude, bits(words, 0x7f));
    return CreateSelect(is_nan, llvm::ConstantFP::getQNaN(scaled->getType()), scaled);
}

/// Rounds like to_small().
Value* Builder::to_8bit(Value* value, const SmallFormat& format) {
    Value* all = as_integers(value);
    Value* whole = as_floats(CreateAnd(all, bits(all, 0x7fffffff)));
    Value* most = number(static_cast<double>(format.largest), value->getType());
    Value* magnitude = CreateSelect(CreateFCmpOGT(whole, most), most, whole);
    Value* aligner = number(static_cast<double>(format.aligner()), value->getType());
    Value* denormal = CreateSub(as_integers(CreateFAdd(magnitude, aligner)), as_integers(aligner));
    Value* exact = as_integers(magnitude);
    Value* odd = CreateAnd(CreateLShr(exact, format.cut()), bits(exact, 1));
    Value* half = bits(exact, (1u << (format.cut() - 1)) - 1);
    Value* normal =
        CreateSub(CreateLShr(CreateAdd(CreateAdd(exact, half), odd), format.cut()), bits(exact, format.rebias()));
    Value* least = number(static_cast<double>(format.smallest_normal()), value->getType());
    Value* code = CreateSelect(CreateFCmpOLT(magnitude, least), denormal, normal);
    code = CreateOr(code, CreateAnd(CreateLShr(all, 24), bits(all, 0x80)));
    code = CreateSelect(CreateFCmpUNO(value, value), bits(all, small_nan), code);
    return CreateTrunc(code, like(value->getType(), getInt8Ty()));
}

/// Rounds like to_i8().
Value* Builder::to_i8(Value* value) {
    const auto number = [&](double constant) { return this->number(constant, value->getType()); };
    Value* above = CreateSelect(CreateFCmpOLT(value, number(-128)), number(-128), value);
    Value* within = CreateSelect(CreateFCmpOGT(above, number(127)), number(127), above);
    Value* whole = as_integers(CreateFAdd(within, number(0x1.8p23)));
    Value* code = CreateSelect(CreateFCmpUNO(value, value), bits(whole, 0), whole);
    return CreateTrunc(code, like(value->getType(), getInt8Ty()));
}

/// Converts to the memory type. For bf16, use pack_bf16().
Value* Builder::from_compute(Value* value, DType type) {
    if (type == DType::e8m0)
        return CreateTrunc(CreateLShr(as_integers(value), 23), like(value->getType(), getInt8Ty()));
    if (type == DType::i8) return to_i8(value);
    if (is_8bit(type)) return to_8bit(value, type == DType::e4m3 ? e4m3_format : e5m2_format);
    if (type != DType::f16) return value;
    llvm::Type* words = like(value->getType(), getInt16Ty());
    if (!features_.half) return CreateTrunc(to_half_bits(value), words);
    return CreateBitCast(CreateFPTrunc(value, like(value->getType(), getHalfTy())), words);
}

/// Converts f16 to f32. A multiplication corrects the exponent; it is exact and also works for denormals. Infinities
/// and NaNs keep the largest exponent.
Value* Builder::from_half_bits(Value* words) {
    Value* wide = CreateZExt(words, like(words->getType(), getInt32Ty()));
    Value* sign = CreateShl(CreateAnd(wide, bits(wide, 0x8000)), 16);
    Value* magnitude = CreateAnd(wide, bits(wide, 0x7fff));
    Value* moved = as_floats(CreateShl(magnitude, 13));
    Value* number = as_integers(CreateFMul(moved, this->number(0x1p112, moved->getType())));
    Value* special = CreateICmpUGE(magnitude, bits(wide, 0x7c00));
    number = CreateOr(number, CreateSelect(special, bits(wide, 0x7f800000), bits(wide, 0)));
    return as_floats(CreateOr(number, sign));
}

/// Converts f32 to f16, rounding to nearest even. For a normal result, changes the bias of the exponent and rounds in
/// integers. For a denormal result, an addition aligns its lowest bit with an f32's and rounds. NaNs become quiet
/// and keep their top payload bits.
Value* Builder::to_half_bits(Value* value) {
    constexpr uint32_t overflow = (127 + 16) << 23, smallest_normal = (127 - 14) << 23, infinity = 0xff << 23;
    constexpr uint32_t rebias = static_cast<uint32_t>(15 - 127) << 23, aligner = (127 - 15 + 23 - 10 + 1) << 23;
    Value* all = as_integers(value);
    Value* magnitude = CreateAnd(all, bits(all, 0x7fffffff));
    Value* sign = CreateLShr(CreateAnd(all, bits(all, 0x80000000)), 16);
    Value* payload = CreateOr(CreateAnd(CreateLShr(magnitude, 13), bits(all, 0x3ff)), bits(all, 0x7e00));
    Value* special = CreateSelect(CreateICmpUGT(magnitude, bits(all, infinity)), payload, bits(all, 0x7c00));
    Value* aligned = CreateFAdd(as_floats(magnitude), as_floats(bits(all, aligner)));
    Value* denormal = CreateSub(as_integers(aligned), bits(all, aligner));
    Value* odd = CreateAnd(CreateLShr(magnitude, 13), bits(all, 1));
    Value* normal = CreateLShr(CreateAdd(CreateAdd(magnitude, bits(all, rebias + 0xfff)), odd), 13);
    Value* finite = CreateSelect(CreateICmpULT(magnitude, bits(all, smallest_normal)), denormal, normal);
    return CreateOr(CreateSelect(CreateICmpUGE(magnitude, bits(all, overflow)), special, finite), sign);
}

/// Rounds to nearest even in integers, into the upper half: adds 0x7fff and the lowest kept bit. A NaN keeps its sign
/// and top payload bits and becomes quiet, because the addition would turn some NaNs into infinities.
Value* Builder::round_to_bf16(Value* value) {
    Value* all = as_integers(value);
    Value* odd = CreateAnd(CreateLShr(all, 16), bits(all, 1));
    Value* rounded = CreateAdd(CreateAdd(odd, bits(all, 0x7fff)), all);
    return CreateSelect(CreateFCmpUNO(value, value), CreateOr(all, bits(all, 0x00400000)), rounded);
}

Value* Builder::round_to(Value* value, DType type) {
    if (llvm::Type* own = value->getType(); own->getScalarType()->isDoubleTy())
        return CreateFPExt(round_to(CreateFPTrunc(value, like(own, getFloatTy())), type), own);
    if (type == DType::f16) return to_compute(from_compute(value, type), type);
    Value* rounded = round_to_bf16(value);
    return as_floats(CreateAnd(rounded, bits(rounded, 0xffff0000)));
}

Value* Builder::pack_bf16(const Vectors& value) {
    return features_.native_bf16 ? pack_bf16_natively(value) : pack_bf16_in_integers(value);
}

Value* Builder::pack_bf16_in_integers(const Vectors& value) {
    Value* even = CreateLShr(round_to_bf16(value.vectors[0]), 16);
    if (packing_ == Packing::one) return CreateTrunc(even, like(even->getType(), getInt16Ty()));
    Value* odd = round_to_bf16(value.vectors[1]);
    Value* pairs = CreateOr(even, CreateAnd(odd, bits(odd, 0xffff0000)));
    return CreateBitCast(pairs, llvm::FixedVectorType::get(getInt16Ty(), static_cast<unsigned>(2 * lanes_)));
}

/// vcvtneps2bf16 flushes denormals to zero, whatever MXCSR says, so a unit with a zero among its results is packed once
/// more.
Value* Builder::pack_bf16_natively(const Vectors& value) {
    Value* native;
    if (packing_ == Packing::one) {
        native = CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {value.vectors[0]});
        native = CreateBitCast(native, like(value.vectors[0]->getType(), getInt16Ty()));
    } else {
        Value* halves = CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {},
                                        {value.vectors[1], value.vectors[0]});  // the even columns, then the odd ones
        auto* words = llvm::FixedVectorType::get(getInt16Ty(), static_cast<unsigned>(unit_columns()));
        native = CreateShuffleVector(CreateBitCast(halves, words), interleaved());
    }
    llvm::Type* mask = getIntNTy(static_cast<unsigned>(unit_columns()));
    Value* any = CreateICmpNE(CreateBitCast(are_zeros(native), mask), llvm::ConstantInt::get(mask, 0));
    const int packed = variable();
    set(packed, native);
    const auto with_denormals = [&] {
        set(packed, CreateSelect(are_zeros(native), pack_bf16_denormals(value), native));
    };
    if_else("zeros", any, with_denormals, {}, llvm::MDBuilder(getContext()).createBranchWeights(1, 1000));
    return get(packed);
}

/// Packs numbers below 2^-126 through f16: a denormal bf16 is n * 2^-133, a denormal f16 is n * 2^-24, and both have
/// the bits of n.
Value* Builder::pack_bf16_denormals(const Vectors& value) {
    Vectors words;
    for (size_t i = 0; i < static_cast<size_t>(unit_vectors()); ++i)
        words.vectors[i] =
            from_compute(CreateFMul(value.vectors[i], number(0x1p109, value.vectors[i]->getType())), DType::f16);
    return packing_ == Packing::one ? words.vectors[0]
                                    : CreateShuffleVector(words.vectors[0], words.vectors[1], interleaved());
}

Value* Builder::are_zeros(Value* words) {
    Value* magnitude = CreateAnd(words, llvm::ConstantInt::get(words->getType(), 0x7fff));
    return CreateICmpEQ(magnitude, llvm::Constant::getNullValue(words->getType()));
}

/// Returns where each column of a unit in memory order is in a unit that has its even columns before its odd ones.
std::vector<int> Builder::interleaved() const {
    std::vector<int> order;
    for (int i = 0; i < lanes_; ++i) order.insert(order.end(), {i, i + lanes_});
    return order;
}

}  // namespace normjit::backend::llvmir
