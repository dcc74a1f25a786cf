// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/job.h"

#include "support/divide.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <tuple>

namespace normjit::cpu {

namespace {

constexpr int count_bits = 16;
constexpr int64_t most_claims = (int64_t{1} << count_bits) - 1;  ///< the most claims of one share

/// Packs a phase's number and the claims of its share into one word. Numbers run out after 2^46 phases.
constexpr int64_t pack(int64_t number, int64_t claims) { return number << count_bits | claims; }
constexpr int64_t number_in(int64_t packed) { return packed >> count_bits; }
constexpr int64_t claims_in(int64_t packed) { return packed & most_claims; }

/// Claims the next part of a share. Returns its number, or -1 if all `parts` have been claimed or the phase is over.
int64_t claim(std::atomic<int64_t>& claimed, int64_t number, int64_t parts) {
    int64_t seen = claimed.load(std::memory_order_relaxed);
    for (;;) {
        const int64_t taken = number_in(seen) == number ? claims_in(seen) : 0;
        if (number_in(seen) > number || taken == parts) return -1;
        if (claimed.compare_exchange_weak(seen, pack(number, taken + 1), std::memory_order_relaxed)) return taken;
    }
}

}  // namespace

void Phases::run_alone() const {
    for (int64_t phase = 0; phase < count; ++phase) {
        for (int64_t i = 0; i < tasks_of(phase); ++i) task(context, phase, i);
    }
}

Job& Job::create(void* memory, int64_t seats) {
    static_assert(sizeof(Job) == 2 * lines_apart && sizeof(Share) == lines_apart);
    size_t space = bytes(seats);
    Job* const job = new (std::align(lines_apart, space - lines_apart, memory, space)) Job(static_cast<int>(seats));
    std::uninitialized_value_construct_n(job->shares(), seats);
    return *job;
}

Job::Phase Job::begin(const Phases& phases, int cpu) {
    const int64_t done = done_.load(std::memory_order_relaxed), first = phases.tasks == 0 ? phases.count - 1 : 0;
    const int64_t tasks = phases.tasks_of(first);
    const Phase phase{number() + 2, &phases, first, tasks, done + tasks, done + phases.all_tasks(), cpu};
    announce(phase);
    return phase;
}

/// Stores each word with release order, so that a thread that reads one word of a later phase also finds the number
/// that says that the phase is being written.
void Job::announce(const Phase& phase) {
    const auto words = std::bit_cast<std::array<int64_t, std::tuple_size_v<decltype(announced_)>>>(phase);
    announced_[0].store(phase.number - 1, std::memory_order_relaxed);
    for (size_t i = 1; i < words.size(); ++i) announced_[i].store(words[i], std::memory_order_release);
    announced_[0].store(phase.number, std::memory_order_seq_cst);
}

bool Job::find_next(Phase& phase) const {
    std::array<int64_t, std::tuple_size_v<decltype(announced_)>> words;
    words[0] = announced_[0].load(std::memory_order_seq_cst);
    if (words[0] == phase.number || words[0] % 2 != 0) return false;
    for (size_t i = 1; i < words.size(); ++i) words[i] = announced_[i].load(std::memory_order_acquire);
    if (announced_[0].load(std::memory_order_relaxed) != words[0]) return false;
    phase = std::bit_cast<Phase>(words);
    return true;
}

void Job::take_part(int seat, int seats, std::chrono::nanoseconds delay) {
    Phase phase;
    bell_.wait([&] { return find_next(phase); });
    take_part(phase, seat, seats, delay);
}

void Job::take_part(Phase& phase, int seat, int seats, std::chrono::nanoseconds delay) {
    for (;;) {
        work(phase, seat, seats, delay);
        if (phase.is_last()) return;
        bell_.wait([&] { return find_next(phase); });
    }
}

void Job::work(const Phase& phase, int seat, int seats, std::chrono::nanoseconds delay) {
    const int shares = std::min(seats, most_shares_);
    run_share(phase, seat % shares, shares);
    const auto is_over = [&] { return announced_[0].load(std::memory_order_relaxed) != phase.number; };
    if (delay.count() > 0 && wait_for(delay, is_over)) return;
    for (int i = 1; i < shares; ++i) run_share(phase, (seat + i) % shares, shares);
}

/// Runs the remaining tasks of a share. As long as a claim succeeds, the job is not over, so `phase` is current.
void Job::run_share(const Phase& phase, int of, int shares) {
    const int64_t begin = phase.tasks * of / shares, end = phase.tasks * (of + 1) / shares;
    const int64_t at_once = (end - begin) / most_claims + 1, parts = divide_up(end - begin, at_once);
    int64_t ran = 0;
    for (int64_t part; (part = claim(this->shares()[of].claimed, phase.number, parts)) >= 0;) {
        const int64_t first = begin + part * at_once, last = std::min(first + at_once, end);
        for (int64_t i = first; i < last; ++i) phase.phases->task(phase.phases->context, phase.index, i);
        ran += last - first;
    }
    if (ran > 0) add_done(phase, ran);
}

/// Counts finished tasks. After the last task of the last phase, the launch and its Phases may disappear at any time.
void Job::add_done(const Phase& phase, int64_t tasks) {
    if (done_.fetch_add(tasks, std::memory_order_seq_cst) + tasks != phase.until) return;
    if (!phase.is_last()) {
        const int64_t next = phase.index + 1, its_tasks = phase.phases->tasks_of(next);
        announce({phase.number + 2, phase.phases, next, its_tasks, phase.until + its_tasks, phase.end, phase.cpu});
    }
    bell_.ring();
}

bool Job::is_untouched(const Phase& phase, int seat) const {
    return number_in(shares()[seat % most_shares_].claimed.load(std::memory_order_relaxed)) < phase.number;
}

/// Reads with sequential consistency, just as add_done() writes: see Bell::ring().
void Job::wait_until_over(const Phase& phase) {
    bell_.wait([&] { return done_.load(std::memory_order_seq_cst) == phase.end; });
}

void Job::stop() {
    announce({.number = stopped});
    bell_.ring();
}

}  // namespace normjit::cpu
