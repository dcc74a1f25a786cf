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
#include <thread>

namespace normjit::cpu {

class Progress {
  public:
    /// In `memory`: (1 + parts) * line_bytes, at a multiple of line_bytes.
    Progress(void* memory, int64_t parts, int64_t phases)
        : done_(static_cast<Line*>(memory)), begun_(done_ + 1), parts_(parts), phases_(phases) {}

    static constexpr int64_t line_bytes = 64;

    /// Before the first take_part(), by one thread.
    void begin() const { std::uninitialized_value_construct_n(done_, 1 + parts_); }

    /// Calls run(phase, part) for the parts `seat`, `seat` + `seats`, ... of every phase, and for others'. Returns when
    /// all phases are over. Each seat below `seats` is one thread's.
    template <class Run>
    void take_part(int64_t seat, int64_t seats, const Run& run) const {
        for (int64_t phase; (phase = current()) < phases_;) {
            const auto is_over = [&] { return current() != phase; };
            for (int64_t part = seat; part < parts_; part += seats) run_if_free(phase, part, run);
            if (wait_for(restraint, is_over)) continue;
            for (int64_t part = 0; part < parts_; ++part) run_if_free(phase, part, run);
            while (!wait_for(patience, is_over)) std::this_thread::yield();
        }
    }

  private:
    struct alignas(line_bytes) Line {
        std::atomic<int64_t> number = 0;
    };

    /// Whoever sees that a phase is over sees what its parts wrote.
    int64_t current() const { return done_->number.load(std::memory_order_acquire) / parts_; }

    /// While a phase lasts, the part has been begun in all phases before, and perhaps in this one.
    template <class Run>
    void run_if_free(int64_t phase, int64_t part, const Run& run) const {
        int64_t begun = begun_[part].number.load(std::memory_order_relaxed);
        if (begun != phase) return;
        if (!begun_[part].number.compare_exchange_strong(begun, phase + 1, std::memory_order_relaxed)) return;
        run(phase, part);
        done_->number.fetch_add(1, std::memory_order_acq_rel);
    }

    Line* const done_;   ///< parts of all phases that are done
    Line* const begun_;  ///< for each part, the phases in which it was begun
    const int64_t parts_;
    const int64_t phases_;
};

}  // namespace normjit::cpu
