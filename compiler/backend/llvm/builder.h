// SPDX-License-Identifier: Apache-2.0
// LLVM's IR builder with load() and store(), which hide the compute type, memory types, packing and tails. Vectors are
// explicit: one IR vector is one register of the target.
#pragma once

#include "backend/cpu/instruction.h"
#include "backend/cpu/unit.h"
#include "backend/llvm/processor.h"
#include "support/narrow.h"

#include "normjit/dtype.h"

#include <array>
#include <functional>
#include <vector>

#include <llvm/IR/IRBuilder.h>

namespace normjit::backend::llvmir {

using namespace cpu;

/// The vectors of a unit; vectors[1] is only used with Packing::even_odd.
struct Vectors {
    std::array<llvm::Value*, 2> vectors = {nullptr, nullptr};
};

class Builder : public llvm::IRBuilder<> {
  public:
    Builder(llvm::Module& module, DType compute, Packing packing, const Target& target);

    int lanes() const { return lanes_; }  ///< elements per register
    int unit_vectors() const { return packing_ == Packing::one ? 1 : 2; }
    int unit_columns() const { return lanes() * unit_vectors(); }
    int element_bytes() const { return static_cast<int>(size_of(compute_)); }
    const Features& features() const { return features_; }
    llvm::Type* scalar_type() { return compute_ == DType::f64 ? getDoubleTy() : getFloatTy(); }
    llvm::Type* vector_type() { return llvm::FixedVectorType::get(scalar_type(), static_cast<unsigned>(lanes_)); }

    // Memory: convert.cpp
    Vectors load(llvm::Value* from, DType type, Lanes lanes);
    void store(llvm::Value* to, const Vectors& value, DType type, Lanes lanes, Caching caching);
    /// Copies 64 bytes, both aligned to 64.
    void copy_line(llvm::Value* to, llvm::Value* from, Caching caching);
    /// Must follow stores with Caching::nontemporal before other threads may read what they wrote.
    void fence_nontemporal();
    /// Load and store one element, converted to and from the compute type.
    llvm::Value* load_scalar(llvm::Value* from, DType type);
    void store_scalar(llvm::Value* to, llvm::Value* value, DType type);
    /// Load and store a register of the compute type in a workspace or on the stack, aligned to its size.
    llvm::Value* load_register(llvm::Value* from);
    void store_register(llvm::Value* to, llvm::Value* value);

    // Arithmetic, for scalars and registers alike
    llvm::Value* number(double number, llvm::Type* type) { return llvm::ConstantFP::get(type, rounded(number)); }
    llvm::Value* zero() { return llvm::Constant::getNullValue(vector_type()); }
    llvm::Value* spread(llvm::Value* scalar) { return CreateVectorSplat(static_cast<unsigned>(lanes_), scalar); }
    /// Computes an instruction whose result is a register: all arithmetic of loop bodies (functions.cpp).
    llvm::Value* compute(Instruction instruction, llvm::Value* a, llvm::Value* b, llvm::Value* c);
    /// Returns the larger of a and b; NaN if one is NaN.
    llvm::Value* larger(llvm::Value* a, llvm::Value* b) { return select_by_size(Instruction::max, a, b); }
    /// Returns the larger of a, which must not be negative, and |b|; NaN if either is NaN.
    llvm::Value* larger_magnitude(llvm::Value* a, llvm::Value* b);
    /// Returns a * b + c, rounded once if the target has such an instruction.
    llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c);
    /// Returns the sum of all lanes, or the largest lane, as a scalar. It starts within 16 bytes, in the order in which
    /// x64 folds lanes.
    llvm::Value* reduce_lanes(llvm::Value* value, Reduction reduction);

    /// From here on, Lanes::tail means the first `count` columns of a unit.
    void set_tail(int64_t count) { tail_ = count; }
    /// Returns `value`. With Lanes::tail, lanes beyond the end of the row have `otherwise` instead.
    llvm::Value* within_row(llvm::Value* value, llvm::Value* otherwise, Lanes lanes, int v);

    /// Starts a function: forgets all variables.
    void begin_function() { variables_.clear(); }
    /// Reserves memory in the current function's frame.
    llvm::Value* on_stack(llvm::Type* type, int64_t count, int64_t alignment);

    llvm::Value* at(llvm::Value* base, int64_t bytes) {
        return bytes == 0 ? base : CreateConstGEP1_64(getInt8Ty(), base, bytes);
    }
    llvm::Value* at(llvm::Value* base, llvm::Value* bytes) { return CreatePtrAdd(base, bytes); }

    // Variables. The builder knows the value of a variable wherever it emits code, so no pass has to find it. Loops and
    // branches join the values of their paths. A variable that is declared in a body ends with it; if it has no value
    // at the end of some path, it has none after the join.
    int variable();
    llvm::Value* get(int variable) const;
    bool has_value(int variable) const { return variables_[static_cast<size_t>(variable)] != nullptr; }
    void set(int variable, llvm::Value* value) { variables_[static_cast<size_t>(variable)] = value; }

    // Control flow
    using Emit = std::function<void()>;
    /// Emits body(), and repeats it while the condition that it returns holds.
    void repeat(const char* name, const std::function<llvm::Value*()>& body);
    void if_else(const char* name, llvm::Value* condition, const Emit& then, const Emit& otherwise = {},
                 llvm::MDNode* weights = nullptr);

  private:
    // convert.cpp. Except for f32 and f64, elements in memory are integers of the same size.
    llvm::Type* memory_type(DType type);
    llvm::Value* mask_of_tail(int count);
    llvm::Value* load_elements(llvm::Value* from, DType type, int count, Lanes lanes);
    void store_elements(llvm::Value* to, llvm::Value* elements, DType type, Lanes lanes, Caching caching);
    void store_aligned(llvm::Value* to, llvm::Value* value, uint64_t alignment, Caching caching);
    llvm::Value* packed(const Vectors& value, DType type);
    llvm::Value* to_compute(llvm::Value* elements, DType type);
    llvm::Value* from_compute(llvm::Value* value, DType type);
    llvm::Value* from_8bit(llvm::Value* codes, DType type);
    llvm::Value* to_8bit(llvm::Value* value, const SmallFormat& format);
    llvm::Value* to_i8(llvm::Value* value);
    llvm::Value* from_half_bits(llvm::Value* words);
    llvm::Value* to_half_bits(llvm::Value* value);
    llvm::Value* round_to_bf16(llvm::Value* value);
    llvm::Value* pack_bf16(const Vectors& value);
    llvm::Value* pack_bf16_natively(const Vectors& value);
    llvm::Value* pack_bf16_denormals(const Vectors& value);
    llvm::Value* pack_bf16_in_integers(const Vectors& value);
    llvm::Value* are_zeros(llvm::Value* words);
    std::vector<int> interleaved() const;
    /// Rounds to a 16-bit type, as if the number were f32 and stored.
    llvm::Value* round_to(llvm::Value* value, DType type);
    llvm::Type* like(llvm::Type* type, llvm::Type* element);
    llvm::Value* bits(llvm::Value* like, uint64_t number);
    llvm::Value* as_integers(llvm::Value* value);
    llvm::Value* as_floats(llvm::Value* integers);
    llvm::Value* divide(llvm::Value* a, llvm::Value* b);
    llvm::Value* div_or_zero(llvm::Value* a, llvm::Value* b);
    llvm::Value* finite_or_zero(llvm::Value* a);
    /// Returns a register whose lane i is lane i ^ distance of `a`.
    llvm::Value* exchange_lanes(llvm::Value* a, int distance);
    llvm::Value* rsqrt(llvm::Value* a);
    llvm::Value* select_by_size(Instruction instruction, llvm::Value* a, llvm::Value* b);
    llvm::Value* compare(llvm::Value* a, llvm::Value* b);
    llvm::Value* product_error(llvm::Value* a, llvm::Value* b);
    llvm::Value* ldexp(llvm::Value* a, llvm::Value* b);
    llvm::Value* mantissa(llvm::Value* a);
    llvm::Value* exponent(llvm::Value* a);
    llvm::Value* exponent_bits(llvm::Value* scaled);
    double rounded(double number) const {
        return compute_ == DType::f64 ? number : static_cast<double>(static_cast<float>(number));
    }

    using Phis = std::vector<llvm::PHINode*>;
    Phis begin_loop(llvm::BasicBlock* before);
    void end_loop(const Phis& phis, llvm::BasicBlock* end);
    bool holds(const llvm::Value* value) const;

    DType compute_;
    Packing packing_;
    Features features_;
    int lanes_;
    int64_t tail_ = 0;
    std::vector<llvm::Value*> variables_;
};

}  // namespace normjit::backend::llvmir
