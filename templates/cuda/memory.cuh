// SPDX-License-Identifier: Apache-2.0
// Loads, stores and asynchronous copies of `bytes` consecutive bytes (1, 2, 4, 8 or a multiple of 16, naturally aligned).
#pragma once
#include "types.cuh"

namespace normjit {

// Loads from global memory, by L1 if `by_l1`. ld.global.nc is not possible, because an output may be the memory of an
// input.
#define NORMJIT_LOAD(by_l1, what, ...)                 \
    if constexpr (by_l1)                               \
        asm volatile("ld.global." what : __VA_ARGS__); \
    else                                               \
        asm volatile("ld.global.L1::no_allocate." what : __VA_ARGS__)

// Loads elements. Matrices are read once, so they bypass L1. Data that several warps read again (row values, columns) is
// `cached` (NOTES N-304).
template <int bytes, bool cached = false>
NORMJIT_DEVICE void load(const void* from, uint32* words) {
    if constexpr (bytes == 1) {
        NORMJIT_LOAD(cached, "u8 %0, [%1];", "=r"(words[0]) : "l"(from));
    } else if constexpr (bytes == 2) {
        unsigned short half;
        NORMJIT_LOAD(cached, "u16 %0, [%1];", "=h"(half) : "l"(from));
        words[0] = half;
    } else if constexpr (bytes == 4) {
        NORMJIT_LOAD(cached, "u32 %0, [%1];", "=r"(words[0]) : "l"(from));
    } else if constexpr (bytes == 8) {
        NORMJIT_LOAD(cached, "v2.u32 {%0, %1}, [%2];", "=r"(words[0]), "=r"(words[1]) : "l"(from));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            uint32* w = words + 4 * i;
            NORMJIT_LOAD(cached, "v4.u32 {%0, %1, %2, %3}, [%4];", "=r"(w[0]), "=r"(w[1]), "=r"(w[2]),
                         "=r"(w[3]) : "l"((const char*)from + 16 * i));
        }
    }
}

// Returns the L2 policy for reading a matrix. The lines that are written then leave L2 soon after (NOTES N-312).
NORMJIT_DEVICE unsigned long long stays_in_l2() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Loads elements of a matrix; through L1 if several warps or several sweeps read them.
template <int bytes, bool by_l1>
NORMJIT_DEVICE void load_matrix(const void* from, uint32* words) {
    if constexpr (bytes < 16) return load<bytes, by_l1>(from, words);
#pragma unroll
    for (int i = 0; i < bytes / 16; i++) {
        uint32* w = words + 4 * i;
        NORMJIT_LOAD(by_l1, "L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;", "=r"(w[0]), "=r"(w[1]), "=r"(w[2]),
                     "=r"(w[3]) : "l"((const char*)from + 16 * i), "l"(stays_in_l2()));
    }
}
#undef NORMJIT_LOAD

// Loads data that no launch writes. The asm is not volatile, so that the compiler may move such loads before earlier
// stores.
template <int bytes>
NORMJIT_DEVICE void load_constant(const void* from, uint32* words) {
    if constexpr (bytes == 1) {
        asm("ld.global.nc.u8 %0, [%1];" : "=r"(words[0]) : "l"(from));
    } else if constexpr (bytes == 2) {
        unsigned short half;
        asm("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
        words[0] = half;
    } else if constexpr (bytes == 4) {
        asm("ld.global.nc.u32 %0, [%1];" : "=r"(words[0]) : "l"(from));
    } else if constexpr (bytes == 8) {
        asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++)
            asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                : "=r"(words[4 * i]), "=r"(words[4 * i + 1]), "=r"(words[4 * i + 2]), "=r"(words[4 * i + 3])
                : "l"((const char*)from + 16 * i));
    }
}

// Stores normally. A hint that outputs may leave L2 first (st.global.cs) gained nothing (NOTES N-305), and the next
// kernel may find the output in L2.
template <int bytes>
NORMJIT_DEVICE void store(void* to, const uint32* words) {
    if constexpr (bytes == 1) {
        asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(words[0]));
    } else if constexpr (bytes == 2) {
        asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"((unsigned short)words[0]));
    } else if constexpr (bytes == 4) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(words[0]));
    } else if constexpr (bytes == 8) {
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            const uint32* w = words + 4 * i;
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"((char*)to + 16 * i), "r"(w[0]), "r"(w[1]),
                         "r"(w[2]), "r"(w[3]));
        }
    }
}

// Returns the 32-bit offset with which shared memory is addressed; compute it once. With a generic pointer, each access
// would look up the window again (S2UR, about 20 cycles before every load).
NORMJIT_DEVICE uint32 shared_address(const void* pointer) {
    uint32 address;
    asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(uint32(__cvta_generic_to_shared(pointer))));
    return address;
}
// Load and store without asm, because the compiler must be free to move them past the global stores of the sweep.
template <class T>
NORMJIT_DEVICE T* shared_pointer(uint32 address) {
    return (T*)__cvta_shared_to_generic(address);
}

template <int bytes>
NORMJIT_DEVICE void load_shared(uint32 from, uint32* words) {
    if constexpr (bytes == 4) {
        words[0] = *shared_pointer<uint32>(from);
    } else if constexpr (bytes == 8) {
        const uint2 pair = *shared_pointer<uint2>(from);
        words[0] = pair.x, words[1] = pair.y;
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            const uint4 four = *shared_pointer<uint4>(from + 16 * i);
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
    }
}
template <int bytes>
NORMJIT_DEVICE void store_shared(uint32 to, const uint32* words) {
    if constexpr (bytes == 4) {
        *shared_pointer<uint32>(to) = words[0];
    } else if constexpr (bytes == 8) {
        *shared_pointer<uint2>(to) = make_uint2(words[0], words[1]);
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++)
            *shared_pointer<uint4>(to + 16 * i) =
                make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    }
}
template <class T>
NORMJIT_DEVICE T read_shared(uint32 from) {
    uint32 words[words_of<T, 1>];
    T value[1];
    load_shared<bytes_of<T>>(from, words);
    unpack<T, 1>(words, value);
    return value[0];
}
template <class T>
NORMJIT_DEVICE void write_shared(uint32 to, T value) {
    uint32 words[words_of<T, 1>];
    const T values[1] = {value};
    pack<T, 1>(values, words);
    store_shared<bytes_of<T>>(to, words);
}

template <class T, class Math>
NORMJIT_DEVICE Math load_scalar(const void* base, int64 index) {
    uint32 words[2];
    Math value[1];
    load<bytes_of<T>, true>((const T*)base + index, words);
    unpack<T, 1>(words, value);
    return value[0];
}

template <class T, class Math>
NORMJIT_DEVICE void store_one(T* to, Math value) {
    uint32 words[2];
    const Math values[1] = {value};
    pack<T, 1>(values, words);
    store<bytes_of<T>>(to, words);
}
template <class T, class Math>
NORMJIT_DEVICE void store_scalar(void* base, int64 index, Math value) {
    store_one<T>((T*)base + index, value);
}

// Returns an address in shared memory that ptxas cannot take apart. If the address is the sum of a register and a
// uniform register, ptxas 13.0 turns a copy with a policy into an illegal instruction (NOTES N-312).
NORMJIT_DEVICE uint32 not_a_sum(uint32 address) {
    asm("max.u32 %0, %0, 1;" : "+r"(address));
    return address;
}

// Copies with cp.async; with by_l1, through the L1 cache. Every thread copies what it will read itself, so it only has
// to wait for its own groups.
template <int bytes, bool by_l1 = false>
NORMJIT_DEVICE void copy_async(uint32 to, const char* from) {
    if constexpr (bytes < 16) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(bytes) : "memory");
    } else {
        to = not_a_sum(to);
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            if constexpr (by_l1)
                asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to + 16 * i),
                             "l"(from + 16 * i), "l"(stays_in_l2())
                             : "memory");
            else
                asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to + 16 * i),
                             "l"(from + 16 * i), "l"(stays_in_l2())
                             : "memory");
        }
    }
}
NORMJIT_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
NORMJIT_DEVICE void wait_async() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// mbarrier, and the bulk copy (sm_90) that completes on it: one thread moves a whole row segment, in units of 16 bytes.
NORMJIT_DEVICE void barrier_init(uint32 barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
NORMJIT_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

NORMJIT_DEVICE void barrier_expect(uint32 barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
NORMJIT_DEVICE void barrier_wait(uint32 barrier, uint32 parity) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
NORMJIT_DEVICE void copy_bulk(uint32 to, const void* from, int bytes, uint32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "l"(stays_in_l2())
        : "memory");
}

// Orders earlier normal accesses to shared memory before later bulk copies to the same place.
NORMJIT_DEVICE void fence_async_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Thread-block clusters (sm_90).
NORMJIT_DEVICE uint32 cluster_rank() {
    uint32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
NORMJIT_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
NORMJIT_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
NORMJIT_DEVICE void cluster_sync() { cluster_arrive(), cluster_wait(); }
NORMJIT_DEVICE uint32 remote_address(uint32 address, uint32 rank) {
    uint32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}
// Sends data and its arrival signal in one message, so that a row costs one trip between blocks and no cluster barrier.
NORMJIT_DEVICE void store_remote(uint32 to, float value, uint32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(value)), "r"(barrier)
                 : "memory");
}
NORMJIT_DEVICE void store_remote(uint32 to, double value, uint32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
                 "l"(__double_as_longlong(value)), "r"(barrier)
                 : "memory");
}

// Stores consecutive partial sums, in pieces of 16 bytes if the width allows it.
template <int width, class Math>
NORMJIT_DEVICE void store_partial(Math* to, const Math (&value)[width]) {
    constexpr int chunk = width < 16 / bytes_of<Math> ? width : 16 / bytes_of<Math>;
#pragma unroll
    for (int e = 0; e < width; e += chunk) {
        Math part[chunk];
        uint32 words[words_of<Math, chunk>];
#pragma unroll
        for (int k = 0; k < chunk; k++) part[k] = value[e + k];
        pack<Math, chunk>(part, words);
        store<chunk * bytes_of<Math>>(to + e, words);
    }
}

NORMJIT_DEVICE void count_up(uint32* counter) {
    asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
NORMJIT_DEVICE uint32 read_counter(const uint32* counter) {
    uint32 value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter));
    return value;
}

// Programmatic dependent launch (sm_90): lets the blocks of the next kernel start early, and waits until the writes of
// all earlier kernels are visible.
NORMJIT_DEVICE void allow_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
NORMJIT_DEVICE void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace normjit
