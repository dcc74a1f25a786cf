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
constexpr Threads within(int number) { return {Threads::Rule::within, number}; }

constexpr Amount all;
constexpr Amount up_to(double most) { return {.to = most}; }
constexpr Amount from(double least) { return {.from = least}; }
constexpr Amount after(double least, double most = Amount{}.to) { return {.from = least, .to = most, .after = true}; }

using When = CudaAdaptation::Condition;
constexpr When always = {"", [](const CudaShape&, const CudaSchedule&) { return true; }};
constexpr When idle = {"a vector a lane leaves some idle",
                       [](const CudaShape& shape, const CudaSchedule&) { return shape.vectors % 32 != 0; }};
constexpr When plain = {"gamma as wide as the matrices",
                        [](const CudaShape& shape, const CudaSchedule&) { return !shape.wide_columns; }};
constexpr When clusters_of_8 = {"clusters of 8",
                                [](const CudaShape& shape, const CudaSchedule&) { return shape.most_cluster >= 8; }};
constexpr When clusters_of_16 = {"clusters of 16",
                                 [](const CudaShape& shape, const CudaSchedule&) { return shape.most_cluster >= 16; }};
constexpr When clusters_of_8_only = {
    "clusters of 8 at most", [](const CudaShape& shape, const CudaSchedule&) { return shape.most_cluster == 8; }};
constexpr When half_loads_of_4 = {"loads of half a vector of 4", [](const CudaShape& shape, const CudaSchedule&) {
                                      return shape.load_divisor == 2 && shape.width == 4;
                                  }};
constexpr When no_half_loads_of_4 = {
    "no loads of half a vector of 4",
    [](const CudaShape& shape, const CudaSchedule& s) { return !half_loads_of_4.holds(shape, s); }};
constexpr When several = {"several rows a block",
                          [](const CudaShape&, const CudaSchedule& s) { return s.rows_per_block > 1; }};
constexpr When no_several = {"one row a block",
                             [](const CudaShape&, const CudaSchedule& s) { return s.rows_per_block == 1; }};
constexpr When copies_4 = {"asynchronous copies of vectors of 4", [](const CudaShape& shape, const CudaSchedule& s) {
                               return s.staging == async && shape.width == 4 && s.vector_width == 4 && !shape.shifted;
                           }};
constexpr When copies_8 = {"asynchronous copies of vectors of 8", [](const CudaShape& shape, const CudaSchedule& s) {
                               return s.staging == async && s.vector_width == 8 && !shape.shifted;
                           }};

// Measured on an H200 in 2026-11: us, shares of the ceiling, or the gain over the schedule without the change. Figures
// after "not" are for the alternative that was not taken.
// clang-format off

constexpr CudaChange from_scratch_in_4_blocks = {.from_scratch = true, .threads = near(128), .cluster = 4, .pipeline_depth = 4};
constexpr CudaChange from_scratch_in_8_blocks = {.from_scratch = true, .threads = near(128), .cluster = 8, .pipeline_depth = 4};
constexpr CudaChange few_across_8_blocks = {.threads = near(192), .cluster = 8, .blocks_per_sm = 1, .pipeline_depth = 4, .staging = async, .column_memory = registers};
constexpr CudaChange few_across_16_blocks = {.threads = near(128), .cluster = 16, .blocks_per_sm = 1, .pipeline_depth = 4, .staging = async, .column_memory = registers};

// Fewer rows than keep all multiprocessors busy, so that the latency of a row decides. Blocks have 96 to 256 threads,
// the number that leaves the fewest idle, with vectors of 4 for narrow rows. Each block of a cluster gets 200 to 600
// vectors, if that spreads rows over more multiprocessors or saves partials, which are as large as the data of a wide
// row.
constexpr CudaAdaptation few_rows[] = {
//   vectors      sums rows of a multiprocessor MiB when changes                                                           measured
    {{2049, end}, any, up_to(1. / 18),        all, clusters_of_16, {.threads = within(160), .cluster = 16, .blocks_per_sm = 1, .vector_width = 4, .pipeline_depth = 4, .staging = async, .row_memory = registers, .column_memory = registers},
     "1x53248 bf16 8.5 us; not 4 blocks 13.7, 8 10.0. 1x52160 7.0; not vectors of 8 9.0. rmsnorm 1x47872 6.5; not 7.9. 3x47872 8.6; not 9.7. 1x11920 f32 6.8; not 8 blocks 7.5"},
    {{4097, 8192},any, after(1. / 18, 1. / 16), all, clusters_of_16, {.threads = within(480), .cluster = 8, .blocks_per_sm = 1, .vector_width = 4, .pipeline_depth = 4, .staging = async, .row_memory = registers, .column_memory = registers},
     "8x52160 bf16 10.1 us; not 16 blocks, 4 groups 11.4. rmsnorm 8x60000 9.5; not 10.2"},
    {{2049, 4096},any, after(1. / 18, 1. / 16), all, clusters_of_16, few_across_8_blocks, "rmsnorm 8x22976 bf16 7.5 us; not 16 blocks, two turns 8.2"},
    {{8193, end}, any, after(1. / 18, 1. / 16), all, clusters_of_16, few_across_16_blocks, ""},
    {{2049, 8192},any, up_to(1. / 16),        all, clusters_of_8_only, few_across_8_blocks, ""},
    {{2049, 4096},any, after(1. / 16, 1. / 2),all, clusters_of_8, few_across_8_blocks, "rmsnorm 24x24576 9.2 us; not 4 blocks 10.9. 55x32064 13.0; not 14.7"},
    {{4097, 8192},two, after(1. / 16, 1),     all, clusters_of_8, few_across_8_blocks, "29x36800 bf16 12.7 us; not 4 blocks 16.5, 13.7. 64x50176 17.3; not 24.2"},
    {{4097, 8192},one, after(1. / 16, 1. / 2),all, clusters_of_8, {.threads = within(480), .cluster = 8, .blocks_per_sm = 1, .vector_width = 4, .pipeline_depth = 3, .staging = async, .row_memory = registers, .column_memory = registers},
     "rmsnorm 61x40320 f16 13.8 us; not 160 threads, vectors of 8 15.8"},
    {{2049, 4096},any, after(1. / 2, 1),      all, clusters_of_8, {.threads = near(256), .cluster = 4, .blocks_per_sm = 1, .pipeline_depth = 3, .staging = async, .column_memory = registers},
     "91x22976 bf16 15.2 us; not 16.3. rmsnorm 69x8640 f32 10.6; not 11.8"},
    {{1281, 2048},any, up_to(1. / 5),         all, clusters_of_8, from_scratch_in_8_blocks,
     "5x15432 bf16 8.0 us; not 4 blocks 8.7. rmsnorm 11x12352 f16 7.2; not 7.4"},
    {{896, 1280}, any, up_to(1. / 16),        all, clusters_of_8, from_scratch_in_8_blocks,
     "1x7680 bf16 5.6 us; not 4 blocks 6.2. 8x7680 f16 7.5; not 8.0"},
    {{896, 1280}, any, after(1. / 16, 1. / 5),all, clusters_of_8, from_scratch_in_4_blocks, "16x8192 bf16 8.1 us; not one block 9.0"},
    {{512, 895},  any, up_to(1. / 32),        all, clusters_of_8, from_scratch_in_8_blocks, "rmsnorm 2x6400 bf16 6.3 us; not 4 blocks 6.8. 3x6592 6.4; not 7.3"},
    {{512, 895},  any, after(1. / 32, 1. / 5),all, clusters_of_8, from_scratch_in_4_blocks,
     "16x4096 bf16 7.6 us; not one block 9.0. 19x5888 f16 7.1; not 7.4"},
    {{448, 511},  any, up_to(1. / 5),         all, clusters_of_8, {.from_scratch = true, .threads = vectors(8), .pipeline_depth = 4},
     ""},
    {{448, 1536}, any, after(1. / 5, 1. / 2), all, clusters_of_8, {.from_scratch = true, .threads = vectors(8), .pipeline_depth = 4},
     "64x4096 8.4 us; not 2 blocks 8.6, the table's 10.2. 64x8192 10.0; not 10.7, 10.2"},
    {{1537, 2048},any, after(1. / 5, 1. / 2), all, clusters_of_8, from_scratch_in_4_blocks,
     "rmsnorm 40x14336 bf16 8.8 us; not 2 blocks 9.3"},
    {{705, 1024}, one, after(1. / 2, 4),      all, clusters_of_8, {.from_scratch = true, .threads = near(256), .cluster = 2, .pipeline_depth = 3},
     "512x8192 15.9 us; not 18.8"},
    {{705, 1024}, two, after(1. / 2, 4),      all, clusters_of_8, {.from_scratch = true, .threads = near(256), .cluster = 2, .pipeline_depth = 4},
     "256x8192 13.1 us; not 15.0. 512x8192 16.0; not 18.8"},
    {{257, 352},  any, up_to(3),              all, clusters_of_8, {.from_scratch = true, .threads = near(192), .pipeline_depth = 4},
     "280x2304 f16 8.6 us; not 2 rows a block 10.5. 30x1408 f32 6.6; not 7.0"},
    {{257, 352},  any, after(3, 6),           all, clusters_of_8, {.from_scratch = true, .threads = near(192), .blocks_per_sm = 2, .pipeline_depth = 3},
     "758x2432 bf16 2 % over one block, rmsnorm 581x1344 f32 4 %, 521x1232 6 %; 606x3328 bf16 a loss of 8 %"},
    {{353, 447},  any, up_to(6),              all, clusters_of_8, {.from_scratch = true, .threads = near(192), .pipeline_depth = 4},
     "600x3072 11.1 us; not 2 rows a block 13.4"},
    {{448, 704},  one, after(1. / 2, 1),      all, clusters_of_8, {.from_scratch = true, .threads = vectors(3), .pipeline_depth = 2},
     "rmsnorm 70x4544 bf16 7.7 us; not vectors of 8, bulk 8.4"},
    {{448, 704},  any, after(1, 3),           all, clusters_of_8, {.from_scratch = true, .threads = near(192), .pipeline_depth = 4},
     "rmsnorm 300x4608 10.1 us; not 10.8"},
    {{1025, 2048},any, after(1. / 2, 4),      all, clusters_of_8, {.from_scratch = true, .threads = near(256), .cluster = 2, .pipeline_depth = 3},
     "512x12288 20.1 us; not 22.8. 512x8192 f32 23.0; not 24.9. 256x9216 f16 12.8 with 192 threads, which none idles of; not 256 15.5"},
};

constexpr CudaChange across_8_blocks = {.threads = near(160), .rows_per_block = 1, .cluster = 8, .blocks_per_sm = 2, .pipeline_depth = 3, .row_memory = registers};
constexpr CudaChange across_16_blocks = {.shrink_to_fit = true, .threads = within(192), .cluster = 16, .blocks_per_sm = 3, .pipeline_depth = 3, .column_memory = registers};
constexpr CudaChange across_8_blocks_within_224 = {.shrink_to_fit = true, .threads = within(224), .cluster = 8, .blocks_per_sm = 2, .pipeline_depth = 3, .column_memory = registers};

// Shifting adds latency. Few rows gain most from clusters whose blocks shift little each, with two or more blocks on a
// multiprocessor. With more rows, the partials of many groups cost more than that gains; clusters of 16 have fewer.
constexpr CudaAdaptation rows_that_start_anywhere[] = {
//   vectors      sums rows of a multiprocessor MiB when changes                                                           measured
    {{512, 767},  any, up_to(1. / 2),         all, clusters_of_8, across_8_blocks, ""},
    {{768, 1399}, any, up_to(1),              all, clusters_of_8, across_8_blocks, "rmsnorm 60x9999 bf16 10.6 us; not 4 blocks 11.4, 1 17.4. 94x7383 12.3; not 1 15.1"},
    {{1400, 2048},any, up_to(1. / 64),        all, clusters_of_16, {.shrink_to_fit = true, .threads = vectors(1), .rows_per_block = 1, .cluster = 16, .blocks_per_sm = 2, .pipeline_depth = 3, .row_memory = registers},
     "1x13241 f16 6.6 us; not 8 blocks 8.0"},
    {{1400, 2048},any, up_to(1. / 64),        all, clusters_of_8_only, across_8_blocks, ""},
    {{1400, 2048},any, after(1. / 64, 1. / 4),all, clusters_of_8, {.shrink_to_fit = true, .threads = vectors(1), .rows_per_block = 1, .cluster = 8, .blocks_per_sm = 2, .pipeline_depth = 3, .row_memory = registers},
     "rmsnorm 14x14779 bf16 8.2 us; not 128 threads 9.2"},
    {{1400, 2048},any, after(1. / 4, 1. / 2), all, clusters_of_8, across_8_blocks, ""},
    {{2049, end}, any, up_to(1. / 16),        all, clusters_of_16, {.shrink_to_fit = true, .threads = within(480), .cluster = 16, .blocks_per_sm = 2, .pipeline_depth = 4, .column_memory = registers},
     "3x28150 bf16 10.3 us; not 8 blocks 12.7. 1x33001 f16 8.0; not 96 threads 9.5. rmsnorm 3x23998 8.0; not 9.2. 8x28157 9.4; not 10.0"},
    {{4097, 8192},two, after(1. / 16, 1. / 4),all, clusters_of_16, {.shrink_to_fit = true, .threads = within(192), .cluster = 16, .blocks_per_sm = 2, .pipeline_depth = 4, .column_memory = registers},
     "20x42001 bf16 15.1 us; not 8 blocks 17.1"},
    {{2049, 4096},any, after(1. / 16, 1. / 2),all, clusters_of_16, across_16_blocks,
     "25x20089 bf16 19 %, 20x25003 12.3 us; not 8 blocks 14.0. 20x17001 11.0; not 12.1"},
    {{4097, 8192},two, after(1. / 4, 1. / 2), all, clusters_of_16, across_16_blocks, ""},
    {{4097, 8192},one, after(1. / 16, 1. / 2),all, clusters_of_16, across_16_blocks,
     "rmsnorm 20x34695 bf16 11.0 us; not 8 blocks 12.1. 20x50001 13.3; not 15.6"},
    {{3073, 4096},any, after(1. / 2, 1),      all, clusters_of_16, across_16_blocks, "70x32025 f16 18.7 us; not 8 blocks 19.7"},
    {{5121, 8192},any, after(1. / 2, 1),      all, clusters_of_16, across_16_blocks,
     "80x50001 bf16 25.4 us; not 8 blocks 30.1. rmsnorm 74x49710 f16 22 %"},
    {{2049, 8192},any, after(1. / 16, 1. / 2),all, clusters_of_8_only, {.threads = near(192), .cluster = 8, .blocks_per_sm = 2, .pipeline_depth = 3, .column_memory = registers},
     ""},
    {{8193, end}, any, after(1. / 16, 1),     all, always, {.column_memory = registers}, "rmsnorm 23x33399 f32 13.3 us; not 15.6"},
    {{321, 384},  any, from(100),             all, always, {.rows_per_block = 4}, "32768x2967 bf16 11 % over 2 rows, rmsnorm 1 %; 1000x3001 a loss of 12 %"},
    {{385, 480},  any, from(100),             all, plain, {.threads = vectors(5), .rows_per_block = 4}, "20000x3333 bf16 12 % over 3 vectors a thread, 2 rows"},
    {{1100, 1399},one, from(8),              up_to(200), always, {.threads = near(192), .rows_per_block = 2}, "1245x10303 bf16 37.1 us; not one row 41.9. 682x9087: a loss of 9 %"},
    {{1400, 2048},any, after(1. / 2),        up_to(200), clusters_of_8, {.threads = vectors(2), .cluster = 8, .blocks_per_sm = 4, .pipeline_depth = 2, .row_memory = shared, .column_memory = registers},
     "341x12289 bf16 26.5 us; not one block 49.9. rmsnorm 1365x12289 44.7; not 53.2. 733x14007 31.6; not 44.5"},
    {{2049, 3072},any, after(1. / 2, 3),     up_to(100), clusters_of_8, across_8_blocks_within_224, "80x21001 bf16 16.2 us; not 16 blocks 17.1"},
    {{3073, 4096},any, after(1, 3),          up_to(100), clusters_of_8, across_8_blocks_within_224, "200x25003 bf16 25.2 us; not 16 blocks 28.5"},
    {{2049, 4096},any, after(3),             up_to(100), clusters_of_8, {.shrink_to_fit = true, .threads = within(160), .cluster = 8, .blocks_per_sm = 4, .pipeline_depth = 2, .row_memory = shared, .column_memory = registers},
     "600x21001 bf16 38.6 us; not 16 blocks 44.0. rmsnorm 600x17001 30.9; not 35.8. 600x25003 40.2; not 52.3"},
    {{2049, 4096},any, after(3),             after(100, 200), clusters_of_8, {.threads = near(160), .cluster = 8, .blocks_per_sm = 3, .pipeline_depth = 2},
     "699x20001 bf16 48.2 us; not 6 blocks of 64 threads 62.9"},
    {{5121, 8192},any, after(1),             up_to(100), clusters_of_8, across_8_blocks_within_224, "rmsnorm 200x50001 bf16: 3 % over 160 threads"},
    {{4097, 5120},any, after(1. / 2),        up_to(100), clusters_of_8, across_8_blocks_within_224,
     "80x34695 bf16 21.4 us; not 96 threads 26.1. 600x34695 57.3; not 68.4. rmsnorm 200x34695 25.9; not 28.7"},
};

// If one vector per thread leaves lanes idle and there are many rows, layernorm, which sums dgamma and dbeta, gains
// from several rows side by side in one large block; rmsnorm does not.
constexpr CudaAdaptation rows_side_by_side[] = {
    {{129, 192},  one, all, from(200), idle, {.blocks_per_sm = 4}, "39818x1088 71.0 us; not 3 blocks 75.2. 8192x1152: the same"},
    {{129, 160},  two, all, from(200), idle, {.from_scratch = true, .shrink_to_fit = true, .threads = exactly(64), .rows_per_block = 8, .pipeline_depth = 2,
     .staging = async, .row_memory = shared, .column_memory = shared},
     "32768x1152 0.89; not 0.82"},
    {{161, 256},  two, all, from(200), idle, {.from_scratch = true, .shrink_to_fit = true, .threads = exactly(64), .rows_per_block = 4, .pipeline_depth = 3,
     .staging = async, .row_memory = shared},
     "32768x1600 0.91; not 8 rows 0.86, a vector a thread 0.82. 8192x1600: a loss of 10 %"},
};

// With few rows the partials of more blocks cost more than those blocks gain.
constexpr CudaAdaptation fewer_partials[] = {
//   vectors      sums rows      MiB            when     changes measured
    {{9, 16},     any, up_to(16), up_to(64),    always,  {.threads = exactly(16), .rows_per_block = 8}, "rmsnorm 461x87 bf16: 4 % over 16 rows"},
    {{9, 15},     two, after(16), up_to(64),    always,  {.threads = exactly(16), .blocks_per_sm = 2}, "12280x109 bf16 12 % over 3 blocks, 40764x86 4 %"},
    {{9, 15},     one, after(16), after(32, 64), always, {.threads = exactly(16)}, "rmsnorm 97683x77 f16: 4 % over 2 blocks"},
    {{9, 15},     one, after(16), up_to(32),    always,  {.threads = exactly(16), .blocks_per_sm = 2}, "rmsnorm 48099x109 bf16 2 % over 3 blocks, 7001x105 3 % over 8 threads"},
    {{16, 16},    any, after(16), up_to(64),    always,  {.threads = exactly(16)}, "rmsnorm 16384x128 bf16: 4 % over 2 blocks"},
    {{17, 31},    any, after(16), up_to(16),    always,  {.threads = exactly(32), .rows_per_block = 8, .blocks_per_sm = 2, .pipeline_depth = 3, .staging = async},
     "20841x130 bf16: 4 % over 6 stages. rmsnorm 14084x135 bf16, 2696x205: 7 % over 16 threads, 3 blocks, 2 stages; 864x192, 328x240: a loss of 3 to 4 %"},
    {{17, 31},    any, after(16), after(16, 64), always, {.threads = exactly(16), .rows_per_block = 8}, "28406x140 bf16: 4 % over 8 threads"},
    {{17, 17},    any, up_to(16), up_to(64),    always,  {.threads = exactly(16), .rows_per_block = 8}, ""},
    {{18, 31},    any, up_to(16), up_to(64),    always,  {.threads = exactly(16), .rows_per_block = 8}, ""},
    {{33, 64},    any, up_to(8),  up_to(8),     always,  {.threads = exactly(64), .rows_per_block = 4, .blocks_per_sm = 1, .pipeline_depth = 4},
     "279x337 f16: 10 % over 8 rows, 14 % over 16 threads, 4 % over 2 stages"},
    {{33, 48},    any, after(8),  up_to(8),     always,  {.threads = exactly(32), .rows_per_block = 8, .blocks_per_sm = 2, .pipeline_depth = 4},
     "2058x384 bf16 10 % over 16 rows of 16 threads, 2730x384 5 %"},
    {{49, 63},    any, after(8),  up_to(8),     always,  {.threads = exactly(64), .rows_per_block = 4, .blocks_per_sm = 1, .pipeline_depth = 4},
     "1484x471 f16 9.9 us; not 8 rows of 32 threads 10.8"},
    {{49, 63},    any, all,       after(8, 16), always,  {.threads = exactly(64), .blocks_per_sm = 2}, "3918x471 f16 8 % over 32 threads, 3 blocks"},
    {{64, 64},    any, after(8),  up_to(8),     always,  {.doubles_rows = true, .blocks_per_sm = 1, .pipeline_depth = 4},
     "2048x512 0.68; not 3 blocks 0.65"},
    {{65, 112},   any, after(2), all,           half_loads_of_4, {.threads = exactly(32), .rows_per_block = 8, .blocks_per_sm = 2, .pipeline_depth = 2},
     "20000x378 f32: 12 % over a row a block, rmsnorm 2284x306 12 %; 45x426 a loss of 8 %"},
    {{176, 192},  two, from(1), up_to(24),      always,  {.blocks_per_sm = 2}, "2048x1536 bf16 5 % over 3 blocks; 4096x768 f32: a loss of 4 %"},
    {{193, 255},  two, from(1), up_to(64),      always,  {.blocks_per_sm = 2}, "872x1792 bf16 14 % over 3 blocks, 3900x1792 7 %"},
    {{193, 255},  two, from(1), after(64, 128), always,  {.threads = vectors(2)}, "8462x1792 f16 32.2 us; not a vector a thread 33.9"},
    {{256, 256},  two, from(1), up_to(64),      always,  {.threads = exactly(128), .rows_per_block = 2, .blocks_per_sm = 1, .pipeline_depth = 4,
     .row_memory = shared},
     "4096x2048 f16 0.78; not 3 blocks 0.73. 16x2048 wants a block a row: 6.4 us, not 7.8"},
    {{257, 447},  any, all,     up_to(64),      several, {.threads = vectors(2), .rows_per_block = 2, .column_memory = registers},
     "2048x2304: 16 %, rmsnorm 4 %"},
    {{289, 447},  two, after(6), up_to(64),     no_several, {.vector_width = 4, .staging = async}, "1888x2688 bf16: 5 % over bulk, vectors of 8"},
    {{289, 384},  one, after(6), up_to(64),     no_several, {.blocks_per_sm = 2, .vector_width = 4, .pipeline_depth = 3, .staging = async},
     "rmsnorm 2664x2624 bf16: 6 % over one block"},
    {{385, 447},  one, after(6), up_to(64),     no_several, {.blocks_per_sm = 1, .vector_width = 4, .pipeline_depth = 4, .staging = async},
     "rmsnorm 1948x3520 bf16: 10 % over 2 blocks"},
    {{448, 704},  two, all,     up_to(64),      no_half_loads_of_4,  {.threads = near(384), .blocks_per_sm = 1, .vector_width = 4, .pipeline_depth = 4, .staging = async, .row_memory = registers},
     "1950x3584 bf16 19.8 us; not 3 vectors of 8 a thread, bulk 24.7. 611x4288 f16 13.0; not 14.1. 1323x5280 21.1; not 23.5"},
    {{448, 704},  two, all,     after(64, 300), no_half_loads_of_4,  {.blocks_per_sm = 1, .pipeline_depth = 4, .row_memory = registers},
     "8192x4096 f16 0.902, 4096x4096 0.833; not two blocks 0.86, 0.79. 16384 rows: the same"},
    {{448, 704},  one, all,     up_to(300),     no_half_loads_of_4, {.blocks_per_sm = 1, .pipeline_depth = 4, .row_memory = registers}, ""},
    {{448, 704},  one, all,     up_to(300),     half_loads_of_4, {.pipeline_depth = 2}, "8000x2002 f32 56.0 us; not 4 stages 61.9, with one block 63"},
    {{705, 1024}, two, all,     up_to(300),     always,  {.pipeline_depth = 2, .staging = async},
     "4096x8192 f16, 31 rows a block: 4 % over 3 stages; rmsnorm loses 2 %"},
};

// Vectors of 4 make the beginning and the end of a short launch cheaper, above all for layernorm; widths 1280 and 1536
// do not gain.
constexpr CudaAdaptation short_launches[] = {
    {{33, 47},    two, all, up_to(100),      copies_4, {.pipeline_depth = 2, .staging = CudaStaging::registers}, "30481x172 f32 25.2 us; not asynchronous 26.8. 19450x172 8 %"},
    {{33, 47},    two, all, after(100),      copies_8, {.vector_width = 4},     "193486x328 f16: 7 %, 2345968x320 2 %; 105540x448 a loss of 1 %"},
    {{1, 127},    two, all, up_to(100),      copies_8, {.vector_width = 4},     "8192x512: 5 %, x768: 3 %"},
    {{128, 128},  two, all, up_to(64),       copies_8, {.vector_width = 4},     "2048x1024: 7 %. 4096x1024 f16: 4 %"},
    {{128, 128},  two, all, after(64, 100),  copies_8, {.threads = exactly(64)},"16384x1024 f16: 2 %"},
    {{256, 256},  two, all, up_to(100),      copies_8, {.vector_width = 4},     "8192x2048: 7 %"},
    {{705, 1024}, two, all, up_to(300),      copies_8, {.vector_width = 4},     "4096x8192 f16: 3 %"},
};

// The lead of some blocks over others grows with time; in short launches, below 100 us or so, reports do not pay.
constexpr CudaPacing pacing[] = {
//   vectors      sums several MiB  measured
    {{0, end},    any, true,   200, "32768x2304 gains"},
    {{0, 192},    two, false,  380, ""},
    {{193, 256},  two, false,  140, "13324x1920 bf16 4 %, 16243x1984 4 %"},
    {{257, 384},  two, false,  380, "23408x2176 f16: a loss of 8 %"},
    {{385, 447},  two, false,  250, "16150x3456 f16 6 %, 18096x3392 4 %"},
    {{448, end},  two, false,  380, "4096x11264 f16, 79 us: 0.902; with reports 0.852. 16384x4096, 107 us: the same"},
    {{0, 704},    one, false,  280, "8192x3584, 4096x4096: a loss of 3 to 4 %"},
    {{705, 4096}, one, false,  140, "2048x16384, 8192x6144: 3 to 4 %"},
    {{4097, end}, one, false,  300, "910x52096 f16: a loss of 4 %"},
};
// clang-format on

constexpr CudaAdaptations tables[] = {
    {"few rows", true, false, few_rows},
    {"rows that start anywhere", true, true, rows_that_start_anywhere},
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
