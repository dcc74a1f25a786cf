// SPDX-License-Identifier: Apache-2.0
// Groups of P::group adjacent columns of a row, in each of which group_max() finds the largest value. Adjacent lanes
// hold a group, one vector each. A row, a warp and a step of a team contain only whole groups.
#pragma once
#include "memory.cuh"
#include "plan.cuh"

namespace normjit {

// Gives each of `lanes` adjacent lanes (a power of two) the largest of their values. No other lanes need to take part.
template <int lanes, class Math>
NORMJIT_DEVICE Math largest_of_lanes(Math value) {
    const uint32 first = threadIdx.x % 32 & ~(lanes - 1), mask = ~0u >> (32 - lanes) << first;
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2)
        value = larger(value, __shfl_xor_sync(mask, value, distance));
    return value;
}

// True if output i has an element for each group.
template <class P, int i>
constexpr bool is_of_groups = P::grouped_outputs >> i & 1;

// The values of a group that its elements read: the group that contains this lane's vector.
template <class P>
struct GroupValues {
    using Math = typename P::Math;
    static constexpr int width = P::vector_width, lanes = P::group > width ? P::group / width : 1;
    static_assert(P::group % width == 0 && lanes <= 32 && P::threads_per_row % lanes == 0);
    static_assert(P::cols % at_least(P::group, 1) == 0);

    ValuesOf<P> found;

    // Calls operands(e, values), which fills values.group, for each element e of the vector.
    template <class F>
    __device__ __forceinline__ void find(const typename P::Row& row, const F& operands) {
        Math largest[at_least(P::group_maxima, 1)];
#pragma unroll
        for (int e = 0; e < width; e++) {
            ValuesOf<P> values;
            operands(e, values);
#pragma unroll
            for (int k = 0; k < P::group_maxima; k++)
                largest[k] = e == 0 ? values.group[k] : larger(largest[k], values.group[k]);
        }
#pragma unroll
        for (int k = 0; k < P::group_maxima; k++) found.group[k] = largest_of_lanes<lanes>(largest[k]);
        P::of_group(row, found);
    }
    __device__ __forceinline__ void give(ValuesOf<P>& values) const {
#pragma unroll
        for (int k = 0; k < P::group_values; k++) values.group[k] = found.group[k];
    }
};

// Stores the group's element of an output whose row starts at `row`, on the lane that holds the first column of the
// group.
template <class P, class T>
NORMJIT_DEVICE void store_of_group(void* row, int column, typename P::Math value) {
    if (column % P::group == 0) store_scalar<T>(row, column / P::group, value);
}

}  // namespace normjit
