// SPDX-License-Identifier: Apache-2.0
#include "normjit/kernel_name.h"

#include "plan/plan.h"
#include "random_spec.h"

#include <algorithm>
#include <set>
#include <string>

#include <doctest/doctest.h>

namespace normjit {

namespace {

bool is_identifier(const std::string& name) {
    return std::ranges::all_of(name,
                               [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

TEST_CASE("a kernel's name says norm, pass, type of x, columns and phase") {
    const auto name_of = [](const char* spec, const char* phase) { return kernel_name(*parse_spec(spec), phase); };
    CHECK(name_of("rmsnorm cols=4096 x=bf16", "rows") == "normjit_rmsnorm_backward_bf16_4096_rows");
    CHECK(name_of("layernorm cols=4096 x=bf16", "final_reduce") == "normjit_layernorm_backward_bf16_4096_final_reduce");
    CHECK(name_of("layernorm pass=forward cols=8192 rows=3 slices=2 x=f32 gamma=bf16", "columns_unaligned") ==
          "normjit_layernorm_forward_f32_8192_columns_unaligned");
    const Spec widest = *parse_spec("layernorm cols=" + std::to_string(max_cols) + " x=bf16");
    for (const char* phase :
         {"rows_nontemporal", "last_sweep_nontemporal", "both_sweeps_nontemporal", "row_sums_unaligned"})
        CHECK(kernel_name(widest, phase).size() <= most_kernel_name_bytes);
}

TEST_CASE("all kernels of a GPU have such names, which differ within an artifact") {
    test::Random random(test::seed());
    for (int64_t i = 0; i < test::rounds(500); ++i) {
        const Spec spec = test::random_spec(random, {.max_cols = random.chance(50) ? 5000 : max_cols});
        const Target target = *parse_target(random.pick({"sm_80", "sm_90", "sm_120"}));
        const auto plan = plan::make(spec, heuristic(spec, target), target);
        CAPTURE(to_text(spec));
        REQUIRE(plan.ok());
        std::set<std::string> names;
        for (const plan::PlannedPath& planned : plan->cuda().paths) {
            for (const CudaLaunch& launch : planned.path.launches) {
                const bool is_new = names.insert(launch.entry).second;
                REQUIRE((is_new || launch.entry == kernel_name(spec, "final_reduce")));  // the paths share it
                REQUIRE(launch.entry.starts_with(kernel_name(spec, "")));
                REQUIRE(is_identifier(launch.entry));
                REQUIRE(launch.entry.size() <= most_kernel_name_bytes);
            }
        }
    }
}

}  // namespace normjit
