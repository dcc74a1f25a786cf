// SPDX-License-Identifier: Apache-2.0
// LLVM's IR builder with compute type, memory types, packing and tails hidden behind load() and store(). Vectors are
// explicit: one IR vector is one register of the target.
#pragma once

#include "backend/cpu/unit.h"
#include "backend/llvm/machine.h"

#include "normjit/dtype.h"

#include <array>
#include <functional>
#include <vector>

#include <llvm/IR/IRBuilder.h>

namespace normjit::backend::llvmir {

using namespace cpu;

using Values = std::vector<llvm::Value*>;

/// The registers of a unit; part[1] only counts with Packing::even_odd. A number that is the same for a whole row is a
/// unit of one scalar until it is spread().
struct Unit {
    std::array<llvm::Value*, 2> part = {nullptr, nullptr};
};

/// Where a unit stands: element `column + elements` from `base` on.
struct Place {
    llvm::Value* base;
    llvm::Value* column;
    int64_t elements = 0;
};

class Builder : public llvm::IRBuilder<> {
  public:
    Builder(llvm::Module& module, DType compute, Packing packing, const Target& target);

    int lanes() const { return lanes_; }  ///< elements of a register
    int parts() const { return packing_ == Packing::one ? 1 : 2; }
    int unit_columns() const { return lanes() * parts(); }
    int element_bytes() const { return static_cast<int>(size_of(compute_)); }
    const Features& features() const { return features_; }
    llvm::Type* scalar_type() { return compute_ == DType::f64 ? getDoubleTy() : getFloatTy(); }
    llvm::Type* vector_type() { return llvm::FixedVectorType::get(scalar_type(), static_cast<unsigned>(lanes_)); }

    // Memory: convert.cpp
    Unit load(const Place& from, DType type, Lanes lanes);
    void store(const Place& to, const Unit& value, DType type, Lanes lanes, Caching caching);
    /// The first `count` elements, which may be fewer than a unit has.
    void store_some(const Place& to, const Unit& value, DType type, llvm::Value* count);
    /// 64 bytes, both at multiples of 64.
    void copy_line(llvm::Value* to, llvm::Value* from, Caching caching);
    /// After stores with Caching::stream, and before others may read what they wrote.
    void fence_streams();
    /// One element, converted to the compute type.
    llvm::Value* load_scalar(llvm::Value* base, llvm::Value* index, DType type);
    /// A register of the compute type, at a multiple of its size from a workspace or from the stack.
    llvm::Value* load_register(llvm::Value* from);
    void store_register(llvm::Value* to, llvm::Value* value);

    // Arithmetic, for scalars and registers alike
    llvm::Value* number(double number, llvm::Type* type) { return llvm::ConstantFP::get(type, rounded(number)); }
    llvm::Value* zero() { return llvm::Constant::getNullValue(vector_type()); }
    llvm::Value* spread(llvm::Value* scalar) { return CreateVectorSplat(static_cast<unsigned>(lanes_), scalar); }
    llvm::Value* div_or_zero(llvm::Value* a, llvm::Value* b);
    llvm::Value* rsqrt(llvm::Value* a);
    /// a * b + c, rounded once where the target can.
    llvm::Value* multiply_add(llvm::Value* a, llvm::Value* b, llvm::Value* c);
    /// The sum of all lanes, as a scalar: within 16 bytes first, in the order in which x64 folds the lanes of many
    /// rows.
    llvm::Value* sum_lanes(llvm::Value* value);

    /// From here on, Lanes::tail means the first `count` columns of a unit.
    void set_tail(int64_t count) { tail_ = count; }
    /// `value`, and with Lanes::tail `otherwise` in the lanes beyond the row.
    llvm::Value* within_row(llvm::Value* value, llvm::Value* otherwise, Lanes lanes, int part);

    /// Memory of the current function's frame.
    llvm::Value* on_stack(llvm::Type* type, int64_t count, int64_t alignment);

    // Control flow
    llvm::Value* at(llvm::Value* base, int64_t bytes) { return CreateConstGEP1_64(getInt8Ty(), base, bytes); }
    llvm::Value* at(llvm::Value* base, llvm::Value* bytes) { return CreatePtrAdd(base, bytes); }
    /// body(i, carried) for i = 0, step, ... below `count`, at least once; what it returns is carried into the next
    /// round and out of the loop.
    using Body = std::function<Values(llvm::Value* i, const Values& carried)>;
    Values loop(const char* name, llvm::Value* count, int64_t step, const Values& carried, const Body& body);
    /// The values of one of two branches.
    using Branch = std::function<Values()>;
    Values if_else(const char* name, llvm::Value* condition, const Branch& then, const Branch& otherwise,
                   llvm::MDNode* weights = nullptr);

  private:
    // convert.cpp. Elements as they are in memory are integers of their size, but for f32 and f64.
    llvm::Type* memory_type(DType type);
    llvm::Value* address(const Place& place, DType type);
    llvm::Value* load_elements(llvm::Value* from, DType type, int count, Lanes lanes);
    void store_elements(llvm::Value* to, llvm::Value* elements, DType type, Lanes lanes, Caching caching);
    void store_aligned(llvm::Value* to, llvm::Value* value, uint64_t alignment, Caching caching);
    llvm::Value* packed(const Unit& value, DType type);
    llvm::Value* to_compute(llvm::Value* elements, DType type);
    llvm::Value* from_compute(llvm::Value* value, DType type);
    llvm::Value* from_half_bits(llvm::Value* words);
    llvm::Value* to_half_bits(llvm::Value* value);
    llvm::Value* round_to_bf16(llvm::Value* value);
    llvm::Value* pack_bf16(const Unit& value);
    llvm::Value* pack_bf16_natively(const Unit& value);
    llvm::Value* pack_bf16_denormals(const Unit& value);
    llvm::Value* pack_bf16_in_integers(const Unit& value);
    llvm::Value* are_zeros(llvm::Value* words);
    std::vector<int> interleaved() const;
    llvm::Type* like(llvm::Type* type, llvm::Type* element);
    llvm::Value* bits(llvm::Value* like, uint32_t number);
    llvm::Value* as_integers(llvm::Value* value);
    llvm::Value* as_floats(llvm::Value* integers);
    double rounded(double number) const {
        return compute_ == DType::f64 ? number : static_cast<double>(static_cast<float>(number));
    }

    DType compute_;
    Packing packing_;
    Features features_;
    int lanes_;
    int64_t tail_ = 0;
};

}  // namespace normjit::backend::llvmir
