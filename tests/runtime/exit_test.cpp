// SPDX-License-Identifier: Apache-2.0
// Threads may outlive main(), and a program's static objects may be destroyed after those that the library made later.
#include "normjit/compile.h"
#include "normjit/engine.h"

#include <cstdlib>
#include <functional>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace normjit;

namespace {

/// Works when almost all static objects of the process have been destroyed, because it was constructed before them.
struct Last {
    std::function<bool()> work;
    ~Last() {
        if (work) _exit(work() ? 0 : 1);
    }
} last;

/// Makes kernels with every back end for a CPU, and a plan for a GPU.
bool makes_kernels(int64_t cols) {
    Spec spec = *parse_spec("layernorm cols=1 rows=8 stats=recompute");
    spec.cols = cols;
    for (const char* text : {"x86-64-avx512", "x86-64-v3", "aarch64", "x86-64 backend=portable"}) {
        const Target target = *parse_target(text);
        const Code code = compile(spec, heuristic(spec, target), target).status().code();
        if (code != Code::ok && code != Code::unavailable) return false;
    }
    const Target gpu = *parse_target("sm_90");
    const auto engine = Engine::create({.cache = {.folder = ""}});
    return emit_stage(spec, heuristic(spec, gpu), gpu, "cuda").ok() && engine.ok() && engine->prepare(spec).ok() &&
           !parse_spec("nonsense(x[M,N]) -> y[M,N] { y = nonsense(x) }").ok();
}

}  // namespace

TEST_CASE("kernels are made until the process has ended") {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(60);  // ends the process if it hangs
        last.work = [] { return makes_kernels(200); };
        std::exit(makes_kernels(100) ? 2 : 3);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
}
