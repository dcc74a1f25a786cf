// SPDX-License-Identifier: Apache-2.0
// Threads that go through the phases of a job together: a phase is a number of parts, which do not need each other, and
// begins when all parts of the one before are done.
//
// Every thread has parts of its own, the same in every phase, so that it finds in its caches what it left there. Those
// that their thread does not begin, because it came late or never, are done by the others: nobody waits for a thread
// that has not come, only for parts that somebody is at. One thread alone does all of them.
#pragma once

#include "device/cpu/waiting.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace normjit::cpu {

class Progress {
  public:
    /// In `memory`: (1 + parts) * line_bytes, at a multiple of line_bytes.
    Progress(void* memory, int64_t parts, int64_t phases)
        : head_(static_cast<Head*>(memory)),
          begun_(reinterpret_cast<Line*>(head_ + 1)),
          parts_(parts),
          phases_(phases) {}

    static constexpr int64_t line_bytes = 64;

    /// Before the first take_part(), by one thread.
    void begin() const {
        std::construct_at(head_);
        std::uninitialized_value_construct_n(begun_, parts_);
    }

    /// Calls run(phase, part) for the parts `seat`, `seat` + `seats`, ... of every phase, and for others'. Returns when
    /// all phases are over. Each seat below `seats` is one thread's.
    template <class Run>
    void take_part(int64_t seat, int64_t seats, const Run& run) const {
        for (int64_t phase; (phase = current()) < phases_;) {
            const auto is_over = [&] { return current() != phase; };
            for (int64_t part = seat; part < parts_; part += seats) run_if_free(phase, part, run);
            if (wait_for(restraint, is_over)) continue;
            for (int64_t part = 0; part < parts_; ++part) run_if_free(phase, part, run);
            head_->bell.wait(is_over);
        }
    }

  private:
    struct alignas(line_bytes) Head {
        std::atomic<int64_t> done = 0;  ///< parts of all phases
        Bell bell;                      ///< at the end of every phase
    };
    static_assert(sizeof(Head) == line_bytes);
    struct alignas(line_bytes) Line {
        std::atomic<int64_t> number = 0;
    };

    /// Whoever sees that a phase is over sees what its parts wrote.
    int64_t current() const { return head_->done.load(std::memory_order_seq_cst) / parts_; }

    /// While a phase lasts, the part has been begun in all phases before, and perhaps in this one.
    template <class Run>
    void run_if_free(int64_t phase, int64_t part, const Run& run) const {
        int64_t begun = begun_[part].number.load(std::memory_order_relaxed);
        if (begun != phase) return;
        if (!begun_[part].number.compare_exchange_strong(begun, phase + 1, std::memory_order_relaxed)) return;
        run(phase, part);
        const int64_t done = head_->done.fetch_add(1, std::memory_order_seq_cst) + 1;
        if (done == (phase + 1) * parts_) head_->bell.ring();
    }

    Head* const head_;
    Line* const begun_;  ///< for each part, the phases in which it was begun
    const int64_t parts_;
    const int64_t phases_;
};

}  // namespace normjit::cpu
