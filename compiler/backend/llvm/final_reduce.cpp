// SPDX-License-Identifier: Apache-2.0
// The phase `final_reduce`: for a range of columns, the sum of the row groups' partials in their order, rounded once.
#include "backend/llvm/rows.h"

#include "normjit/cpu_abi.h"

#include <cstddef>

namespace normjit::backend::llvmir {

namespace {

using llvm::Value;

class FinalReduceEmitter {
  public:
    FinalReduceEmitter(Builder& builder, const plan::Plan& plan, Value* task) : b_(builder), plan_(plan), task_(task) {}

    void emit() {
        Value* cols = field(offsetof(FinalTask, cols), b_.getInt64Ty());
        Value* width = b_.getInt64(static_cast<uint64_t>(b_.unit_columns()));
        b_.loop("unit", cols, b_.unit_columns(), {}, [&](Value* column, const Values&) -> Values {
            const std::vector<Unit> sums = sum_groups(column);
            Value* left = b_.CreateSub(cols, column);
            const auto whole = [&]() -> Values { return store(column, sums, nullptr); };
            const auto tail = [&]() -> Values { return store(column, sums, left); };
            b_.if_else("whole", b_.CreateICmpSGE(left, width), whole, tail);
            return {};
        });
    }

  private:
    Value* field(size_t offset, llvm::Type* type) {
        return b_.CreateLoad(type, b_.at(task_, static_cast<int64_t>(offset)));
    }

    /// The unit at `column` of every partial array. Partials are padded: whole units may be read.
    std::vector<Unit> sum_groups(Value* column) {
        Value* groups = field(offsetof(FinalTask, groups), b_.getInt64Ty());
        Value* partials = field(offsetof(FinalTask, partials), b_.getPtrTy());
        Value* stride = field(offsetof(FinalTask, group_stride), b_.getInt64Ty());
        const Values none(static_cast<size_t>(plan_.geometry.column_sums * b_.parts()), b_.zero());
        const auto add_groups = [&] {
            return b_.loop("group", groups, 1, none, [&](Value* group, const Values& sums) {
                Value* start = b_.at(partials, b_.CreateMul(group, stride));
                start = b_.CreateInBoundsGEP(b_.scalar_type(), start, column);
                Values added;
                for (size_t i = 0; i < sums.size(); ++i)
                    added.push_back(b_.CreateFAdd(sums[i], b_.load_register(b_.at(start, offset(i)))));
                return added;
            });
        };
        Value* any = b_.CreateICmpSGT(groups, b_.getInt64(0));
        const Values sums = b_.if_else("groups", any, add_groups, [&] { return none; });
        std::vector<Unit> units;
        for (size_t i = 0; i < sums.size(); i += static_cast<size_t>(b_.parts()))
            units.push_back({{sums[i], b_.parts() > 1 ? sums[i + 1] : nullptr}});
        return units;
    }

    /// Of register `i`, in bytes from the unit's place in the first array.
    int64_t offset(size_t i) const {
        const auto parts = static_cast<size_t>(b_.parts());
        const int64_t element = static_cast<int64_t>(i / parts) * plan_.geometry.partial_cols +
                                static_cast<int64_t>(i % parts) * b_.lanes();
        return element * b_.element_bytes();
    }

    /// Without `count` the whole unit.
    Values store(Value* column, const std::vector<Unit>& sums, Value* count) {
        for (const plan::FinalReduce& final : plan_.finals) {
            const Place to{field(offsetof(FinalTask, data) + index(final.output) * sizeof(void*), b_.getPtrTy()),
                           column};
            const Unit& sum = sums[static_cast<size_t>(final.sum)];
            const DType type = *plan_.function.dtypes[final.output];
            if (count == nullptr) {
                b_.store(to, sum, type, Lanes::all, Caching::normal);
            } else {
                b_.store_some(to, sum, type, count);
            }
        }
        return {};
    }

    Builder& b_;
    const plan::Plan& plan_;
    Value* task_;
};

}  // namespace

void emit_final_reduce(Builder& builder, const plan::Plan& plan, Value* task) {
    FinalReduceEmitter(builder, plan, task).emit();
}

}  // namespace normjit::backend::llvmir
