// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/runs.h"

#include "backend/portable/convert.h"
#include "support/default_settings.h"

#include <algorithm>
#include <array>

namespace normjit::cpu {

namespace {

template <class Element>
void spread(const void* from, int64_t run, int64_t cols, void* to) {
    auto* elements = static_cast<Element*>(to);
    for (int64_t i = 0; i < cols / run; ++i)
        elements = std::fill_n(elements, run, backend::portable::element<Element>(from, i));
}

/// Adds to as many independent sums as fill a vector, so that compilers use vector instructions.
template <class T>
T sum(const T* from, int64_t count) {
    std::array<T, 16> sums{};
    const auto lanes = static_cast<int64_t>(sums.size());
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
        for (int64_t lane = 0; lane < lanes; ++lane) sums[static_cast<size_t>(lane)] += from[i + lane];
    }
    for (int64_t lane = 0; i < count; ++lane, ++i) sums[static_cast<size_t>(lane)] += from[i];
    for (size_t half = sums.size() / 2; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    return sums[0];
}

template <class T>
void sum_runs_of(const Operand& output, const T* sums, int64_t begin, int64_t end, void* to) {
    const int64_t run = output.axes.run;
    for (int64_t column = begin; column < end; column += run) {
        const T total = sum(sums + (column - begin), run);
        backend::portable::store(to, column / run, 1, &total, output.dtype);
    }
}

}  // namespace

void spread_runs(const Operand& input, const void* from, int64_t cols, void* to) {
    switch (input.bytes()) {
        case 2: return spread<uint16_t>(from, input.axes.run, cols, to);
        case 4: return spread<uint32_t>(from, input.axes.run, cols, to);
        default: return spread<uint64_t>(from, input.axes.run, cols, to);
    }
}

void sum_runs(const Operand& output, DType compute, const void* sums, int64_t begin, int64_t end, void* to) {
    const DefaultSettings settings;  // the mode of a pool thread may differ from the caller's
    if (compute == DType::f64) return sum_runs_of(output, static_cast<const double*>(sums), begin, end, to);
    sum_runs_of(output, static_cast<const float*>(sums), begin, end, to);
}

}  // namespace normjit::cpu
