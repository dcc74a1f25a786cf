// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_adaptations.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <doctest/doctest.h>

namespace normjit::schedule {

namespace {

/// Returns shapes on both sides of everything that the tables can distinguish.
std::vector<CudaShape> all_shapes() {
    std::set<int64_t> widths = {100000, 300000};
    for (int64_t vectors = 1; vectors <= 1200; ++vectors) widths.insert(vectors);
    for (const CudaFamily& family : cuda_families()) {
        for (const CudaRow& row : family.rows) {
            for (const int64_t blocks : {1, 2, 4, 8, 16}) {
                for (const int64_t vectors : {row.vectors.from - 1, row.vectors.from, row.vectors.to}) {
                    if (vectors < INT64_MAX)
                        widths.insert({std::max<int64_t>(vectors * blocks, 1), vectors * blocks + 1});
                }
            }
        }
    }
    std::vector<CudaShape> shapes;
    for (const int64_t vectors : widths) {
        for (int i = 0; i < 8; ++i) {
            for (const int width : {1, 2, 4, 8}) {
                for (const int most_cluster : {1, 8, 16}) {
                    shapes.push_back({.cols = vectors * width,
                                      .width = width,
                                      .vectors = vectors,
                                      .shifted = (i & 1) != 0,
                                      .two_sums = (i & 2) != 0,
                                      .wide_columns = (i & 4) != 0,
                                      .most_cluster = most_cluster});
                    for (int part = 2; part < width && !shapes.back().shifted; part *= 2) {
                        shapes.push_back(shapes.back());
                        shapes.back().load_divisor = part;
                    }
                }
            }
        }
    }
    return shapes;
}

/// True if some number is in both.
bool meet(const Amount& a, const Amount& b) {
    const double first = std::max(a.from, b.from);
    const auto both = [&](double value) { return a.contains(value) && b.contains(value); };
    return both(first) || both(std::nextafter(first, 1e308));
}

/// Returns the lines of a table that can apply to a launch, for any number of rows and bytes.
std::vector<const CudaAdaptation*> lines_for(const CudaAdaptations& table, const CudaShape& shape) {
    const CudaSchedule schedule = find_in_cuda_table(shape).schedule;
    std::vector<const CudaAdaptation*> lines;
    for (const CudaAdaptation& line : table.lines) {
        const bool fits = line.vectors.contains(shape.vectors) && holds(line.sums, shape.two_sums);
        if (fits && line.when.holds(shape, schedule)) lines.push_back(&line);
    }
    return lines;
}

}  // namespace

TEST_CASE("each shape has exactly one row of the CUDA table, and each row a shape") {
    std::set<const CudaRow*> reached;
    for (const CudaShape& shape : all_shapes()) {
        const CudaFound found = find_in_cuda_table(shape);
        CAPTURE(shape.vectors);
        CAPTURE(shape.two_sums);
        CAPTURE(describe(*found.family, *found.row));
        REQUIRE(std::ranges::count_if(found.family->rows,
                                      [&](const CudaRow& row) { return found.family->has(row, shape); }) == 1);
        REQUIRE(found.schedule.threads_per_row >= 1);
        reached.insert(found.row);
    }
    for (const CudaFamily& family : cuda_families()) {
        for (const CudaRow& row : family.rows) {
            CAPTURE(describe(family, row));
            CHECK(reached.contains(&row));
        }
    }
}

TEST_CASE("at most one line of each table of adaptations applies to a launch") {
    size_t compared = 0;
    for (const CudaShape& shape : all_shapes()) {
        for (const CudaAdaptations& table : cuda_adaptations()) {
            const auto lines = lines_for(table, shape);
            for (size_t i = 0; i < lines.size(); ++i) {
                for (size_t j = i + 1; j < lines.size(); ++j, ++compared) {
                    CAPTURE(table.what);
                    CAPTURE(shape.vectors);
                    CAPTURE(describe(table, *lines[i]));
                    CAPTURE(describe(table, *lines[j]));
                    REQUIRE(!(meet(lines[i]->rows, lines[j]->rows) && meet(lines[i]->mib, lines[j]->mib)));
                }
            }
        }
    }
    CHECK(compared > 0);
}

TEST_CASE("exactly one line says when pacing pays") {
    for (int64_t vectors = 1; vectors <= 2000; ++vectors) {
        for (const bool two_sums : {false, true}) {
            for (const bool several_rows : {false, true}) {
                CAPTURE(vectors);
                REQUIRE(std::ranges::count_if(cuda_pacing(), [&](const CudaPacing& line) {
                            return line.vectors.contains(vectors) && holds(line.sums, two_sums) &&
                                   line.several_rows == several_rows;
                        }) == 1);
            }
        }
    }
}

TEST_CASE("the heuristic reports the lines that decided") {
    const auto reasons = [](const char* spec, const char* target) {
        return heuristic_reasons(*parse_spec(spec), *parse_target(target));
    };
    const auto wide = reasons("layernorm rows=8192 cols=4096 x=f16", "sm_90 sms=132 l2=57000000");
    REQUIRE(wide.size() == 3);
    CHECK(wide[0].starts_with("rows that fit a block: 481 to 512 vectors of a row; measured: 4096: 0.970 / 0.980"));
    CHECK(wide[1].starts_with("fewer partials: 448 to 704 vectors of a row, more than 64 MiB, at most 300 MiB, two "));
    CHECK(wide[2].starts_with("pace=0: less than 380 MiB"));
    const char* cpu = "x86-64-avx512 cores=16 l1=49152 l2=2097152 l3=314572800";
    const auto teams = reasons("layernorm rows=512 cols=65536", cpu);
    REQUIRE(teams.size() == 3);
    CHECK(teams[0].starts_with("row_block, prefetch, cache_columns: a row or two fit a core's L2: 512 KiB to read"));
    CHECK(teams[2] == "thread_groups, row_block: the L2 of 2 threads hold a row");
}

TEST_CASE("a Zen 4 takes few rows per block with 4K aliasing between rows") {
    const auto rows = [](const std::string& spec, const std::string& tune) {
        const auto target = parse_target("x86-64-avx512 cores=1 tune=" + tune);
        return std::get<CpuSchedule>(heuristic(*parse_spec("layernorm " + spec), *target).device).row_block;
    };
    for (const char* pages :
         {"rows=64 cols=1024", "rows=64 cols=1040", "rows=64 cols=2048 x=bf16", "rows=8 cols=4096"}) {
        CAPTURE(pages);
        CHECK(rows(pages, "generic") > 2);
        CHECK(rows(pages, "zen4") == 2);
    }
    for (const char* others :
         {"rows=64 cols=1000", "rows=64 cols=1024 x=bf16", "rows=900 cols=16", "rows=4 cols=4096"}) {
        CAPTURE(others);
        CHECK(rows(others, "zen4") == rows(others, "generic"));
    }
}

}  // namespace normjit::schedule
