// SPDX-License-Identifier: Apache-2.0
// The phase `final_reduce`: for a range of columns, the sum of the row groups' partials in their order, some groups at
// a time, and the column outputs from those sums, rounded once.
// The phase `slice_reduce`: the same for one slice, and the outputs that have a row for each.
#include "artifact/cpu_abi.h"
#include "backend/cpu/evaluate.h"
#include "backend/cpu/loop_bodies.h"
#include "backend/cpu/rows.h"

#include <cstddef>

namespace normjit::backend::cpu {

namespace {

class FinalReduceEmitter {
  public:
    FinalReduceEmitter(Machine& machine, const plan::Plan& plan, bool per_slice)
        : m_(machine),
          plan_(plan),
          epilogue_(plan::epilogue_of(plan, per_slice)),
          column_(m_.integer(Home::a_register)),
          left_(m_.integer(Home::a_register)),
          partial_(m_.integer(Home::a_register)),
          groups_(m_.integer(Home::a_register)),
          groups_in_hand_(m_.integer(Home::a_register)) {}

    /// All ranges are whole units but the row's last one, which ends as the row does.
    void emit() {
        const int64_t unit = m_.unit_columns();
        const auto tail = static_cast<int>(plan_.function.cols % unit);
        m_.enter();
        if (tail != 0) m_.set_tail(tail);
        m_.set(left_, number(offsetof(FinalTask, cols)));
        m_.set(column_, 0);
        m_.repeat_while(
            "unit", [&] { return m_.compare(left_, Relation::not_less, unit); },
            [&] {
                emit_unit(Lanes::all);
                m_.add(column_, unit);
                m_.add(left_, -unit);
            });
        if (tail != 0) {
            const auto is_left = [&] { return m_.compare(left_, Relation::not_equal, 0); };
            m_.if_else("tail", is_left, [&] { emit_unit(Lanes::tail); });
        }
        m_.leave();
    }

  private:
    bool is_needed(size_t sum) const { return epilogue_.sums[sum] != ir::no_value; }

    template <class Visit>
    void for_each_register(const std::vector<UnitSum>& sums, Visit visit) {
        for (size_t k = 0; k < sums.size(); ++k) {
            if (!is_needed(k)) continue;
            for (int v = 0; v < m_.unit_vectors(); ++v) {
                const int64_t element = static_cast<int64_t>(k) * plan_.geometry.partial_cols + v * m_.lanes();
                const Address at{partial_, column_, m_.element_bytes(), element * m_.element_bytes()};
                visit(sums[k][static_cast<size_t>(v)], at);
            }
        }
    }

    void emit_unit(Lanes lanes) {
        Registers registers = m_.registers();
        const std::vector<UnitSum> sums = take_zeros(registers);
        m_.set(partial_, address(offsetof(FinalTask, partials)));
        m_.set(groups_, number(offsetof(FinalTask, groups)));
        const auto has_groups = [&] { return m_.compare(groups_, Relation::greater, 0); };
        m_.repeat_while("groups", has_groups, [&] { add_groups(sums, registers); });
        finish(sums, registers, lanes);
    }

    std::vector<UnitSum> take_zeros(Registers& registers) {
        std::vector<UnitSum> sums(epilogue_.sums.size());
        for (size_t k = 0; k < sums.size(); ++k) {
            if (!is_needed(k)) continue;
            UnitSum& sum = sums[k];
            for (size_t v = 0; v < static_cast<size_t>(m_.unit_vectors()); ++v) {
                sum[v] = m_.accumulator(registers);
                m_.zero(sum[v]);
            }
        }
        return sums;
    }

    /// The next groups, summed before they are added to what there is.
    void add_groups(const std::vector<UnitSum>& sums, Registers registers) {
        const std::vector<UnitSum> in_hand = take_zeros(registers);
        m_.set(groups_in_hand_, groups_at_once);
        m_.if_else(
            "last_groups", [&] { return m_.compare(groups_, Relation::less, groups_at_once); },
            [&] { m_.set(groups_in_hand_, groups_); });
        m_.add(groups_, -groups_at_once);
        m_.repeat("group", [&] {
            for_each_register(in_hand, [&](Accumulator sum, const Address& at) { m_.add(sum, at); });
            m_.add(partial_, number(offsetof(FinalTask, group_stride)));
            return m_.count_down(groups_in_hand_, 1);
        });
        for (size_t k = 0; k < sums.size(); ++k) {
            if (!is_needed(k)) continue;
            for (size_t v = 0; v < static_cast<size_t>(m_.unit_vectors()); ++v) m_.add(sums[k][v], in_hand[k][v]);
        }
    }

    /// The column outputs from the sums.
    void finish(const std::vector<UnitSum>& sums, Registers& registers, Lanes lanes) {
        const auto place = [&](Tensor tensor) -> Address {
            m_.set(m_.temporary(), address(offsetof(FinalTask, data) + plan_.operands.place(tensor) * sizeof(void*)));
            return {m_.temporary(), column_, static_cast<int>(plan_.operands.of(tensor).bytes())};
        };
        const auto type = [&](Tensor tensor) { return *plan_.function.dtypes[tensor]; };
        Environment around;
        around.vectors = m_.unit_vectors();
        around.lanes = lanes;
        for (size_t k = 0; k < sums.size(); ++k) {
            if (is_needed(k)) around.live.insert({epilogue_.sums[k], values_of(m_, sums[k])});
        }
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
    const plan::Epilogue epilogue_;
    const Integer column_;   ///< from the task's first one
    const Integer left_;     ///< columns still to do
    const Integer partial_;  ///< of the group in hand
    const Integer groups_;   ///< still to add
    const Integer groups_in_hand_;
};

}  // namespace

void emit_final_reduce(Machine& machine, const plan::Plan& plan) { FinalReduceEmitter(machine, plan, false).emit(); }

void emit_slice_reduce(Machine& machine, const plan::Plan& plan) { FinalReduceEmitter(machine, plan, true).emit(); }

}  // namespace normjit::backend::cpu
