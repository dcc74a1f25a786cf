// SPDX-License-Identifier: Apache-2.0
// The accumulation segments of a row group's column sums (artifact/cpu_abi.h): where their sums are, and where a block
// is in its segment.
#pragma once

#include "artifact/cpu_abi.h"
#include "backend/cpu/machine.h"
#include "backend/cpu/plan_queries.h"
#include "plan/plan.h"

#include <cstddef>

namespace normjit::backend::cpu {

class Segments {
  public:
    Segments(Machine& machine, const plan::Plan& plan, Extent extent) : m_(machine), plan_(plan), extent_(extent) {
        if (plan_.geometry.column_sums > 0) sums_ = m_.integer(Home::a_register);
        if (!has_blocks()) return;
        for (Integer* integer : {&starts_, &is_first_, &closes_, &left_}) *integer = m_.integer(Home::frame);
    }

    /// Emit code at the start of the group and around each of its blocks. `rows_ahead` is the number of rows in the
    /// next block; 0 in the last block.
    void begin_group() {
        if (plan_.geometry.column_sums > 0) m_.set(sums_, address(offsetof(RowsTask, partials)));
        if (!has_blocks()) return;
        m_.set(starts_, 1);
        m_.set(is_first_, 1);
        m_.set(left_, blocks());
        if (plan_.spec.has_slices()) continue_group();
    }

    /// Closes a segment after its last block, or where the group ends.
    void begin_block(Integer rows_ahead) {
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
    void leave_block() {
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

    /// Returns the address of the current segment's sums. From the second segment on, the totals of all earlier
    /// segments lie Geometry::segment_offset() before it.
    Integer sums() const { return sums_; }
    void if_has_sums(const Machine::Emit& then) {
        const Amount starts = extent_ == Extent::rows ? Amount(starts_) : number(offsetof(SweepTask, starts));
        m_.if_else("continued", [&] { return m_.compare(starts, Relation::equal, 0); }, then);
    }

    void if_closes(const Machine::Emit& then, const Machine::Emit& otherwise = {}) {
        const Amount closes = extent_ == Extent::rows ? Amount(closes_) : number(offsetof(SweepTask, closes));
        m_.if_else("closes", [&] { return m_.compare(closes, Relation::not_equal, 0); }, then, otherwise);
    }

  private:
    bool has_blocks() const { return extent_ == Extent::rows && plan_.geometry.column_sums > 0; }
    int64_t blocks() const { return segment_blocks(std::get<CpuSchedule>(plan_.schedule.device).row_block); }
    /// Continues with the sums that earlier tasks left in the partials.
    void continue_group() {
        const Field continues = number(offsetof(SlicedRowsTask, continues));
        m_.if_else(
            "continues", [&] { return m_.compare(continues, Relation::not_equal, 0); },
            [&] {
                m_.set(starts_, 0);
                m_.set(is_first_, 0);
                m_.add(sums_, plan_.geometry.segment_offset(m_.element_bytes()));
            });
    }

    Machine& m_;
    const plan::Plan& plan_;
    const Extent extent_;  ///< column_range: a task has one block and says where it lies
    Integer sums_;         ///< valid if there are column sums
    Integer starts_, is_first_, closes_;
    Integer left_;  ///< blocks that remain in the segment, including this one
};

}  // namespace normjit::backend::cpu
