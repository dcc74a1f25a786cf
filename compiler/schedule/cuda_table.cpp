// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_table.h"

#include <algorithm>

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

constexpr auto any = Sums::any, one = Sums::one, two = Sums::two;
constexpr auto registers = CudaStaging::registers, async = CudaStaging::async, bulk = CudaStaging::bulk;
constexpr auto nothing = Shared::nothing, rows = Shared::rows, columns = Shared::columns, both = Shared::both;
constexpr int64_t end = INT64_MAX;
constexpr int wide = wide_row_blocks, largest = largest_cluster, fill = fill_384;

constexpr Threads exactly(int number) { return {Threads::Rule::exactly, number}; }
constexpr Threads vectors(int number) { return {Threads::Rule::vectors, number}; }
constexpr Threads within(int number) { return {Threads::Rule::within, number}; }
constexpr Threads even(int number) { return {Threads::Rule::even, number}; }
constexpr Threads even_rows = {Threads::Rule::even_rows, 0}, half = {Threads::Rule::half_even_rows, 0};
constexpr Threads busy = {Threads::Rule::busy, 0};

using When = CudaRow::Condition;
constexpr When always = {"", [](const CudaShape&) { return true; }};
constexpr When full = {"a vector a lane fills its warps", [](const CudaShape& s) { return s.vectors % 32 == 0; }};
constexpr When idle = {"a vector a lane leaves some idle", [](const CudaShape& s) { return s.vectors % 32 != 0; }};
constexpr When of_8 = {"vectors of 8", [](const CudaShape& s) { return s.width >= 8; }};
constexpr When less = {"vectors of less than 8", [](const CudaShape& s) { return s.width < 8; }};
constexpr When gamma = {"gamma wider than the matrices", [](const CudaShape& s) { return s.wide_columns; }};
constexpr When plain = {"gamma as wide as the matrices", [](const CudaShape& s) { return !s.wide_columns; }};
constexpr When clusters_of_8 = {"clusters of 8", [](const CudaShape& s) { return s.most_cluster >= 8; }};
constexpr When no_clusters_of_8 = {"no clusters of 8", [](const CudaShape& s) { return s.most_cluster < 8; }};

bool is_alone_with_wide_gamma(const CudaShape& s) { return s.blocks_of_wide_row() == 1 && s.wide_columns; }
constexpr When gamma_1 = {"gamma wider than the matrices, no cluster", is_alone_with_wide_gamma};
constexpr When not_gamma_1 = {"", [](const CudaShape& s) { return !is_alone_with_wide_gamma(s); }};

bool has_clusters_of_narrow_vectors(const CudaShape& s) { return s.blocks_of_wide_row() > 2 && s.width < 8; }
constexpr When less_4 = {"vectors of less than 8, clusters of 4 or more", has_clusters_of_narrow_vectors};
constexpr When not_less_4 = {"", [](const CudaShape& s) { return !has_clusters_of_narrow_vectors(s); }};

bool fits_384(const CudaShape& s) {
    return count_threads(even_rows, s, {.cluster = s.blocks_of_wide_row(), .vector_width = s.width}) <= 384;
}
constexpr When to_384 = {"384 threads or fewer", fits_384};
constexpr When over_384 = {"more than 384 threads", [](const CudaShape& s) { return !fits_384(s); }};

// Shares of the ceiling, a stream that reads two arrays and writes one, are from the same run: layernorm's / rmsnorm's,
// after the number of bf16 columns; 32768 rows, H200, 2026-11-21. A vector is 8 bf16. Figures after "not" are another
// schedule's.
// clang-format off

// Partials are 3 to 4 % of the traffic at 256 to 1024 columns; the latency that their blocks hide is worth more (NOTES
// N-701).
constexpr CudaRow one_block_rows[] = {
//   vectors      sums when    threads     rows cluster blocks stages staging shared pace  measured
    {{1, 1},      any, always, exactly(1),   64, 1, 3, 2, async,     nothing, {},  ""},
    {{2, 2},      any, always, exactly(2),   64, 1, 3, 2, async,     nothing, {},  ""},
    {{3, 4},      any, always, exactly(4),   64, 1, 3, 2, async,     nothing, {},  ""},
    {{5, 8},      any, always, exactly(8),   32, 1, 3, 2, async,     nothing, {},  "64: 0.91 / 0.93; not registers: 0.86 / 0.87"},
    {{9, 15},     any, always, exactly(8),   16, 1, 3, 2, async,     nothing, {},  "75: 15 % over 16 threads, 90 f16 19 %, 96 5 %"},
    {{16, 16},    any, always, exactly(16),  16, 1, 3, 2, async,     nothing, {},  "128: 0.87 / 0.90; not registers: 0.87 / 0.89"},
    {{17, 24},    any, always, exactly(8),   16, 1, 3, 2, async,     nothing, {},  "160: 15 % over 16 threads, a third idle. 171: - / 2 %"},
    {{25, 32},    two, always, exactly(16),   8, 1, 3, 2, async,     nothing, {},  "256: 0.853; not 32 threads: 0.80"},
    {{25, 32},    one, always, exactly(16),   8, 1, 3, 2, registers, nothing, {},  "256: - / 0.874; not 32 threads: - / 0.84"},
    {{33, 47},    any, always, exactly(16),   8, 1, 3, 2, async,     nothing, {},  "288: 49 % / 27 % over 64 threads, 352: 22 % / 11 %; 283: - / 54 %"},
    {{48, 48},    two, always, exactly(16),   8, 1, 2, 4, async,     nothing, {},  "384: 0.85; not 64 threads, a quarter idle: 0.79"},
    {{48, 48},    one, always, exactly(16),   8, 1, 3, 4, async,     nothing, {},  "384: - / 0.90; not 64 threads: - / 0.84"},
    {{49, 63},    any, always, exactly(32),   4, 1, 3, 2, async,     nothing, {},  "486: 16 % over 64 threads, 431: - / 9 %"},
    {{64, 64},    any, always, exactly(64),   4, 1, 3, 2, async,     nothing, {},  "512: 0.867 / 0.891; not registers: 0.848 / 0.896"},
    {{65, 112},   two, idle,   exactly(32),   1, 1, 4, 4, async,     nothing, {},  "896: 9 % over a vector a thread, 3 % over 3 stages"},
    {{65, 112},   two, full,   vectors(1),    1, 1, 4, 4, async,     nothing, {},  "768: 2 to 6 % over 3 stages, 4 % / 1 % over 128 threads"},
    {{65, 112},   one, always, vectors(1),    1, 1, 4, 4, async,     nothing, {},  "768: 1 % over 128 threads"},
    {{113, 128},  two, idle,   exactly(32),   1, 1, 4, 3, async,     nothing, {},  ""},
    {{113, 128},  two, full,   vectors(1),    1, 1, 4, 3, async,     nothing, {},  "1024: 0.925"},
    {{113, 128},  one, always, vectors(1),    1, 1, 4, 3, async,     nothing, {},  "1024: - / 0.936"},
    {{129, 256},  any, full,   vectors(1),    1, 1, 3, 3, async,     nothing, {4}, "2048: 0.964 / 0.976; not pace=0: 0.943"},
    {{129, 256},  any, idle,   vectors(2),    1, 1, 3, 3, async,     nothing, {4}, "1600, 8192 rows: 10 % / 1 % over a vector a thread"},
    {{257, 287},  any, always, vectors(2),    1, 1, 2, 3, bulk,      nothing, {2}, ""},
    {{288, 288},  any, always, exactly(96),   4, 1, 1, 4, bulk,      columns, {4}, "2304: 0.934 / 0.967; not 2 vectors a thread: 0.893 / 0.937"},
    {{289, 479},  any, always, vectors(2),    1, 1, 2, 3, bulk,      nothing, {2}, ""},
    {{480, 480},  any, always, exactly(160),  2, 1, 1, 4, bulk,      columns, {4}, ""},
    {{481, 512},  any, always, vectors(2),    1, 1, 2, 3, bulk,      nothing, {2}, "4096: 0.970 / 0.980; not pace=0: 0.93"},
};

// Shifting costs registers and instructions, so three to six vectors a thread, read twice from shared memory, beat one
// or two in registers. Several rows or blocks to a multiprocessor help as well, because the number of groups must be a
// multiple of the vector's elements: of 14 clusters only 8 could be used. After "not": the figure with the schedule of
// the nearest width that needs no shifting.
constexpr CudaRow shifted_rows[] = {
//   vectors      sums when    threads     rows cluster blocks stages staging shared pace  measured
    {{65, 96},    any, always, exactly(32),   4, 1,       3,    2, async, nothing, {},  "509: 9 % / 13 % over 8 rows, shared"},
    {{97, 192},   any, always, exactly(32),   8, 1,       1,    2, async, rows, {},     "1023: 0.71 / 0.75; not: 0.60 / 0.70"},
    {{193, 255},  any, always, vectors(2),    4, 1,       1,    2, async, rows, {4},    "1867: 4 % over 3 vectors a thread"},
    {{256, 320},  any, always, vectors(3),    4, 1,       1,    2, async, rows, {4},    ""},
    {{321, 768},  any, always, vectors(3),    2, 1,       1,    2, async, rows, {4},    "4097: 0.86 / 0.87; not: 0.71 / 0.82"},
    {{769, 1399}, two, always, vectors(3),    1, 1,       1,    2, async, rows, {2, 2}, "10001: 0.82; not: 0.74"},
    {{1400, 2048},two, no_clusters_of_8,  vectors(3),    1, 1,       1,    2, async, rows, {2, 2}, ""},
    {{1400, 2048},two, clusters_of_8, vectors(3),    1, 4,       3,    2, async, rows, {},     "12289: 6 % over one block, 15001: 11 %"},
    {{769, 1199}, one, always, vectors(3),    1, 1,       1,    2, async, rows, {},     "7001: 6 % over pace=2, 25000 rows the same"},
    {{1200, 2048},one, always, vectors(3),    1, 1,       1,    2, async, rows, {2},    "10951, 25769 rows: - / 0.92; not pace=0: 0.78. 14001: 22 % over pace=0"},
    {{2049, end}, two, no_clusters_of_8,  vectors(3),    1, 1,       1,    2, async, rows, {2, 2}, ""},
    {{2049, end}, one, no_clusters_of_8,  vectors(3),    1, 1,       1,    2, async, rows, {2},    ""},
    {{2049, 3072},two, clusters_of_8, vectors(4),    1, 8,       fill, 2, async, rows, {},     "23177: 8 % over 6 vectors a thread"},
    {{3073, 4096},two, clusters_of_8, vectors(6),    1, 8,       fill, 2, async, rows, {},     "20001: 0.82; not: 0.69"},
    {{4097, 8192},two, clusters_of_8, within(192),    1, 8,       fill, 2, async, rows, {},     "42001: 17 % over 6 vectors a thread, 34695: 16 %"},
    {{2049, 8192},one, clusters_of_8, vectors(6),    1, 8,       fill, 2, async, rows, {4},    "40001: - / 0.86; not: - / 0.72"},
    {{8193, end}, two, clusters_of_8, vectors(6),    1, largest, fill, 2, async, both, {},     "70001: 0.73; not: 0.30"},
    {{8193, end}, one, clusters_of_8, vectors(6),    1, largest, fill, 2, async, both, {4},    "70001: - / 0.81; not: - / 0.45"},
};

// Rows whose threads need registers for dgamma, dbeta and an f32 gamma in addition to 2-byte matrices.
constexpr CudaRow wide_gamma_rows[] = {
    {{1025, 2048},two, gamma,  even(3),       1, 4, 2, 3, bulk, nothing, {4}, "16384, 8192 rows: 0.95 (4 vectors a thread); not 2 and one block: 0.91"},
};

// Few threads with several vectors each, whose sums are then spread over all registers. In brackets: vectors a thread.
constexpr CudaRow widest_rows_of_two_sums[] = {
//   vectors        sums when    threads   rows cluster blocks stages staging shared pace  measured
    {{4096, 4096},  two, of_8,   exactly(256),1,  4, 1, 3, bulk,  nothing, {2}, "32768 (4): 1.00"},
    {{4096, 4096},  two, less,   exactly(256),1,  4, 1, 4, bulk,  rows,    {4}, "16384 f32: 0.98; not registers: 0.94"},
    {{4097, 8192},  two, gamma,  vectors(4),  1, 16, 3, 3, bulk,  rows,    {4}, "65536, f32 gamma (4): 0.92; not (8): 0.85"},
    {{4097, 5120},  two, plain,  busy,        1,  4, 1, 3, bulk,  nothing, {2}, ""},
    {{5121, 6144},  two, plain,  busy,        1,  4, 1, 3, bulk,  columns, {2}, "49152 (6): 0.97; not (8): 0.89"},
    {{6145, 8192},  two, plain,  busy,        1,  4, 1, 3, bulk,  both,    {2}, "57344 (7): 0.98; not registers: 0.65. 65536 (8): 0.99"},
    {{8193, 10240}, two, always, busy,        1,  8, 1, 3, bulk,  nothing, {2}, "70000 (5): 0.83; not clusters of 16 (6): 0.59"},
    {{10241, 12288},two, always, busy,        1,  8, 1, 3, bulk,  columns, {2}, "98304 (6): 0.97; not clusters of 16: 0.89"},
    {{12289, 12800},two, of_8,   busy,        1,  8, 1, 3, bulk,  both,    {2}, "100000 (7): 0.86; not clusters of 16: 0.69"},
    {{12289, 12800},two, less,   busy,        1,  8, 1, 3, bulk,  columns, {2}, "322x49536 f32: 4 % over both shared, 812x49484 2 %"},
    {{12801, 16384},two, always, exactly(128),1, 16, 2, 3, async, rows,    {4}, "131072 (8): 0.96; not (4), twice the threads: 0.61"},
    {{16385, 20480},two, always, busy,        1, 16, 1, 3, bulk,  nothing, {2}, "163840 (5): 0.84"},
    {{20481, 24576},two, always, busy,        1, 16, 1, 3, bulk,  columns, {2}, ""},
    {{24577, 32768},two, always, busy,        1, 16, 1, 3, bulk,  both,    {2}, "262144 (8): 0.91; not (4): 0.63"},
};

// Counted by the vectors of a block. A thread has two vectors, or more if that leaves no lane idle. Clusters of 16
// leave 20 multiprocessors idle. With half the threads, the sums and an f32 gamma in vectors of 4 fit 128 registers on
// sm_80 (NOTES N-704).
constexpr CudaRow wide_rows[] = {
//   of a block   sums when         threads rows cluster blocks stages staging shared pace  measured
    {{513, 640},  any, always,      even_rows,1, wide, 2, 3, bulk, rows,    {2}, "9216: 0.942; not one block: 0.757"},
    {{641, 1024}, two, gamma_1,     even_rows,1, wide, 1, 3, bulk, columns, {2}, "8192, f32 gamma: 4 % over registers"},
    {{641, 1024}, two, not_gamma_1, even_rows,1, wide, 1, 3, bulk, nothing, {2}, "8192: 0.987; 16384: 0.995"},
    {{641, 1024}, one, less_4,      even_rows,1, wide, 1, 3, bulk, columns, {2}, "16384 f32: 2 % over registers"},
    {{641, 1024}, one, not_less_4,  even_rows,1, wide, 1, 3, bulk, nothing, {2}, "8192: - / 0.995; 16384: - / 1.003; 65536: - / 1.010"},
    {{1025, 1536},one, to_384,      even_rows,1, wide, 1, 3, bulk, nothing, {2}, "70000: - / 0.98; not shared: - / 0.88"},
    {{1025, 1536},one, over_384,    even_rows,1, wide, 1, 3, bulk, rows,    {2}, ""},
    {{1537, end}, one, always,      even_rows,1, wide, 1, 3, bulk, rows,    {2}, "131072: - / 0.91; 262144: - / 0.93"},
    {{1025, end}, two, always,      half,     1, wide, 1, 2, bulk, both,    {2}, ""},
};
// clang-format on

bool has_wide_gamma_rows(const CudaShape& s) {
    return s.two_sums && s.wide_columns && s.most_cluster >= 4 && Range{1025, 2048}.contains(s.vectors);
}
bool has_widest_rows_of_two_sums(const CudaShape& s) {
    return s.two_sums && s.most_cluster == 16 && Range{4096, 32768}.contains(s.vectors);
}

constexpr CudaFamily families[] = {
    {"rows that start anywhere in a vector", [](const CudaShape& s) { return s.is_wide_and_shifted(); }, false,
     shifted_rows},
    {"rows that fit a block", [](const CudaShape& s) { return s.vectors <= 512; }, false, one_block_rows},
    {"rows with a wide gamma", has_wide_gamma_rows, false, wide_gamma_rows},
    {"rows that are among the widest", has_widest_rows_of_two_sums, false, widest_rows_of_two_sums},
    {"rows that are wide", [](const CudaShape&) { return true; }, true, wide_rows},
};

CudaMemory memory_of(Shared what, Shared shared) {
    return shared == what || shared == both ? CudaMemory::shared : CudaMemory::registers;
}

}  // namespace

bool CudaFamily::has(const CudaRow& row, const CudaShape& shape) const {
    const int64_t counted = counts_by_block ? shape.vectors_of_block(shape.blocks_of_wide_row()) : shape.vectors;
    return row.vectors.contains(counted) && holds(row.sums, shape.two_sums) && row.when.holds(shape);
}

std::span<const CudaFamily> cuda_families() { return families; }

CudaFound find_in_cuda_table(const CudaShape& shape) {
    const CudaFamily* family = &*std::ranges::find_if(families, [&](const auto& each) { return each.applies(shape); });
    const CudaRow& row =
        *std::ranges::find_if(family->rows, [&](const auto& each) { return family->has(each, shape); });
    CudaSchedule s{.rows_per_block = row.rows_per_block,
                   .cluster = row.cluster,
                   .blocks_per_sm = row.blocks_per_sm,
                   .vector_width = shape.width,
                   .pipeline_depth = row.pipeline_depth,
                   .staging = row.staging,
                   .row_memory = memory_of(rows, row.shared),
                   .column_memory = memory_of(columns, row.shared),
                   .pace = row.pace.rows,
                   .pace_slack = row.pace.slack};
    if (row.cluster == wide_row_blocks) s.cluster = shape.blocks_of_wide_row();
    if (row.cluster == largest_cluster) s.cluster = shape.most_cluster;
    s.threads_per_row = count_threads(row.threads, shape, s);
    if (row.blocks_per_sm == fill_384) {
        s.threads_per_row = std::min(s.threads_per_row, 384);
        s.blocks_per_sm = 384 / s.threads_per_row;
    }
    return {s, family, &row};
}

std::string describe(const CudaFamily& family, const CudaRow& row) {
    std::string text = fmt::format("{}: {} vectors of a {}", family.kind, to_text(row.vectors),
                                   family.counts_by_block ? "block" : "row");
    if (row.sums != any) text += fmt::format(", {} column sums", name(row.sums));
    if (!row.when.text.empty()) text += fmt::format(", {}", row.when.text);
    if (!row.measured.empty()) text += fmt::format("; measured: {}", row.measured);
    return text;
}

}  // namespace normjit::schedule
