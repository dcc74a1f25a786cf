// SPDX-License-Identifier: Apache-2.0
// The example of README.md, between the marks.
// [example]
#include "normjit/engine.h"

#include <cstdlib>
#include <vector>

using namespace normjit;

int main() {
    const int64_t M = 512, N = 1000;
    std::vector<float> x(M * N, 1.5f), dy(M * N, 0.1f), gamma(N, 1.0f), dx(M * N), dgamma(N), dbeta(N);

    const auto engine = Engine::create();  // the CPU of this machine, one thread per core
    if (!engine) return 3;                 // engine.status().message() says what is missing
    const Spec spec = *parse_spec("layernorm cols=1000 x=f32 stats=recompute");
    const auto kernel = engine->prepare(spec, {.expected_rows = M});  // takes any M, is fastest for about this one

    Arguments a{.rows = M, .tensors = {}, .workspace_bytes = kernel->preferred_workspace(M)};
    a.workspace = std::aligned_alloc(workspace_alignment, static_cast<size_t>(a.workspace_bytes));
    a[Tensor::x] = {x.data(), DType::f32, N}, a[Tensor::dy] = {dy.data(), DType::f32, N};
    a[Tensor::gamma] = {gamma.data(), DType::f32, N}, a[Tensor::dx] = {dx.data(), DType::f32, N};
    a[Tensor::dgamma] = {dgamma.data(), DType::f32, N}, a[Tensor::dbeta] = {dbeta.data(), DType::f32, N};
    const Status status = kernel->launch(a);  // any number of times, from any thread
    std::free(a.workspace);
    return status.ok() ? 0 : 1;
}
// [example]
