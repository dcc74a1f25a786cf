// SPDX-License-Identifier: Apache-2.0
#include "gpu_stream.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace normjit::bench {
namespace {

/// Writes the body of `ceiling`: all loads, and then all stores. Register set v<n> holds chunk n.
class Body {
  public:
    Body(const GpuStream& stream, const GpuStreamMethod& method) : stream_(stream), method_(method) {}

    std::string run() {
        add("cvt.u64.u32 %block, %ctaid.x;\n    cvt.u64.u32 %thread, %tid.x;");
        for (size_t i = 0; i < stream_.reads.size(); ++i) load(i);
        for (size_t i = 0; i < stream_.writes.size(); ++i) store(i);
        if (stream_.writes.empty()) keep_loads();
        return fmt::format(
            "    .reg .pred %p, %q;\n    .reg .b64 %block, %thread, %base, %chunks, %at, %address;\n"
            "    .reg .b32 %v<{}>, %all;\n{}",
            4 * std::max(chunks_, 1), text_);
    }

  private:
    void add(std::string_view line) { text_ += fmt::format("    {}\n", line); }

    /// Sets %p if chunk `step` of this thread exists, and computes the chunk's %address.
    void find_chunk(std::string_view array, int width, int step) {
        const int steps = width * method_.unroll;
        if (step == 0) {
            add(fmt::format("ld.param.u64 %base, [{}];\n    ld.param.u64 %chunks, [{}_chunks];", array, array));
            add(fmt::format("mad.lo.u64 %at, %block, {}, %thread;", steps * method_.threads));
        } else {
            add(fmt::format("add.u64 %at, %at, {};", method_.threads));
        }
        add("setp.lt.u64 %p, %at, %chunks;\n    mad.lo.u64 %address, %at, 16, %base;");
    }

    static std::string words(int chunk) {
        const int first = 4 * chunk;
        return fmt::format("{{%v{}, %v{}, %v{}, %v{}}}", first, first + 1, first + 2, first + 3);
    }

    void load(size_t read) {
        for (int step = 0; step < stream_.reads[read].width * method_.unroll; ++step, ++chunks_) {
            for (int word = 0; word < 4; ++word) add(fmt::format("mov.b32 %v{}, 0;", 4 * chunks_ + word));
            find_chunk(fmt::format("read{}", read), stream_.reads[read].width, step);
            add(fmt::format("@%p ld.global{}.v4.b32 {}, [%address];", method_.evict ? ".cs" : "", words(chunks_)));
        }
    }

    /// Stores the chunks of a matrix. Each stored chunk combines the loaded chunks that belong to it.
    void store(size_t write) {
        const int stores = stream_.writes[write].width * method_.unroll;
        for (int chunk = stores; chunk < chunks_ && write == 0; ++chunk) {
            for (int word = 0; word < 4; ++word) {
                const int to = 4 * (chunk % stores) + word;
                add(fmt::format("xor.b32 %v{0}, %v{0}, %v{1};", to, 4 * chunk + word));
            }
        }
        for (int step = 0; step < stores; ++step) {
            find_chunk(fmt::format("write{}", write), stream_.writes[write].width, step);
            add(fmt::format("@%p st.global{}.v4.b32 [%address], {};", method_.evict ? ".cs" : "",
                            words(step % std::max(chunks_, 1))));
        }
    }

    /// Keeps the compiler from dropping loads whose results nothing else uses.
    void keep_loads() {
        add("mov.b32 %all, 0;\n    ld.param.u64 %address, [read0];");
        for (int word = 0; word < 4 * chunks_; ++word) add(fmt::format("xor.b32 %all, %all, %v{};", word));
        add("setp.eq.u32 %q, %all, 0x9e3779b9;\n    @%q st.global.b32 [%address], %all;");
    }

    const GpuStream& stream_;
    const GpuStreamMethod& method_;
    std::string text_;
    int chunks_ = 0;
};

}  // namespace

std::string stream_ptx(const GpuStream& stream, const GpuStreamMethod& method) {
    std::vector<std::string> parameters;
    const auto add = [&](std::string_view name, size_t count) {
        for (size_t i = 0; i < count; ++i)
            parameters.push_back(fmt::format("    .param .u64 {0}{1}, .param .u64 {0}{1}_chunks", name, i));
    };
    add("read", stream.reads.size());
    add("write", stream.writes.size());
    return fmt::format(R"(.version 7.0
.target sm_80
.address_size 64

.visible .entry ceiling(
{})
{{
{}    ret;
}}

.visible .entry nothing(.param .align 8 .b8 arguments[296])
{{
    ret;
}}
)",
                       fmt::join(parameters, ",\n"), Body(stream, method).run());
}

uint64_t grid_of(const GpuStream& stream, const GpuStreamMethod& method) {
    uint64_t blocks = 1;
    for (const auto* matrices : {&stream.reads, &stream.writes}) {
        for (const GpuStreamMatrix& matrix : *matrices) {
            const auto block = static_cast<uint64_t>(matrix.width * method.unroll * method.threads);
            blocks = std::max(blocks, (matrix.chunks + block - 1) / block);
        }
    }
    return blocks;
}

std::vector<void*> stream_arguments(GpuStream& stream) {
    std::vector<void*> arguments;
    for (auto* matrices : {&stream.reads, &stream.writes}) {
        for (GpuStreamMatrix& matrix : *matrices) {
            arguments.push_back(&matrix.data);
            arguments.push_back(&matrix.chunks);
        }
    }
    return arguments;
}

}  // namespace normjit::bench
