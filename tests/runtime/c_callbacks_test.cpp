// SPDX-License-Identifier: Apache-2.0
// Functions that a C program lends to an engine: threads, memory, a log.
#include "c_objects.h"
#include "support/aligned_memory.h"
#include "threads.h"

#include "normjit/normjit.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pthread.h>

using namespace normjit::test;

TEST_CASE("c: prepare, launch, and the caller's threads, memory and log") {
    struct Lent {
        std::vector<std::string> lines;
        std::vector<int64_t> allocated;
        int64_t released = 0;
        int64_t tasks = 0;
        bool refuse = false;
    } lent;
    normjit_engine_options options{};
    options.log = {[](void* self, int32_t, const char* line) { static_cast<Lent*>(self)->lines.emplace_back(line); },
                   &lent};
    options.allocator = {[](void* self, int64_t bytes, void*) -> void* {
                             auto& mine = *static_cast<Lent*>(self);
                             if (mine.refuse) return nullptr;
                             mine.allocated.push_back(bytes);
                             return std::aligned_alloc(64, static_cast<size_t>(bytes));
                         },
                         [](void* self, void* memory, int64_t bytes, void*) {
                             static_cast<Lent*>(self)->released += bytes;
                             std::free(memory);
                         },
                         &lent};
    options.parallel_for = {[](void* self, int64_t count, void (*task)(void*, int64_t), void* context) {
                                static_cast<Lent*>(self)->tasks += count;
                                for (int64_t i = 0; i < count; ++i) task(context, i);
                            },
                            &lent};
    options.threads = 4;
    EngineHandle engine = engine_with(options);
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, sums), again = prepared(engine, sums);
    CHECK(lent.lines.size() == 1);  // it was compiled once
    int64_t least = -1, best = -1;
    CHECK(normjit_kernel_workspace_bytes(kernel.get(), 3000, 0, &least, &best) == NORMJIT_OK);
    CHECK(best >= least);

    Ones ones(3000, 40);
    CHECK_MESSAGE(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK, normjit_last_error());
    CHECK(ones.dgamma == std::vector<float>(40, 3000));
    CHECK(lent.allocated == std::vector<int64_t>{best});
    CHECK(lent.released == best);
    CHECK(lent.tasks > 0);

    lent.refuse = true;
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_FAILED);
    CHECK(std::string(normjit_last_error()) ==
          "launch: workspace: the engine's allocator provided none of " + std::to_string(best) + " bytes");
    std::vector<char> memory(static_cast<size_t>(best) + 64);
    void* start = memory.data();
    size_t space = memory.size();
    ones.arguments.workspace = std::align(64, static_cast<size_t>(best), start, space);
    ones.arguments.workspace_bytes = best;
    engine.reset();  // kernels live on
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_OK);
    ones.arguments.tensors[NORMJIT_X].dtype = NORMJIT_F64;
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "launch: x: dtype is f64; the kernel was compiled for f32");
    ones.arguments.tensors[NORMJIT_X].dtype = 77;
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "launch: x: dtype: 77; must be 0 to 7");
    ones.arguments.tensors[NORMJIT_X].reserved = -1;
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) == "launch: x: reserved: -1; must be 0");
}

TEST_CASE("c: anything that a callback throws becomes a status") {
    const auto throw_number = [](void*, int64_t, void*) -> void* { throw 42; };
    normjit_engine_options options{};
    options.allocator = {throw_number, [](void*, void*, int64_t, void*) {}, nullptr};
    const EngineHandle engine = engine_with(options);
    if (!engine) return;
    const KernelHandle kernel = prepared(engine, sums);
    Ones ones(100, 40);
    CHECK(normjit_launch(kernel.get(), &ones.arguments) == NORMJIT_FAILED);
    CHECK(std::string(normjit_last_error()) == "an exception of an unknown type");
}

TEST_CASE("c: a thread that is cancelled in a callback of a launch goes on until it leaves") {
    static const auto cancel = [] {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    };
    const auto allocate = [](void*, int64_t bytes, void*) {
        cancel();
        return std::aligned_alloc(64, static_cast<size_t>(bytes));
    };
    normjit_engine_options lends_memory{}, lends_threads{};
    lends_memory.allocator = {allocate, [](void*, void* memory, int64_t, void*) { std::free(memory); }, nullptr};
    lends_threads.threads = 2;
    lends_threads.parallel_for.run = [](void*, int64_t count, void (*task)(void*, int64_t), void* context) {
        cancel();
        for (int64_t i = 0; i < count; ++i) task(context, i);
    };
    for (const normjit_engine_options& options : {lends_memory, lends_threads}) {
        const EngineHandle engine = engine_with(options);
        if (!engine) return;
        const KernelHandle kernel = prepared(engine, sums);
        Ones ones(3000, 40);
        int64_t bytes = 0;
        CHECK(normjit_kernel_workspace_bytes(kernel.get(), 3000, 0, nullptr, &bytes) == NORMJIT_OK);
        const auto memory = normjit::allocate_aligned(64, bytes);
        if (options.parallel_for.run != nullptr) ones.arguments.workspace = memory.get();
        ones.arguments.workspace_bytes = bytes;
        normjit_status status = NORMJIT_FAILED;
        CHECK(is_cancelled_after([&] { status = normjit_launch(kernel.get(), &ones.arguments); }));
        CHECK(status == NORMJIT_OK);
        CHECK(ones.dgamma == std::vector<float>(40, 3000));
    }
}
