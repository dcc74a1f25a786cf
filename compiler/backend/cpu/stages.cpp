// SPDX-License-Identifier: Apache-2.0
#include "backend/cpu/stages.h"

#include <utility>

namespace normjit::backend::cpu {

Stages::Stages(Machine& machine, RowLoops& loops, int64_t steps, std::vector<Reduction> reductions)
    : m_(machine), loops_(loops), steps_(steps), reductions_(std::move(reductions)) {
    for (size_t k = 0; steps > 0 && k < reductions_.size(); ++k)
        if (reductions_[k] == Reduction::sum) sums_.push_back(k);
}

void Stages::begin(const Sums& zeros) {
    if (sums_.empty()) return;
    loops_.find_sums();
    for (const size_t k : sums_) m_.write(loops_.total_of_stages(k), m_.value_of(zeros[0][k][0]));
}

std::optional<RowLoops::Stage> Stages::of(const Sums& sums, const Registers& registers) {
    if (sums_.empty()) return std::nullopt;
    return RowLoops::Stage{steps_, [this, &sums, &registers] { end_stage(sums, registers); }};
}

void Stages::end_stage(const Sums& sums, Registers registers) {
    const std::vector<Accumulator> folded = one_of_each(m_, sums, reductions_);
    for (const size_t k : sums_) {
        loops_.find_sums();
        const Vector error = add_with_error(m_, loops_.total_of_stages(k), m_.value_of(folded[k]), registers);
        for (const auto& of_unit : sums) zero(m_, of_unit[k]);
        m_.set(folded[k], error);
    }
}

void Stages::finish(const std::vector<Accumulator>& sums) {
    if (sums_.empty()) return;
    loops_.find_sums();
    for (const size_t k : sums_) m_.add(sums[k], loops_.total_of_stages(k));
}

void Stages::begin_kept() {
    Registers registers = m_.registers();
    std::vector<Accumulator> empty;
    for (const Reduction reduction : reductions_)
        cpu::begin(m_, empty.emplace_back(m_.accumulator(registers)), reduction);
    loops_.for_each_kept_row([&] {
        for (size_t k = 0; k < empty.size(); ++k) m_.write(loops_.kept_sum(k), m_.value_of(empty[k]));
        for (const size_t k : sums_) m_.write(loops_.total_of_stages(k), m_.value_of(empty[k]));
    });
}

std::optional<RowLoops::Stage> Stages::of_kept() {
    if (sums_.empty()) return std::nullopt;
    return RowLoops::Stage{steps_, [this] { end_kept_stage(); }};
}

void Stages::end_kept_stage() {
    loops_.for_each_kept_row([&] {
        for (const size_t k : sums_) {
            Registers registers = m_.registers();
            const Vector sum = m_.read(registers.take(), loops_.kept_sum(k));
            m_.write(loops_.kept_sum(k), add_with_error(m_, loops_.total_of_stages(k), sum, registers));
        }
    });
}

void Stages::finish_kept() {
    if (sums_.empty()) return;
    loops_.for_each_kept_row([&] {
        for (const size_t k : sums_) {
            Registers registers = m_.registers();
            const Accumulator sum = m_.accumulator(registers);
            m_.set(sum, m_.read(m_.value_of(sum), loops_.kept_sum(k)));
            m_.add(sum, loops_.total_of_stages(k));
            m_.write(loops_.kept_sum(k), m_.value_of(sum));
        }
    });
}

}  // namespace normjit::backend::cpu
