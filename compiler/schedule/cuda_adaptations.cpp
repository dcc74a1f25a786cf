// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_adaptations.h"

#include <fmt/format.h>

namespace normjit::schedule {

namespace {

constexpr auto any = Sums::any, one = Sums::one, two = Sums::two;
constexpr auto async = CudaStaging::async;
constexpr auto registers = CudaMemory::registers, shared = CudaMemory::shared;
constexpr int64_t end = INT64_MAX;

constexpr Threads exactly(int number) { return {Threads::Rule::exactly, number}; }
constexpr Threads vectors(int number) { return {Threads::Rule::vectors, number}; }
constexpr Threads near(int number) { return {Threads::Rule::near, number}; }

constexpr Amount all;
constexpr Amount up_to(double most) { return {.to = most}; }
constexpr Amount from(double least) { return {.from = least}; }
constexpr Amount after(double least, double most) { return {.from = least, .to = most, .after = true}; }

using When = CudaAdaptation::Condition;
constexpr When always = {"", [](const CudaShape&, const CudaSchedule&) { return true; }};
constexpr When idle = {"a vector a lane leaves some idle",
                       [](const CudaShape& shape, const CudaSchedule&) { return shape.vectors % 32 != 0; }};
constexpr When clusters = {"clusters of 8",
                           [](const CudaShape& shape, const CudaSchedule&) { return shape.most_cluster >= 8; }};
constexpr When quarters = {"loads of a quarter of a vector",
                           [](const CudaShape& shape, const CudaSchedule&) { return shape.part == 4; }};
constexpr When f32_halves = {"loads of half a vector of 4", [](const CudaShape& shape, const CudaSchedule&) {
                                 return shape.part == 2 && shape.width == 4;
                             }};
constexpr When no_f32_halves = {"no loads of half a vector of 4", [](const CudaShape& shape, const CudaSchedule& s) {
                                    return !f32_halves.holds(shape, s);
                                }};
constexpr When several = {"several rows a block",
                          [](const CudaShape&, const CudaSchedule& s) { return s.rows_per_block > 1; }};
constexpr When copies_8 = {"asynchronous copies of vectors of 8", [](const CudaShape&, const CudaSchedule& s) {
                               return s.staging == async && s.vector_width == 8;
                           }};

// Measured on an H200 in 2026-11, us, shares of the ceiling or the gain over the schedule without the change; "not" is
// what was not taken.
// clang-format off

// Fewer rows than keep all multiprocessors busy: a row's latency is the time. Blocks of 128 to 256 threads with vectors
// of 4, and clusters of them where there are fewer rows than multiprocessors by far, and where rows are wide. 1024 rows
// of 8192 are 8 for each block, and gain nothing.
constexpr CudaAdaptation few_rows[] = {
//   vectors      sums rows of a multiprocessor MiB when changes                                                           measured
    {{2049, 4096},any, up_to(1. / 8),         all, clusters, {.threads = vectors(1), .cluster = 8, .blocks_per_sm = 1},
     ""},
    {{512, 2048}, any, up_to(1. / 8),         all, clusters, {.anew = true, .threads = exactly(128), .cluster = 4, .pipeline_depth = 4},
     "1x8192 bf16 7.7 us; not 8 blocks 7.9, 1 10.6. 16x4096 7.6; not 9.0. 16x8192 8.1; not 9.0. rmsnorm 16x4096 7.5; not 8.0"},
    {{448, 511},  any, up_to(1. / 8),         all, clusters, {.anew = true, .threads = vectors(8), .pipeline_depth = 4},
     ""},
    {{448, 1536}, any, after(1. / 8, 1. / 2), all, clusters, {.anew = true, .threads = vectors(8), .pipeline_depth = 4},
     "64x4096 8.4 us; not 2 blocks 8.6, the table's 10.2. 64x8192 10.0; not 10.7, 10.2"},
    {{1537, 2048},any, after(1. / 8, 1. / 2), all, clusters, {.anew = true, .threads = exactly(256), .cluster = 2, .pipeline_depth = 3},
     ""},
    {{705, 1024}, one, after(1. / 2, 4),      all, clusters, {.anew = true, .threads = exactly(256), .cluster = 2, .pipeline_depth = 3},
     "512x8192 15.9 us; not 18.8"},
    {{705, 1024}, two, after(1. / 2, 4),      all, clusters, {.anew = true, .threads = exactly(256), .cluster = 2, .pipeline_depth = 4},
     "256x8192 13.1 us; not 15.0. 512x8192 16.0; not 18.8"},
    {{1025, 2048},any, after(1. / 2, 4),      all, clusters, {.anew = true, .threads = exactly(256), .cluster = 2, .pipeline_depth = 3},
     "512x12288 20.1 us; not 22.8. 512x8192 f32 23.0; not 24.9"},
};

// Where a vector a thread leaves lanes idle, dgamma and dbeta together want several rows side by side in one large block,
// if there are many; rmsnorm does not gain.
constexpr CudaAdaptation rows_side_by_side[] = {
    {{129, 160},  two, all, from(200), idle, {.anew = true, .make_fit = true, .threads = exactly(64), .rows_per_block = 8, .pipeline_depth = 2,
     .staging = async, .row_memory = shared, .column_memory = shared},
     "32768x1152 0.89; not 0.82"},
    {{161, 256},  two, all, from(200), idle, {.anew = true, .make_fit = true, .threads = exactly(64), .rows_per_block = 4, .pipeline_depth = 3,
     .staging = async, .row_memory = shared},
     "32768x1600 0.91; not 8 rows 0.86, a vector a thread 0.82. 8192x1600: a loss of 10 %"},
};

// With few rows the partials of more blocks cost more than these gain.
constexpr CudaAdaptation fewer_partials[] = {
//   vectors      sums rows      MiB            when     changes measured
    {{33, 64},    any, from(1), up_to(8),       always,  {.doubles_rows = true, .blocks_per_sm = 1, .pipeline_depth = 4},
     "2048x512 0.68; not 3 blocks 0.65"},
    {{65, 112},   two, all,     all,            f32_halves, {.threads = exactly(32), .rows_per_block = 8, .blocks_per_sm = 2, .pipeline_depth = 2},
     "20000x378 f32: 12 % over a row a block"},
    {{65, 255},   any, all,     all,            quarters,{.threads = near(128), .rows_per_block = 1, .blocks_per_sm = 4, .pipeline_depth = 3, .row_memory = registers, .column_memory = registers},
     "3000x690 bf16 12.5 us; not shifted 15.4. rmsnorm 1500x1002 10.6; not 13.0"},
    {{256, 256},  two, from(1), up_to(64),      always,  {.threads = exactly(128), .rows_per_block = 2, .blocks_per_sm = 1, .pipeline_depth = 4,
     .row_memory = shared},
     "4096x2048 f16 0.78; not 3 blocks 0.73. 16x2048 wants a block a row: 6.4 us, not 7.8"},
    {{257, 447},  any, all,     up_to(64),      several, {.threads = vectors(2), .rows_per_block = 2, .column_memory = registers},
     "2048x2304: 16 %, rmsnorm 4 %"},
    {{448, 704},  two, all,     up_to(64),      no_f32_halves,  {.threads = vectors(3), .blocks_per_sm = 1, .pipeline_depth = 4, .row_memory = registers},
     "512x4096: 10 %. 2048x4096, x5120: 2 %. 4096x4608 f16 0.86; not shared memory 0.80"},
    {{448, 704},  two, all,     after(64, 300), no_f32_halves,  {.blocks_per_sm = 1, .pipeline_depth = 4, .row_memory = registers},
     "8192x4096 f16 0.902, 4096x4096 0.833; not two blocks 0.86, 0.79. 16384 rows: the same"},
    {{448, 704},  one, all,     up_to(300),     no_f32_halves, {.blocks_per_sm = 1, .pipeline_depth = 4, .row_memory = registers}, ""},
    {{448, 704},  one, all,     up_to(300),     f32_halves, {.pipeline_depth = 2}, "8000x2002 f32 56.0 us; not 4 stages 61.9, with one block 63"},
    {{705, 1024}, two, all,     up_to(300),     always,  {.pipeline_depth = 2, .staging = async},
     "4096x8192 f16, 31 rows a block: 4 % over 3 stages; rmsnorm loses 2 %"},
};

// Vectors of 4 cost a short launch less at its two ends, layernorm above all; nothing at 1280 and 1536 columns.
constexpr CudaAdaptation short_launches[] = {
    {{1, 127},    two, all, up_to(100),      copies_8, {.vector_width = 4},     "8192x512: 5 %, x768: 3 %"},
    {{128, 128},  two, all, up_to(64),       copies_8, {.vector_width = 4},     "2048x1024: 7 %. 4096x1024 f16: 4 %"},
    {{128, 128},  two, all, after(64, 100),  copies_8, {.threads = exactly(64)},"16384x1024 f16: 2 %"},
    {{256, 256},  two, all, up_to(100),      copies_8, {.vector_width = 4},     "8192x2048: 7 %"},
    {{705, 1024}, two, all, up_to(300),      copies_8, {.vector_width = 4},     "4096x8192 f16: 3 %"},
};

// The blocks' lead over each other grows with time; before 100 us or so, reports cost more than they bring.
constexpr CudaPacing pacing[] = {
//   vectors      sums several MiB  measured
    {{0, end},    any, true,   200, "32768x2304 gains"},
    {{0, end},    two, false,  380, "4096x11264 f16, 79 us: 0.902; with reports 0.852. 16384x4096, 107 us: the same"},
    {{0, 704},    one, false,  280, "8192x3584, 4096x4096: a loss of 3 to 4 %"},
    {{705, end},  one, false,  140, "2048x16384, 8192x6144: 3 to 4 %"},
};
// clang-format on

constexpr CudaAdaptations tables[] = {
    {"few rows", true, true, few_rows},
    {"rows side by side", false, false, rows_side_by_side},
    {"fewer partials", false, false, fewer_partials},
    {"short launches", false, false, short_launches},
};

std::string to_text(const Amount& amount, std::string_view of) {
    const std::string_view least = amount.after ? "more than" : "at least";
    std::string text;
    if (amount.from > 0) text += fmt::format(", {} {} {}", least, amount.from, of);
    if (amount.to < 1e300) text += fmt::format(", at most {} {}", amount.to, of);
    return text;
}

}  // namespace

std::span<const CudaAdaptations> cuda_adaptations() { return tables; }

std::span<const CudaPacing> cuda_pacing() { return pacing; }

std::string describe(const CudaAdaptations& table, const CudaAdaptation& line) {
    std::string text = fmt::format("{}: {} vectors of a row{}{}", table.what, to_text(line.vectors),
                                   to_text(line.rows, "rows of a multiprocessor"), to_text(line.mib, "MiB"));
    if (line.sums != any) text += fmt::format(", {} column sums", name(line.sums));
    if (!line.when.text.empty()) text += fmt::format(", {}", line.when.text);
    if (!line.measured.empty()) text += fmt::format("; measured: {}", line.measured);
    return text;
}

}  // namespace normjit::schedule
