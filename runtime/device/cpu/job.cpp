// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/job.h"

#include "support/divide.h"

#include <algorithm>
#include <memory>

namespace normjit::cpu {

namespace {

constexpr int count_bits = 16;
constexpr int64_t most_claims = (int64_t{1} << count_bits) - 1;  ///< of a share

/// Numbers run out after 2^46 phases.
constexpr int64_t pack(int64_t number, int64_t claims) { return number << count_bits | claims; }
constexpr int64_t number_in(int64_t packed) { return packed >> count_bits; }
constexpr int64_t claims_in(int64_t packed) { return packed & most_claims; }

/// Claims the next part of a share. Returns its number, or -1 when all `parts` are claimed or the phase is over.
int64_t claim(std::atomic<int64_t>& claimed, int64_t number, int64_t parts) {
    int64_t seen = claimed.load(std::memory_order_relaxed);
    for (;;) {
        const int64_t taken = number_in(seen) == number ? claims_in(seen) : 0;
        if (number_in(seen) > number || taken == parts) return -1;
        if (claimed.compare_exchange_weak(seen, pack(number, taken + 1), std::memory_order_relaxed)) return taken;
    }
}

}  // namespace

int64_t Phases::all_tasks() const {
    int64_t all = 0;
    for (int64_t phase = 0; phase < count; ++phase) all += tasks(context, phase);
    return all;
}

int64_t Phases::most_tasks() const {
    int64_t most = 0;
    for (int64_t phase = 0; phase < count; ++phase) most = std::max(most, tasks(context, phase));
    return most;
}

void Phases::run_alone() const {
    for (int64_t phase = 0; phase < count; ++phase) {
        for (int64_t i = 0, all = tasks(context, phase); i < all; ++i) task(context, phase, i);
    }
}

Job& Job::create(void* memory, int64_t seats) {
    static_assert(sizeof(Job) == 2 * lines_apart && sizeof(Share) == lines_apart);
    size_t space = bytes(seats);
    void* const place = std::align(lines_apart, space - lines_apart, memory, space);
    Job* const job = new (place) Job(seats);
    std::uninitialized_value_construct_n(&job->share(0), seats);
    return *job;
}

void Job::begin(const Phases& phases, int cpu) {
    const int64_t done = done_.load(std::memory_order_relaxed);
    announce_next({number(), &phases, -1, 0, done, done + phases.all_tasks(), cpu});
}

/// Skips phases without tasks, but for the last.
void Job::announce_next(Phase phase) {
    const Phases& phases = *phase.phases;
    do {
        ++phase.phase;
        phase.tasks = phase.phase < phases.count ? phases.tasks(phases.context, phase.phase) : 0;
    } while (phase.tasks == 0 && phase.phase < phases.count);
    phase.number += 2;
    phase.until += phase.tasks;
    announce(phase);
}

/// Releases each part, so that a thread that reads a part of a later phase finds the odd number as well.
void Job::announce(const Phase& phase) {
    announced_.number.store(phase.number - 1, std::memory_order_relaxed);
    announced_.phases.store(phase.phases, std::memory_order_release);
    announced_.phase.store(phase.phase, std::memory_order_release);
    announced_.tasks.store(phase.tasks, std::memory_order_release);
    announced_.until.store(phase.until, std::memory_order_release);
    announced_.end.store(phase.end, std::memory_order_release);
    announced_.cpu.store(phase.cpu, std::memory_order_release);
    announced_.number.store(phase.number, std::memory_order_seq_cst);
}

bool Job::find_next(Phase& phase) const {
    const int64_t number = announced_.number.load(std::memory_order_seq_cst);
    if (number == phase.number || number % 2 != 0) return false;
    phase.phases = announced_.phases.load(std::memory_order_acquire);
    phase.phase = announced_.phase.load(std::memory_order_acquire);
    phase.tasks = announced_.tasks.load(std::memory_order_acquire);
    phase.until = announced_.until.load(std::memory_order_acquire);
    phase.end = announced_.end.load(std::memory_order_acquire);
    phase.cpu = announced_.cpu.load(std::memory_order_acquire);
    if (announced_.number.load(std::memory_order_relaxed) != number) return false;
    phase.number = number;
    return true;
}

void Job::take_part(int seat, int seats, std::chrono::nanoseconds restraint) {
    Phase phase;
    bell_.wait([&] { return find_next(phase); });
    take_part(phase, seat, seats, restraint);
}

void Job::take_part(Phase& phase, int seat, int seats, std::chrono::nanoseconds restraint) {
    for (;;) {
        work(phase, seat, seats, restraint);
        if (phase.is_last()) return;
        bell_.wait([&] { return find_next(phase); });
    }
}

void Job::work(const Phase& phase, int seat, int seats, std::chrono::nanoseconds restraint) {
    const int shares = std::min(seats, announced_.most_seats);
    run_share(phase, seat % shares, shares);
    const auto is_over = [&] { return announced_.number.load(std::memory_order_relaxed) != phase.number; };
    if (restraint.count() > 0 && wait_for(restraint, is_over)) return;
    for (int i = 1; i < shares; ++i) run_share(phase, (seat + i) % shares, shares);
}

/// Runs what is left of a share. While a claim succeeds the job is not over, so `phase` is current.
void Job::run_share(const Phase& phase, int of, int shares) {
    const int64_t begin = phase.tasks * of / shares, end = phase.tasks * (of + 1) / shares;
    const int64_t at_once = (end - begin) / most_claims + 1, parts = divide_up(end - begin, at_once);
    int64_t ran = 0;
    for (int64_t part; (part = claim(share(of).claimed, phase.number, parts)) >= 0;) {
        const int64_t first = begin + part * at_once, last = std::min(first + at_once, end);
        for (int64_t i = first; i < last; ++i) phase.phases->task(phase.phases->context, phase.phase, i);
        ran += last - first;
    }
    if (ran > 0) add_done(phase, ran);
}

/// After the last task of the last phase, the launch and its Phases may be gone at once.
void Job::add_done(const Phase& phase, int64_t tasks) {
    if (done_.fetch_add(tasks, std::memory_order_seq_cst) + tasks != phase.until) return;
    if (!phase.is_last()) announce_next(phase);
    bell_.ring();
}

bool Job::is_untouched(const Phase& phase, int seat) const {
    return number_in(share(seat % announced_.most_seats).claimed.load(std::memory_order_relaxed)) < phase.number;
}

/// Sequentially consistent, as what add_done() writes: see Bell::ring().
void Job::wait_until_over() {
    const int64_t end = announced_.end.load(std::memory_order_relaxed);
    bell_.wait([&] { return done_.load(std::memory_order_seq_cst) == end; });
}

void Job::stop() {
    const int64_t done = done_.load(std::memory_order_relaxed);
    announce({stopped, nullptr, 0, 0, done, done, -1});
    bell_.ring();
}

}  // namespace normjit::cpu
