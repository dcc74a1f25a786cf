// SPDX-License-Identifier: Apache-2.0
// How a team of RowKernel gets its data: first the columns, once, and then row after row, requested into registers or
// shared memory before it is needed. Included by row_kernel.cuh, after the class.
#pragma once

namespace normjit {

template <class P>
template <int i>
__device__ __forceinline__ void RowKernel<P>::load_column(int v, uint32* to) const {
    using T = typename Columns::template type<i>;
    constexpr int place = At::columns + i;
    const int64 before = P::columns_per_slice >> i & 1 ? slice * a.slice_stride[place] : 0;
    if constexpr (P::column_runs[i] > 1)
        return load_runs<T, Math, width, P::column_runs[i], P::cols>((const T*)a.operand[place].data + before,
                                                                     column_of(v), to);
    const char* from = (const char*)a.operand[place].data + (before + column_of(v)) * bytes_of<T>;
    if constexpr (L::shifted)
        load_inside<T, width, P::cols>(from, column_of(v), to);
    else if constexpr (P::column_memory == Memory::global)
        load_constant<bytes_of<T, width>>(from, to);
    else
        load<bytes_of<T, width>, true>(from, to);
}

template <class P>
__device__ __forceinline__ void RowKernel<P>::load_columns() {
    unroll<0, columns>([&](auto i) {
        using T = typename Columns::template type<i.value>;
        constexpr int at = Columns::template words_before<width, i.value>(), bytes = bytes_of<T, width>;
#pragma unroll
        for (int v = 0; v < steps; v++) {
            if (!valid(v)) continue;
            uint32 words[words_of<T, width>];
            load_column<i.value>(v, columns_shared ? words : column_raw[v] + at);
            if constexpr (columns_shared) store_shared<at_least(bytes, 4)>(column_slot<i.value>(v), words);
        }
    });
    if constexpr (columns_shared) __syncthreads();
}

// Requests row inputs together with their rows. A queue in registers would wait for the newest value each time it moves
// on.
template <class P>
__device__ __forceinline__ void RowKernel<P>::request_inputs(int place) {
    unroll<0, P::Rows::count>([&](auto i) {
        using T = typename P::Rows::template type<i.value>;
        if constexpr (!L::staged) {
            inputs[place].value[i.value] = load_scalar<T, Math>(next_input[i.value], 0);
        } else if (lane % 32 == 0) {
            if constexpr (sizeof(T) >= 4)
                copy_async<bytes_of<T>>(input_slot(place, i.value), next_input[i.value]);
            else
                write_shared(input_slot(place, i.value), load_scalar<T, float>(next_input[i.value], 0));
        }
        if constexpr (!is_scalar_input<P, i.value>) next_input[i.value] += row_step * bytes_of<T>;
    });
    if constexpr (passes_slices && P::Rows::count > 0) {
        if (enters_slice(input_in_slice))
            unroll<0, P::Rows::count - P::scalar_inputs>([&](auto i) {
                next_input[i.value] += slice_gap(of_rows) * bytes_of<typename P::Rows::template type<i.value>>;
            });
    }
}

template <class P>
__device__ __forceinline__ void RowKernel<P>::read_inputs(int stage) {
    unroll<0, P::Rows::count>([&](auto i) {
        using T = typename P::Rows::template type<i.value>;
        if constexpr (sizeof(T) == 8)
            inputs[0].value[i.value] = Math(read_shared<double>(input_slot(stage, i.value)));
        else
            inputs[0].value[i.value] = read_shared<float>(input_slot(stage, i.value));
    });
}

// Requests the next row of this team. `place` is its stage in shared memory, or its slot in `raw`.
template <class P>
__device__ __forceinline__ void RowKernel<P>::request(int place) {
    // Wide rows arrive sooner through L1 if gamma is read through it each time; narrow rows arrive later (NOTES N-307).
    constexpr bool by_l1 = P::column_memory == Memory::global;
    if constexpr (reread) {
        unroll<0, matrices>([&](auto i) { in_hand[i.value] = next[i.value]; });
    } else if constexpr (P::staging == Staging::bulk) {
        if (lane == 0) {
            const uint32 barrier = stage_barrier(place);
            barrier_expect(barrier, my_vectors * width * Matrices::element_bytes);
            unroll<0, matrices>([&](auto i) {
                constexpr int size = sizeof(typename Matrices::template type<i.value>);
                copy_bulk(slot<i.value>(place, 0), next[i.value], my_vectors * width * size, barrier);
            });
        }
    } else {
        unroll<0, matrices>([&](auto i) {
            using T = typename Matrices::template type<i.value>;
            constexpr int bytes = bytes_of<T, width>;
            constexpr int at = Matrices::template words_before<width, i.value>();
            constexpr bool of_all_slices =
                P::matrices_shared >> i.value & 1;  // other rows of the block may have loaded it into L1
#pragma unroll
            for (int v = 0; v < steps; v++) {
                if (!valid(v)) continue;
                const char* from = next[i.value] + v * L::lanes * bytes;
                if constexpr (L::shifted) {
                    if (is_inner(v))
                        copy_async<bytes, of_all_slices>(slot<i.value>(place, v), from);
                    else
                        copy_async_inside<T, width, P::cols>(slot<i.value>(place, v), from, column_of(v));
                } else if constexpr (L::staged)
                    copy_async<bytes, of_all_slices>(slot<i.value>(place, v), from);
                else
                    load_matrix<bytes, by_l1 || of_all_slices>(from, raw[place][v] + at);
            }
        });
    }
    unroll<0, matrices>([&](auto i) { next[i.value] += next_step[i.value]; });
    if constexpr (passes_slices) {
        if (enters_slice(next_in_slice))
            unroll<0, matrices>([&](auto i) {
                using T = typename Matrices::template type<i.value>;
                next[i.value] += slice_gap(At::matrices + i.value) * int64(sizeof(T));
            });
    }
}

// Returns the words of matrix i that the sweep needs: from the current row, from its stage, or from L1 or memory.
template <class P>
template <int i, int level>
__device__ __forceinline__ void RowKernel<P>::fetch(int place, int v, Math (&out)[width]) {
    using T = typename Matrices::template type<i>;
    constexpr int at = Matrices::template words_before<width, i>();
    if constexpr (reread) {
        if constexpr ((P::matrices_read[level] >> i & 1) == 0) return;
        uint32 words[words_of<T, width>];
        load_matrix<bytes_of<T, width>, true>(in_hand[i] + v * L::lanes * bytes_of<T, width>, words);
        unpack<T, width>(words, out);
    } else if constexpr (!L::staged) {
        unpack<T, width>(raw[place][v] + at, out);
    } else if constexpr (keep) {
        if constexpr (level == 0) load_shared<bytes_of<T, width>>(slot<i>(place, v), kept[v] + at);
        unpack<T, width>(kept[v] + at, out);
    } else {
        uint32 words[words_of<T, width>];
        load_shared<bytes_of<T, width>>(slot<i>(place, v), words);
        unpack<T, width>(words, out);
    }
}

template <class P>
template <int i, int level>
__device__ __forceinline__ void RowKernel<P>::fetch_column(int v, Math (&out)[width]) const {
    using T = typename Columns::template type<i>;
    if constexpr (P::column_memory == Memory::global) {
        if constexpr ((P::columns_read[level] >> i & 1) == 0) return;
        uint32 words[words_of<T, width>];
        load_column<i>(v, words);
        unpack<T, width>(words, out);
    } else if constexpr (columns_shared) {
        uint32 words[words_of<T, width>];
        load_shared<bytes_of<T, width>>(column_slot<i>(v), words);
        unpack<T, width>(words, out);
    } else {
        unpack<T, width>(column_raw[v] + Columns::template words_before<width, i>(), out);
    }
}

}  // namespace normjit
