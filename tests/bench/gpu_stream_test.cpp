// SPDX-License-Identifier: Apache-2.0
#include "gpu_stream.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit::bench;

namespace {

int64_t count(std::string_view text, std::string_view part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++found;
    return found;
}

GpuStream stream_of(const std::vector<int>& reads, const std::vector<int>& writes) {
    GpuStream stream;
    uint64_t chunks = 1000;
    for (const int width : reads) stream.reads.push_back({nullptr, chunks++, width});
    for (const int width : writes) stream.writes.push_back({nullptr, chunks++, width});
    return stream;
}

}  // namespace

TEST_CASE("a pass has a parameter and an argument for the address and the size of each matrix") {
    for (const GpuStream& given : {stream_of({1}, {}), stream_of({1, 2}, {1}), stream_of({1, 1, 2, 4, 1}, {1, 2, 1}),
                                   stream_of(std::vector<int>(12, 1), std::vector<int>(4, 1))}) {
        GpuStream stream = given;
        const std::vector<void*> arguments = stream_arguments(stream);
        std::vector<GpuStreamMatrix*> matrices;
        for (auto* part : {&stream.reads, &stream.writes})
            for (GpuStreamMatrix& matrix : *part) matrices.push_back(&matrix);
        REQUIRE(arguments.size() == 2 * matrices.size());
        for (size_t i = 0; i < matrices.size(); ++i) {
            CHECK(arguments[2 * i] == &matrices[i]->data);
            CHECK(arguments[2 * i + 1] == &matrices[i]->chunks);
        }
        for (const GpuStreamMethod& method : gpu_stream_methods) {
            const std::string ptx = stream_ptx(stream, method);
            CHECK(count(ptx, ".param .u64 ") == static_cast<int64_t>(arguments.size()));
            int64_t loads = 0, stores = 0;
            for (const GpuStreamMatrix& matrix : stream.reads) loads += matrix.width * method.unroll;
            for (const GpuStreamMatrix& matrix : stream.writes) stores += matrix.width * method.unroll;
            CHECK(count(ptx, "@%p ld.global") == loads);
            CHECK(count(ptx, "@%p st.global") == stores);
        }
    }
}

TEST_CASE("a grid covers the largest matrix") {
    const GpuStreamMethod method{"256 threads x 2", 256, 2, false};
    CHECK(grid_of({.reads = {{nullptr, 512, 1}}, .writes = {{nullptr, 513, 1}}}, method) == 2);
    CHECK(grid_of({.reads = {{nullptr, 512, 1}, {nullptr, 2049, 2}}, .writes = {}}, method) == 3);
    CHECK(grid_of({.reads = {{nullptr, 0, 1}}, .writes = {}}, method) == 1);
}
