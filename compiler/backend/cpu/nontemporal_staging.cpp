// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/nontemporal_staging.h"

#include "artifact/nontemporal_staging.h"

namespace normjit::backend::cpu {

NonTemporalStaging::NonTemporalStaging(Machine& machine, int64_t cols, const Operand& matrix, const CpuSchedule& cpu,
                                       Integer offset, Integer end)
    : m_(machine),
      row_bytes_(cols * matrix.bytes()),
      frame_row_bytes_(normjit::stack_row_bytes(cols, matrix)),
      lines_at_(machine.reserve(normjit::stack_bytes(cols, matrix, cpu) + line_bytes, line_bytes)),
      offset_(offset),
      end_(end),
      is_used_(machine.integer(Home::frame)),
      has_gaps_(machine.integer(Home::frame)),
      memory_(machine.integer(Home::frame)),
      shared_bytes_(machine.integer(Home::frame)),
      gap_(machine.integer(Home::frame)),
      row_end_(machine.integer(Home::frame)) {}

void NonTemporalStaging::if_used(const char* name, const Machine::Emit& then) {
    m_.if_else(name, [&] { return m_.compare(is_used_, Relation::not_equal, 0); }, then, {});
}

void NonTemporalStaging::begin(Integer next, Integer stride) {
    m_.set_to_second_argument(is_used_);
    for (const Integer number : {has_gaps_, shared_bytes_, gap_}) m_.set(number, 0);
    m_.set(memory_, next);
    if_used("staged", [&] {
        m_.set_to_line(memory_, next);
        m_.set_to_difference(offset_, next, {memory_});
        m_.set(shared_bytes_, offset_);
        m_.set_to_address(next, line());
        const auto has_gaps = [&] { return m_.compare(stride, Relation::not_equal, row_bytes_); };
        m_.if_else("gaps", has_gaps, [&] {
            m_.set(has_gaps_, 1);
            m_.set(gap_, stride);
            m_.add(gap_, -frame_row_bytes_);
            m_.set(stride, frame_row_bytes_);
        });
    });
}

void NonTemporalStaging::write_lines(Integer next) {
    if_used("staged", [&] { write(next); });
}

void NonTemporalStaging::write(Integer next) {
    m_.set_to_difference(end_, next, lines());
    const auto has_gaps = [&] { return m_.compare(has_gaps_, Relation::not_equal, 0); };
    m_.if_else("gaps", has_gaps, [&] { write_rows(next); }, [&] { write_full_lines(next); });
}

/// Copies one line and moves on to the next.
void NonTemporalStaging::copy_lines() {
    m_.copy_line(line_in_memory(), line(), Caching::nontemporal);
    m_.add(offset_, line_bytes);
}

void NonTemporalStaging::write_full_lines(Integer next) {
    const auto is_full = [&] { return m_.compare(end_, Relation::not_less, line_bytes); };
    m_.if_else("full", is_full, [&] {
        m_.set(offset_, 0);
        const auto is_shared = [&] { return m_.compare(shared_bytes_, Relation::not_equal, 0); };
        m_.if_else("shared", is_shared, [&] {
            m_.set(offset_, shared_bytes_);
            m_.copy_bytes({memory_}, lines(), offset_, line_bytes);
            m_.set(shared_bytes_, 0);
            m_.set(offset_, line_bytes);
        });
        m_.add(end_, 1 - line_bytes);  // a line is full if it starts before this address
        const auto is_left = [&] { return m_.compare(offset_, Relation::less, end_); };
        m_.if_else("lines", is_left, [&] {
            m_.repeat("line", [&] {
                copy_lines();
                return is_left();
            });
        });
        m_.copy_line(lines(), line(), Caching::normal);
        m_.add(memory_, offset_);
        m_.subtract(next, offset_);
    });
}

/// Copies each row of the block.
void NonTemporalStaging::write_rows(Integer next) {
    const int64_t whole = row_bytes_ / line_bytes * line_bytes;
    m_.if_else(
        "rows", [&] { return m_.compare(end_, Relation::greater, 0); },
        [&] {
            m_.set(offset_, 0);
            m_.repeat("line.row", [&] {
                if (whole > 0) {
                    m_.set(row_end_, offset_);
                    m_.add(row_end_, whole);
                    m_.repeat("line", [&] {
                        copy_lines();
                        return m_.compare(offset_, Relation::less, row_end_);
                    });
                }
                m_.copy_bytes(line_in_memory(), line(), 0, row_bytes_ - whole);
                m_.add(offset_, line_bytes);
                m_.add(memory_, gap_);
                return m_.compare(offset_, Relation::less, end_);
            });
            m_.add(memory_, offset_);
            m_.set_to_address(next, lines());
        });
}

void NonTemporalStaging::finish(Integer next) {
    if_used("finish", [&] {
        write(next);
        m_.set_to_difference(end_, next, lines());
        m_.set(offset_, shared_bytes_);
        const auto is_left = [&] { return m_.compare(offset_, Relation::less, end_); };
        m_.if_else("rest", is_left, [&] { m_.copy_bytes({memory_}, lines(), offset_, end_); });
        m_.fence_nontemporal();
    });
}

}  // namespace normjit::backend::cpu
