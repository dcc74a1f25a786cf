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
constexpr int64_t smallest_piece = 256;  // steps, which are 16 KiB of the narrowest matrix

/// The share of a thread: `steps` steps, each of which advances matrix i by lines[i] cache lines.
struct Share {
    static constexpr int most_reads = 8, most_writes = 8;
    const char* reads[most_reads] = {};
    int64_t read_lines[most_reads] = {};
    int read_count = 0;
    char* writes[most_writes] = {};
    int64_t write_lines[most_writes] = {};
    int write_count = 0;
    int64_t steps = 0;
};

/// A cache line of data, at any address.
using Line [[gnu::vector_size(line), gnu::aligned(1), gnu::may_alias]] = int64_t;

constexpr int64_t prefetch_bytes = 2048;

bool all_equal(const Share& share) {
    const auto* end = share.read_lines + share.read_count;
    return (share.write_count == 0 || (share.write_count == 1 && share.write_lines[0] == 1)) &&
           std::all_of(share.read_lines, end, [](int64_t lines) { return lines == 1; });
}

#if defined(__x86_64__)

namespace avx512 {
#define NORMJIT_STREAM_TARGET gnu::target("avx512f")
[[NORMJIT_STREAM_TARGET, gnu::always_inline]] inline void store_past_caches(char* to, const Line& value) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(&value));
}
#include "stream_pass.inc"
#undef NORMJIT_STREAM_TARGET
}  // namespace avx512

namespace avx {
#define NORMJIT_STREAM_TARGET gnu::target("avx")
[[NORMJIT_STREAM_TARGET, gnu::always_inline]] inline void store_past_caches(char* to, const Line& value) {
    const auto* halves = reinterpret_cast<const __m256i*>(&value);
    for (int i = 0; i < 2; ++i) _mm256_stream_si256(reinterpret_cast<__m256i*>(to) + i, _mm256_loadu_si256(halves + i));
}
#include "stream_pass.inc"
#undef NORMJIT_STREAM_TARGET
}  // namespace avx

#endif

namespace baseline {
#define NORMJIT_STREAM_TARGET gnu::unused
[[gnu::always_inline]] inline void store_past_caches(char* to, const Line& value) {
#if defined(__x86_64__)
    const auto* quarters = reinterpret_cast<const __m128i*>(&value);
    for (int i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, _mm_loadu_si128(quarters + i));
#else
    *reinterpret_cast<Line*>(to) = value;  // never called: stream_methods() lists no such method here
#endif
}
#include "stream_pass.inc"
#undef NORMJIT_STREAM_TARGET
}  // namespace baseline

using Pass = void (*)(const Share&, const StreamMethod&);

Pass fastest_pass() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") != 0) return avx512::pass;
    if (__builtin_cpu_supports("avx") != 0) return avx::pass;
#endif
    return baseline::pass;
}

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
#if defined(__x86_64__)
        {"non-temporal stores", true, false, false},
        {"non-temporal stores, prefetch", true, true, false},
#endif
        {"stores, one thread", false, false, true},
        {"stores, prefetch, one thread", false, true, true},
    };
    return methods;
}

void stream(Team& team, const Traffic& traffic, const StreamMethod& method) {
    int64_t narrowest = traffic.reads[0].bytes;
    for (const Traffic::Read& read : traffic.reads) narrowest = std::min(narrowest, read.bytes);
    for (const Traffic::Write& write : traffic.writes) narrowest = std::min(narrowest, write.bytes);
    // The last partial line, at most 63 bytes of the narrowest matrix, is omitted.
    const int64_t steps = narrowest / line;
    static const Pass pass = fastest_pass();
    if (method.one_thread) return pass(share_of(traffic, narrowest, 0, steps), method);
    // Threads that are free take the next piece, as in the kernel, so that an interrupted thread does not delay the
    // others.
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
