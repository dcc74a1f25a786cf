// SPDX-License-Identifier: Apache-2.0
// Loads, stores and asynchronous copies of `bytes` consecutive bytes (2, 4, 8 or a multiple of 16, naturally aligned).
#pragma once
#include "types.cuh"

namespace normjit {

// Read once: keep the line out of L1. Not ld.global.nc, because the output may alias an input.
template <int bytes>
NORMJIT_DEVICE void load(const void* from, uint32* words) {
    if constexpr (bytes == 2) {
        unsigned short half;
        asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(half) : "l"(from));
        words[0] = half;
    } else if constexpr (bytes == 4) {
        asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(words[0]) : "l"(from));
    } else if constexpr (bytes == 8) {
        asm volatile("ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++)
            asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[4 * i]), "=r"(words[4 * i + 1]), "=r"(words[4 * i + 2]), "=r"(words[4 * i + 3])
                         : "l"((const char*)from + 16 * i));
    }
}

// Outputs are written once and not read again here: first to leave L2. Partials are read back by the final reduce: `near`.
template <int bytes, bool near = false>
NORMJIT_DEVICE void store(void* to, const uint32* words) {
    if constexpr (bytes == 2) {
        asm volatile("st.global.cs.u16 [%0], %1;" ::"l"(to), "h"((unsigned short)words[0]));
    } else if constexpr (bytes == 4) {
        if constexpr (near) asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(words[0]));
        else asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(words[0]));
    } else if constexpr (bytes == 8) {
        if constexpr (near) asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]));
        else asm volatile("st.global.cs.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1]));
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            char* at = (char*)to + 16 * i;
            const uint32 w0 = words[4 * i], w1 = words[4 * i + 1], w2 = words[4 * i + 2], w3 = words[4 * i + 3];
            if constexpr (near) asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w0), "r"(w1), "r"(w2), "r"(w3));
            else asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w0), "r"(w1), "r"(w2), "r"(w3));
        }
    }
}

template <int bytes>
NORMJIT_DEVICE void load_shared(const char* from, uint32* words) {
    if constexpr (bytes == 4) {
        words[0] = *(const uint32*)from;
    } else if constexpr (bytes == 8) {
        const uint2 pair = *(const uint2*)from;
        words[0] = pair.x, words[1] = pair.y;
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++) {
            const uint4 four = *(const uint4*)(from + 16 * i);
            words[4 * i] = four.x, words[4 * i + 1] = four.y, words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
        }
    }
}

template <class T, class Math>
NORMJIT_DEVICE Math load_scalar(const void* base, int64 index) {
    uint32 words[2];
    Math value[1];
    load<int(sizeof(T))>((const T*)base + index, words);
    unpack<T, 1>(words, value);
    return value[0];
}

template <class T, class Math>
NORMJIT_DEVICE void store_scalar(void* base, int64 index, Math value) {
    uint32 words[2];
    const Math values[1] = {value};
    pack<T, 1>(values, words);
    store<int(sizeof(T))>((T*)base + index, words);
}

NORMJIT_DEVICE uint32 shared_address(const void* pointer) { return uint32(__cvta_generic_to_shared(pointer)); }

// cp.async: every thread copies what it will itself read, so waiting for its own groups is enough.
template <int bytes>
NORMJIT_DEVICE void copy_async(char* to, const char* from) {
    if constexpr (bytes < 16) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(bytes) : "memory");
    } else {
#pragma unroll
        for (int i = 0; i < bytes / 16; i++)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + 16 * i)), "l"(from + 16 * i)
                         : "memory");
    }
}
NORMJIT_DEVICE void commit_async() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
NORMJIT_DEVICE void wait_async() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

// mbarrier, and the bulk copy (sm_90) that completes on it: one thread moves a whole row segment, 16-byte granular.
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
        "@!done bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}
NORMJIT_DEVICE void copy_bulk(uint32 to, const void* from, int bytes, uint32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier) : "memory");
}

// Thread-block clusters (sm_90).
NORMJIT_DEVICE uint32 cluster_rank() {
    uint32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
NORMJIT_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
NORMJIT_DEVICE uint32 remote_address(uint32 address, uint32 rank) {
    uint32 remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    return remote;
}
// Data and its arrival signal in one message, so that a row costs one trip between blocks and no cluster barrier.
NORMJIT_DEVICE void store_remote(uint32 to, float value, uint32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
                 "r"(__float_as_uint(value)), "r"(barrier) : "memory");
}
NORMJIT_DEVICE void store_remote(uint32 to, double value, uint32 barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
                 "l"(__double_as_longlong(value)), "r"(barrier) : "memory");
}

// Programmatic dependent launch (sm_90): let the next kernel's blocks start early; wait until all earlier kernels' writes are visible.
NORMJIT_DEVICE void allow_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
NORMJIT_DEVICE void wait_for_predecessors() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace normjit
