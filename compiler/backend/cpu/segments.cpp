// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/segments.h"

#include "artifact/cpu_abi.h"

#include <cstddef>

namespace normjit::backend::cpu {

Segments::Segments(Machine& machine, const plan::Plan& plan, Extent extent)
    : m_(machine), plan_(plan), extent_(extent) {
    if (plan_.geometry.column_sums > 0) sums_ = m_.integer(Home::a_register);
    if (!has_blocks()) return;
    for (Integer* integer : {&starts_, &is_first_, &closes_, &left_}) *integer = m_.integer(Home::frame);
}

int64_t Segments::blocks() const { return segment_blocks(std::get<CpuSchedule>(plan_.schedule.device).row_block); }

void Segments::begin_group() {
    if (plan_.geometry.column_sums > 0) m_.set(sums_, address(offsetof(RowsTask, partials)));
    if (!has_blocks()) return;
    m_.set(starts_, 1);
    m_.set(is_first_, 1);
    m_.set(left_, blocks());
    if (plan_.spec.has_slices()) continue_group();
}

/// Continues with the sums that earlier tasks left in the partials.
void Segments::continue_group() {
    const Field continues = number(offsetof(SlicedRowsTask, continues));
    m_.if_else(
        "continues", [&] { return m_.compare(continues, Relation::not_equal, 0); },
        [&] {
            m_.set(starts_, 0);
            m_.set(is_first_, 0);
            m_.add(sums_, plan_.geometry.segment_offset(m_.element_bytes()));
        });
}

/// Closes a segment after its last block, or where the group ends.
void Segments::begin_block(Integer rows_ahead) {
    if (!has_blocks()) return;
    m_.set(closes_, 0);
    const auto closes_if = [&](const char* name, Integer integer, int64_t number) {
        m_.if_else(name, [&] { return m_.compare(integer, Relation::equal, number); }, [&] { m_.set(closes_, 1); });
    };
    const auto is_later = [&] { return m_.compare(is_first_, Relation::equal, 0); };
    m_.if_else("later_segment", is_later, [&] {
        closes_if("last_of_segment", left_, 1);
        closes_if("last_block", rows_ahead, 0);
    });
}

/// The second segment starts with no sums, like the first, but in arrays that all further segments share.
void Segments::leave_block() {
    if (!has_blocks()) return;
    m_.set(starts_, 0);
    m_.add(left_, -1);
    const auto is_over = [&] { return m_.compare(left_, Relation::equal, 0); };
    const auto is_first = [&] { return m_.compare(is_first_, Relation::not_equal, 0); };
    m_.if_else("next_segment", is_over, [&] {
        m_.set(left_, blocks());
        m_.if_else("second_segment", is_first, [&] {
            m_.set(is_first_, 0);
            m_.set(starts_, 1);
            m_.add(sums_, plan_.geometry.segment_offset(m_.element_bytes()));
        });
    });
}

void Segments::if_has_sums(const Machine::Emit& then) {
    const Amount starts = extent_ == Extent::rows ? Amount(starts_) : number(offsetof(SweepTask, starts));
    m_.if_else("continued", [&] { return m_.compare(starts, Relation::equal, 0); }, then);
}

void Segments::if_closes(const Machine::Emit& then, const Machine::Emit& otherwise) {
    const Amount closes = extent_ == Extent::rows ? Amount(closes_) : number(offsetof(SweepTask, closes));
    m_.if_else("closes", [&] { return m_.compare(closes, Relation::not_equal, 0); }, then, otherwise);
}

}  // namespace normjit::backend::cpu
