// SPDX-License-Identifier: Apache-2.0
#include "normjit/kernel.h"

#include "allocation.h"
#include "support/aligned_memory.h"

#include "normjit/engine.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit;
using normjit::test::allocations;

namespace {

/// The tensors of a launch: x, dy, gamma and statistics are filled with ones; gradients only have memory.
class Tensors {
  public:
    Tensors(const Kernel& kernel, int64_t rows)
        : memory_(
              std::make_unique<float[]>(static_cast<size_t>(3 * rows * cols_of(kernel) + 4 * cols_of(kernel) + rows))) {
        const int64_t cols = cols_of(kernel);
        float* next = memory_.get();
        arguments.rows = rows;
        const auto take = [&](Tensor tensor, int64_t elements) {
            std::fill_n(next, elements, 1.0f);
            arguments[tensor] = {next, DType::f32, info(tensor).axes.column ? cols : 0};
            next += elements;
        };
        for (Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx}) take(tensor, rows * cols);
        for (Tensor tensor : {Tensor::gamma, Tensor::dgamma, Tensor::dbeta}) take(tensor, cols);
        take(Tensor::rstd, rows);
        arguments.workspace_bytes = kernel.preferred_workspace(rows);
        workspace_ = allocate_aligned(workspace_alignment, arguments.workspace_bytes);
        arguments.workspace = workspace_.get();
    }

    float at(Tensor tensor, int64_t i) const { return static_cast<const float*>(arguments[tensor].data)[i]; }

    Arguments arguments;

  private:
    static int64_t cols_of(const Kernel& kernel) { return kernel.artifact().spec.cols; }

    std::unique_ptr<float[]> memory_;
    AlignedMemory workspace_;
};

/// Returns a kernel with 4 row groups on 2 threads. It outlives its engine.
std::optional<Kernel> make_kernel(const char* spec) {
    const auto engine = Engine::create({.threads = 2, .parallel_for = {}});
    if (!engine.ok()) return std::nullopt;
    const auto artifact = engine->compile(*parse_spec(spec), *parse_schedule("cpu row_groups=4 strip=1"));
    return *engine->load(*artifact);
}

/// A parallel_for that counts its calls and tasks, and runs the tasks in sequence.
struct Caller {
    static constexpr int threads = 3;
    int jobs = 0;
    int64_t tasks = 0;

    static void run(void* self, int64_t count, void (*task)(void*, int64_t), void* context) {
        auto& mine = *static_cast<Caller*>(self);
        ++mine.jobs;
        mine.tasks += count;
        for (int64_t i = 0; i < count; ++i) task(context, i);
    }

    std::optional<Kernel> kernel(const char* spec, const char* schedule) {
        const auto engine = Engine::create({.threads = Caller::threads, .parallel_for = {run, this}});
        if (!engine.ok()) return std::nullopt;
        const auto artifact = engine->compile(*parse_spec(spec), *parse_schedule(schedule));
        if (!artifact.ok()) return std::nullopt;
        return *engine->load(*artifact);
    }
};

}  // namespace

TEST_CASE("launch allocates nothing, on any thread") {
    const auto kernel = make_kernel("rmsnorm cols=1000 out=dx,dgamma,dbeta");
    if (!kernel) return;
    for (int64_t rows : {0, 1, 300}) {
        const Tensors tensors(*kernel, rows);
        const int64_t before = allocations;
        for (int i = 0; i < 10; ++i) CHECK(kernel->launch(tensors.arguments).ok());
        CHECK(allocations == before);
        CHECK(tensors.at(Tensor::dbeta, 0) == static_cast<float>(rows));
    }
}

TEST_CASE("a launch that fails writes nothing") {
    const auto kernel = make_kernel("rmsnorm cols=10");
    if (!kernel) return;
    Tensors tensors(*kernel, 5);
    tensors.arguments.workspace_bytes = 1;
    CHECK(kernel->launch(tensors.arguments).code() == Code::invalid_argument);
    CHECK(tensors.at(Tensor::dx, 0) == 1);
    CHECK(tensors.at(Tensor::dgamma, 0) == 1);
}

TEST_CASE("the strides of a single row or slice may be any numbers") {
    const std::optional<Kernel> kernel = make_kernel("rmsnorm cols=7");
    REQUIRE(kernel);
    Tensors tensors(*kernel, 1);
    for (const Tensor tensor : {Tensor::x, Tensor::dy, Tensor::dx})
        tensors.arguments[tensor].row_stride = tensors.arguments[tensor].slice_stride = INT64_MAX;
    REQUIRE(kernel->launch(tensors.arguments).ok());
    CHECK(tensors.at(Tensor::dx, 6) == 0);
    CHECK(tensors.at(Tensor::dgamma, 6) == 1);
}

TEST_CASE("less workspace means fewer partials, but the same sums") {
    const auto kernel = make_kernel("rmsnorm cols=10");
    if (!kernel) return;
    CHECK(kernel->preferred_workspace(50) == 4 * kernel->minimum_workspace(50));
    Tensors tensors(*kernel, 50);
    for (int64_t groups : {1, 2, 3, 4, 100}) {
        tensors.arguments.workspace_bytes = groups * kernel->minimum_workspace(50);
        CHECK(kernel->launch(tensors.arguments).ok());
        CHECK(tensors.at(Tensor::dgamma, 9) == 50);
    }
}

TEST_CASE("the caller's threads run the tasks of large launches only") {
    Caller caller;
    const auto kernel = caller.kernel("rmsnorm cols=2000", "cpu row_groups=4 strip=1");
    if (!kernel) return;
    const Tensors small(*kernel, 4), large(*kernel, 100);
    CHECK(kernel->launch(small.arguments).ok());
    CHECK(caller.jobs == 0);
    CHECK(kernel->launch(large.arguments).ok());
    CHECK(caller.jobs == 1);
    CHECK(caller.tasks == Caller::threads);
    CHECK(large.at(Tensor::dgamma, 1999) == 100);
}

TEST_CASE("a parallel_for that omits tasks makes a launch fail") {
    struct Careless {
        int64_t most = 0;  ///< how many tasks of a job are run
        int64_t times = 1;
        bool first_only = false;  ///< the first task is run in place of each
        static void run(void* self, int64_t count, void (*task)(void*, int64_t), void* context) {
            const auto& [most, times, first_only] = *static_cast<Careless*>(self);
            for (int64_t i = 0; i < times * std::min(most, count); ++i) task(context, first_only ? 0 : i % count);
        }
    } careless;
    const auto engine = Engine::create({.threads = 3, .parallel_for = {Careless::run, &careless}});
    if (!engine.ok()) return;
    const Spec spec = *parse_spec("rmsnorm cols=50000 x=f32");
    for (const char* schedule : {"cpu row_groups=4 strip=1", "cpu row_block=2 column_ranges=5 split_rows=100",
                                 "cpu row_block=2 column_ranges=3 thread_groups=2 split_rows=100"}) {
        CAPTURE(schedule);
        const auto artifact = engine->compile(spec, *parse_schedule(schedule));
        REQUIRE(artifact.ok());
        const Kernel kernel = *engine->load(*artifact);
        const Tensors tensors(kernel, 9);
        for (const int64_t most : {0, 1}) {
            careless.most = most;
            const Status status = kernel.launch(tensors.arguments);
            CHECK(status.code() == Code::failed);
            CHECK(status.message().starts_with("launch: parallel_for returned before all tasks had run, " +
                                               std::to_string(most) + " of "));
        }
        careless.most = INT64_MAX;
        careless.times = 2;
        const Status status = kernel.launch(tensors.arguments);
        CHECK(status.code() == Code::failed);
        CHECK(status.message().starts_with("launch: parallel_for ran tasks more than once, "));
        careless.times = 1;
        for (const bool first_only : {false, true}) {  // the first task does the work of those that are not run
            careless.first_only = first_only;
            const Tensors fresh(kernel, 9);
            CHECK(kernel.launch(fresh.arguments).ok());
            CHECK(fresh.at(Tensor::dgamma, 49999) == 9);
        }
        careless.first_only = false;
    }
}

TEST_CASE("a parallel_for that runs a task that does not exist makes a launch fail") {
    struct Astray {
        int64_t first = 0;  ///< the first task that is run; all later ones are run as well
        int64_t more = 0;   ///< how many tasks are run beyond the last
        static void run(void* self, int64_t count, void (*task)(void*, int64_t), void* context) {
            const auto& [first, more] = *static_cast<Astray*>(self);
            for (int64_t i = first; i < first + count + more; ++i) task(context, i);
        }
    } astray;
    const auto engine = Engine::create({.threads = 3, .parallel_for = {Astray::run, &astray}});
    if (!engine.ok()) return;
    for (const char* schedule : {"cpu row_groups=4 strip=1", "cpu row_block=2 column_ranges=5 split_rows=100",
                                 "cpu row_block=2 column_ranges=3 thread_groups=2 split_rows=100"}) {
        CAPTURE(schedule);
        const auto artifact = engine->compile(*parse_spec("rmsnorm cols=50000 x=f32"), *parse_schedule(schedule));
        REQUIRE(artifact.ok());
        const Kernel kernel = *engine->load(*artifact);
        const Tensors tensors(kernel, 9);
        for (const auto& [first, more] : {std::pair<int64_t, int64_t>{-1, 0},
                                          {-1, 1},
                                          {1, 0},
                                          {0, 1},
                                          {-100, 0},
                                          {INT64_MIN, 0},
                                          {int64_t{1} << 32, 0}}) {
            astray.first = first, astray.more = more;
            const Status status = kernel.launch(tensors.arguments);
            CHECK(status.code() == Code::failed);
            CHECK(status.message().starts_with("launch: parallel_for ran task "));
            CHECK(status.message().find(", which does not exist: there are 0 to ") != std::string::npos);
        }
        astray = {};
        CHECK(kernel.launch(tensors.arguments).ok());
        CHECK(tensors.at(Tensor::dgamma, 49999) == 9);
    }
}

TEST_CASE("few rows are split by columns") {
    Caller caller;
    const auto kernel =
        caller.kernel("rmsnorm cols=50000 x=f32", "cpu row_groups=4 row_block=2 column_ranges=5 split_rows=3");
    if (!kernel) return;
    const Tensors few(*kernel, 3), more(*kernel, 4);
    CHECK(kernel->launch(few.arguments).ok());
    CHECK(caller.jobs == 1);
    CHECK(caller.tasks == Caller::threads);
    CHECK(few.at(Tensor::dgamma, 49999) == 3);
    CHECK(kernel->launch(more.arguments).ok());
    CHECK(caller.jobs == 2);
    CHECK(caller.tasks == 2 * Caller::threads);
    CHECK(more.at(Tensor::dgamma, 49999) == 4);
}

TEST_CASE("thread groups split rows and columns") {
    const std::string schedule = "cpu row_block=2 column_ranges=3 thread_groups=2 split_rows=100";
    for (const bool overlaps : {false, true}) {
        Caller caller;
        const auto kernel =
            caller.kernel("rmsnorm cols=50000 x=f32", (schedule + (overlaps ? " overlap=1" : "")).c_str());
        if (!kernel && overlaps) continue;  // code for this host does not overlap sweeps
        REQUIRE(kernel);
        const Tensors some(*kernel, 9), two(*kernel, 2);
        CHECK(kernel->launch(some.arguments).ok());
        CHECK(caller.jobs == 1);
        CHECK(caller.tasks == Caller::threads);
        CHECK(some.at(Tensor::dgamma, 0) == 9);
        CHECK(some.at(Tensor::dgamma, 49999) == 9);
        CHECK(kernel->launch(two.arguments).ok());
        CHECK(caller.jobs == 2);  // there is one group, with one block of rows
        CHECK(two.at(Tensor::dgamma, 49999) == 2);
    }
}
