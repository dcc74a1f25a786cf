// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace normjit::bench {
namespace {

constexpr int64_t line = 64;
constexpr int64_t pieces_per_thread = 8;
constexpr int64_t smallest_piece = 256;  // steps: 16 KiB of the narrowest matrix

/// A thread's share: `steps` steps, in each of which matrix i advances by lines[i] cache lines.
struct Share {
    static constexpr int most_reads = 3, most_writes = 2;
    const char* reads[most_reads] = {};
    int64_t read_lines[most_reads] = {};
    int read_count = 0;
    char* writes[most_writes] = {};
    int64_t write_lines[most_writes] = {};
    int write_count = 0;
    int64_t steps = 0;
};

#if defined(__x86_64__)

constexpr int64_t prefetch_bytes = 2048;

template <bool past_caches>
[[gnu::target("avx512f"), gnu::always_inline]] inline void store(char* to, __m512i value) {
    if constexpr (past_caches) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value);
    } else {
        _mm512_storeu_si512(to, value);
    }
}

template <bool past_caches>
[[gnu::target("avx512f"), gnu::always_inline]] inline void finish(__m512i sum) {
    if constexpr (past_caches) _mm_sfence();
    volatile int keep = _mm512_test_epi32_mask(sum, sum);  // without a use the reads would be removed
    static_cast<void>(keep);
}

/// A pass over matrices of one type.
template <bool past_caches, bool prefetch, int reads, bool writes>
[[gnu::target("avx512f")]] void pass_equal(const Share& share) {
    const int64_t end = share.steps * line;
    __m512i sum = _mm512_setzero_si512();
    auto step = [&](int64_t i) __attribute__((target("avx512f"), always_inline)) {
        __m512i value = _mm512_loadu_si512(share.reads[0] + i);
        if constexpr (prefetch) _mm_prefetch(share.reads[0] + i + prefetch_bytes, _MM_HINT_T0);
        for (int read = 1; read < reads; ++read) {
            value = _mm512_xor_si512(value, _mm512_loadu_si512(share.reads[read] + i));
            if constexpr (prefetch) _mm_prefetch(share.reads[read] + i + prefetch_bytes, _MM_HINT_T0);
        }
        if constexpr (writes) {
            store<past_caches>(share.writes[0] + i, value);
        } else {
            sum = _mm512_xor_si512(sum, value);
        }
    };
    int64_t i = 0;
    for (; i + 4 * line <= end; i += 4 * line) {
        step(i);
        step(i + line);
        step(i + 2 * line);
        step(i + 3 * line);
    }
    for (; i < end; i += line) step(i);
    finish<past_caches>(sum);
}

/// A pass over matrices of different types.
template <bool past_caches, bool prefetch>
[[gnu::target("avx512f")]] void pass_any(const Share& share) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t step = 0; step < share.steps; ++step) {
        for (int read = 0; read < share.read_count; ++read) {
            const char* from = share.reads[read] + step * share.read_lines[read] * line;
            for (int64_t i = 0; i < share.read_lines[read] * line; i += line) {
                if constexpr (prefetch) _mm_prefetch(from + i + prefetch_bytes, _MM_HINT_T0);
                sum = _mm512_xor_si512(sum, _mm512_loadu_si512(from + i));
            }
        }
        for (int write = 0; write < share.write_count; ++write) {
            const int64_t lines = share.write_lines[write];
            for (int64_t i = 0; i < lines; ++i)
                store<past_caches>(share.writes[write] + (step * lines + i) * line, sum);
        }
    }
    finish<past_caches>(sum);
}

bool all_equal(const Share& share) {
    const auto* end = share.read_lines + share.read_count;
    return (share.write_count == 0 || (share.write_count == 1 && share.write_lines[0] == 1)) &&
           std::all_of(share.read_lines, end, [](int64_t lines) { return lines == 1; });
}

template <bool past_caches, bool prefetch>
void pass(const Share& share) {
    if (!all_equal(share)) return pass_any<past_caches, prefetch>(share);
    switch (share.read_count * 2 + share.write_count) {
        case 5:
            return pass_equal<past_caches, prefetch, 2, true>(share);
        case 7:
            return pass_equal<past_caches, prefetch, 3, true>(share);
        case 4:
            return pass_equal<past_caches, prefetch, 2, false>(share);
        case 3:
            return pass_equal<past_caches, prefetch, 1, true>(share);
        default:
            return pass_any<past_caches, prefetch>(share);
    }
}

void pass(const Share& share, const StreamMethod& method) {
    if (method.past_caches) {
        method.prefetch ? pass<true, true>(share) : pass<true, false>(share);
    } else {
        method.prefetch ? pass<false, true>(share) : pass<false, false>(share);
    }
}

bool has_avx512() { return __builtin_cpu_supports("avx512f") != 0; }

#else

void pass(const Share&, const StreamMethod&) {}
bool has_avx512() { return false; }

#endif

/// Returns the share of steps [begin, end), each of which advances the narrowest matrix by one line.
Share share_of(const Traffic& traffic, int64_t narrowest, int64_t begin, int64_t end) {
    Share share;
    share.steps = end - begin;
    for (const Traffic::Read& read : traffic.reads) {
        if (share.read_count == Share::most_reads) break;
        int64_t lines = read.bytes / narrowest;
        share.reads[share.read_count] = static_cast<const char*>(read.data) + begin * lines * line;
        share.read_lines[share.read_count++] = lines;
    }
    for (const Traffic::Write& write : traffic.writes) {
        if (share.write_count == Share::most_writes) break;
        const int64_t lines = write.bytes / narrowest;
        share.writes[share.write_count] = static_cast<char*>(write.data) + begin * lines * line;
        share.write_lines[share.write_count++] = lines;
    }
    return share;
}

}  // namespace

int64_t Traffic::bytes() const {
    int64_t sum = 0;
    for (const Read& read : reads) sum += read.bytes;
    for (const Write& write : writes) sum += write.bytes;
    return sum;
}

const std::vector<StreamMethod>& stream_methods() {
    static const std::vector<StreamMethod> methods = {
        {"stores", false, false, false},
        {"stores, prefetch", false, true, false},
        {"non-temporal stores", true, false, false},
        {"non-temporal stores, prefetch", true, true, false},
        {"stores, one thread", false, false, true},
        {"stores, prefetch, one thread", false, true, true},
    };
    static const std::vector<StreamMethod> none;
    return has_avx512() ? methods : none;
}

void stream(Team& team, const Traffic& traffic, const StreamMethod& method) {
    int64_t narrowest = traffic.reads[0].bytes;
    for (const Traffic::Read& read : traffic.reads) narrowest = std::min(narrowest, read.bytes);
    for (const Traffic::Write& write : traffic.writes) narrowest = std::min(narrowest, write.bytes);
    // The last partial line is omitted: at most 63 bytes of the narrowest matrix.
    const int64_t steps = narrowest / line;
    if (method.one_thread) return pass(share_of(traffic, narrowest, 0, steps), method);
    // Free threads take the next piece, as in the kernel, so that an interrupted thread delays nobody.
    const int64_t piece = std::max<int64_t>(steps / (team.size() * pieces_per_thread), smallest_piece);
    std::atomic<int64_t> next = 0;
    team.run([&](int) {
        for (;;) {
            int64_t begin = next.fetch_add(piece, std::memory_order_relaxed);
            if (begin >= steps) return;
            pass(share_of(traffic, narrowest, begin, std::min(begin + piece, steps)), method);
        }
    });
}

}  // namespace normjit::bench
