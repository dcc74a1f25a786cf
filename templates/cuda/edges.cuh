// SPDX-License-Identifier: Apache-2.0
// Rows whose length is not a multiple of a vector may start anywhere in a vector. A team takes only rows that start at
// the same position (`shift` elements into their first vector), so all its loads and stores are aligned and a lane
// keeps its columns. Only the vectors at the ends of a row are partly outside the row. `first` is the column of a
// vector's first element, from 1 - width to cols - 1.
#pragma once
#include "memory.cuh"

namespace normjit {

// Returns a bit for each element of a vector that is inside the row. One instruction turns the bits into predicates.
template <int width, int cols>
NORMJIT_DEVICE uint32 inside(int first) {
    const int before = first < 0 ? -first : 0, left = cols - first < width ? cols - first : width;
    return ((1u << left) - 1) & (~0u << before);
}

template <int width>
constexpr uint32 inside_all = (1u << width) - 1;

// Loads columns once per kernel, element by element because they are not aligned. Elements outside the row are zero.
template <class T, int width, int cols>
NORMJIT_DEVICE void load_inside(const char* from, int first, uint32* words) {
    constexpr int size = sizeof(T);
#pragma unroll
    for (int w = 0; w < words_of<T, width>; w++) words[w] = 0;
#pragma unroll
    for (int e = 0; e < width; e++) {
        uint32 element[2] = {};
        if (inside<width, cols>(first) >> e & 1) load<size, true>(from + e * size, element);
        words[e * size / 4] |= element[0] << (e * size % 4 * 8);
        if constexpr (size == 8) words[2 * e + 1] = element[1];
    }
}

// Loads a vector of columns from a tensor with one element for each `run` columns. `from` is the tensor's first
// element.
template <class T, class Math, int width, int run, int cols>
NORMJIT_DEVICE void load_runs(const void* from, int first, uint32* words) {
    constexpr bool in_one_run = run % width == 0 && cols % width == 0;
    Math values[width];
#pragma unroll
    for (int e = 0; e < width; e++) {
        const int column = first + e, inside = column < 0 ? 0 : column < cols ? column : cols - 1;
        values[e] = in_one_run && e > 0 ? values[0] : load_scalar<T, Math>(from, uint32(inside) / run);
    }
    pack<T, width>(values, words);
}

// Reads nothing after the row. Elements that it reads before the row belong to the previous row.
template <class T, int width, int cols>
NORMJIT_DEVICE void copy_async_inside(uint32 to, const char* from, int first) {
    static_assert(bytes_of<T, width> == 16);
    const int left = cols - first;
    const int bytes = (left < width ? left : width) * bytes_of<T>;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

template <class T, int width>
NORMJIT_DEVICE void store_inside(char* to, uint32 in, const uint32* words) {
    constexpr int size = sizeof(T);
    if (in == inside_all<width>) return store<width * size>(to, words);
#pragma unroll
    for (int e = 0; e < width; e++) {
        const uint32 element[2] = {words[e * size / 4] >> (e * size % 4 * 8), words[e * size / 4 + (size == 8)]};
        if (in >> e & 1) store<size>(to + e * size, element);
    }
}

}  // namespace normjit
