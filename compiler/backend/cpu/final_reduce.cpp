// SPDX-License-Identifier: Apache-2.0
// The phase `final_reduce`. For a range of columns it adds the row groups' partials in order, several groups at a time,
// and stores the column outputs, each rounded once. The largest magnitudes stay in the first group's partials; the
// caller makes scalar outputs from them.
#include "artifact/cpu_abi.h"
#include "backend/cpu/evaluate.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/rows.h"

#include <cstddef>

namespace normjit::backend::cpu {

namespace {

using ir::Shape;

class FinalReduceEmitter {
  public:
    FinalReduceEmitter(Machine& machine, const plan::Plan& plan)
        : m_(machine),
          plan_(plan),
          column_(m_.integer(Home::a_register)),
          left_(m_.integer(Home::a_register)),
          partial_(m_.integer(Home::a_register)),
          groups_(m_.integer(Home::a_register)),
          groups_in_hand_(m_.integer(Home::a_register)) {}

    void emit() {
        m_.enter();
        if (const int64_t tail = plan_.function.cols % m_.unit_columns(); tail != 0)
            m_.set_tail(static_cast<int>(tail));
        if (!plan_.operands.has_shared_sums() || !plan_.operands.has_sums_per_slice()) {
            emit_range(plan_.operands.has_sums_per_slice());
        } else {
            const Field per_slice = number(offsetof(FinalTask, per_slice));
            m_.if_else(
                "per_slice", [&] { return m_.compare(per_slice, Relation::not_equal, 0); }, [&] { emit_range(true); },
                [&] { emit_range(false); });
        }
        m_.leave();
    }

  private:
    /// Emits the loop over a range of columns. It handles whole units, except that the last range of a row ends where
    /// the row does.
    void emit_range(bool per_slice) {
        epilogue_ = plan::epilogue_of(plan_, per_slice);
        Registers registers = m_.registers();
        largest_ = take_zeros(Shape::scalar, registers);
        const int64_t unit = m_.unit_columns();
        const int64_t tail = plan_.function.cols % unit;
        m_.set(left_, number(offsetof(FinalTask, cols)));
        m_.set(column_, 0);
        m_.repeat_while(
            "unit", [&] { return m_.compare(left_, Relation::not_less, unit); },
            [&] {
                emit_unit(Lanes::all, registers);
                m_.add(column_, unit);
                m_.add(left_, -unit);
            });
        if (tail != 0) {
            const auto is_left = [&] { return m_.compare(left_, Relation::not_equal, 0); };
            m_.if_else("tail", is_left, [&] { emit_unit(Lanes::tail, registers); });
        }
        if (!epilogue_.scalars.empty()) write_largest(registers);
    }

    using Sums = std::vector<UnitSum>;

    /// Calls visit(k, v) for each partial array k that is reduced to this shape, and each vector v of a unit.
    template <class Visit>
    void for_each(Shape shape, Visit visit) const {
        for (size_t k = 0; k < epilogue_.sums.size(); ++k) {
            const ValueId sum = epilogue_.sums[k];
            if (sum == ir::no_value || plan_.function[sum].shape != shape) continue;
            for (size_t v = 0; v < static_cast<size_t>(m_.unit_vectors()); ++v) visit(k, v);
        }
    }

    Address partial(size_t k, size_t v) const {
        const int64_t element =
            static_cast<int64_t>(k) * plan_.geometry.partial_cols + static_cast<int64_t>(v) * m_.lanes();
        return {partial_, column_, m_.element_bytes(), element * m_.element_bytes()};
    }

    void emit_unit(Lanes lanes, Registers registers) {
        const Sums sums = take_zeros(Shape::cols, registers);
        m_.set(partial_, address(offsetof(FinalTask, partials)));
        m_.set(groups_, number(offsetof(FinalTask, groups)));
        const auto has_groups = [&] { return m_.compare(groups_, Relation::greater, 0); };
        m_.repeat_while("groups", has_groups, [&] { add_groups(sums, registers); });
        finish(sums, registers, lanes);
    }

    Sums take_zeros(Shape shape, Registers& registers) const {
        Sums sums(epilogue_.sums.size());
        for_each(shape, [&](size_t k, size_t v) {
            sums[k][v] = m_.accumulator(registers);
            m_.zero(sums[k][v]);
        });
        return sums;
    }

    /// Adds up the next groups before adding them to the previous ones.
    void add_groups(const Sums& sums, Registers registers) {
        const Sums in_hand = take_zeros(Shape::cols, registers);
        m_.set(groups_in_hand_, groups_at_once);
        m_.if_else(
            "last_groups", [&] { return m_.compare(groups_, Relation::less, groups_at_once); },
            [&] { m_.set(groups_in_hand_, groups_); });
        m_.add(groups_, -groups_at_once);
        m_.repeat("group", [&] {
            for_each(Shape::cols, [&](size_t k, size_t v) { m_.add(in_hand[k][v], partial(k, v)); });
            for_each(Shape::scalar, [&](size_t k, size_t v) {
                const Vector more = m_.read(Registers(registers).take(), partial(k, v));
                m_.add_magnitude(largest_[k][v], more, Lanes::all, 0);
            });
            m_.add(partial_, number(offsetof(FinalTask, group_stride)));
            return m_.count_down(groups_in_hand_, 1);
        });
        for_each(Shape::cols, [&](size_t k, size_t v) { m_.add(sums[k][v], in_hand[k][v]); });
    }

    /// Writes the largest magnitudes of the range, one in each lane, followed by zeros: partial_unit_bytes in all.
    void write_largest(Registers registers) {
        const Accumulator zero = m_.accumulator(registers);
        m_.zero(zero);
        m_.set(partial_, address(offsetof(FinalTask, partials)));
        m_.set(column_, 0);
        const int64_t vectors = partial_unit_bytes / (m_.lanes() * m_.element_bytes()), used = m_.unit_vectors();
        for_each(Shape::scalar, [&](size_t k, size_t first) {
            for (auto v = static_cast<int64_t>(first); v < vectors; v += used)
                m_.write(partial(k, static_cast<size_t>(v)), m_.value_of(v < used ? largest_[k][first] : zero));
        });
    }

    /// Computes the column outputs from the sums.
    void finish(const Sums& sums, Registers& registers, Lanes lanes) {
        const auto place = [&](Tensor tensor) -> Address {
            m_.set(m_.temporary(), address(offsetof(FinalTask, data) + plan_.operands.place(tensor) * sizeof(void*)));
            return {m_.temporary(), column_, static_cast<int>(size_of(plan_.function.dtype(tensor)))};
        };
        const auto type = [&](Tensor tensor) { return plan_.function.dtype(tensor); };
        Environment around;
        around.vectors = m_.unit_vectors();
        around.lanes = lanes;
        for_each(Shape::cols,
                 [&](size_t k, size_t) { around.live.insert({epilogue_.sums[k], values_of(m_, sums[k])}); });
        around.load = [&](const Unit& to, ValueId id) {
            const Tensor tensor = plan_.function[id].tensor;
            return m_.load(to, place(tensor), type(tensor), lanes);
        };
        around.store = [&](const Unit& value, Tensor tensor) {
            m_.store(place(tensor), value, type(tensor), lanes, Caching::normal);
        };
        evaluate(m_, registers, plan_.function, {plan_.function, epilogue_body(epilogue_)}, around);
    }

    Machine& m_;
    const plan::Plan& plan_;
    plan::Epilogue epilogue_;  ///< the epilogue of one slice, or of all rows
    Sums largest_;             ///< the range's largest magnitude, for each scalar output
    const Integer column_;     ///< the current column, counted from the task's first
    const Integer left_;       ///< columns that remain
    const Integer partial_;    ///< the address of the current group's partials
    const Integer groups_;     ///< groups that remain
    const Integer groups_in_hand_;
};

}  // namespace

void emit_final_reduce(Machine& machine, const plan::Plan& plan) { FinalReduceEmitter(machine, plan).emit(); }

}  // namespace normjit::backend::cpu
