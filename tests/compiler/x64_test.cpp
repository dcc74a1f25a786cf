// SPDX-License-Identifier: Apache-2.0
// Tests the limits of x86-64 code: offsets in an instruction, general registers.
#include "normjit/compile.h"

#include <doctest/doctest.h>

using namespace normjit;

namespace {

const Target host = *parse_target("x86-64-avx512 bf16=1");

Status compile_text(const char* spec_text, const Schedule& schedule) {
    return compile(*parse_spec(spec_text), schedule, host).status();
}

}  // namespace

TEST_CASE("columns of two gigabytes and more compile") {
    for (const char* text : {"layernorm cols=536870848", "layernorm cols=536870849", "layernorm cols=2147483647",
                             "layernorm cols=268435425 x=f64", "rmsnorm cols=2147483647 x=bf16"}) {
        CAPTURE(text);
        const Status status = compile_text(text, heuristic(*parse_spec(text), host));
        CHECK_MESSAGE(status.ok(), status.message());
    }
}

TEST_CASE("pointers beyond the general registers are in the frame") {
    const char* text =
        "layernorm cols=200 x=bf16 gamma=f32 beta=f32 dresidual=bf16 source=y dresidual_in=f32 "
        "out=dx,dresidual_in,dgamma,dbeta";
    for (const char* schedule : {"cpu strip=1 unroll=1 cache_elements=1 row_block=4 prefetch=2",
                                 "cpu strip=1 unroll=1 cache_elements=1 row_block=4 prefetch=1 nontemporal_kb=0",
                                 "cpu strip=1 unroll=1 overlap=1 row_block=2 nontemporal_kb=0",
                                 "cpu strip=1 unroll=1 row_block=4 prefetch=2 split_rows=100 column_ranges=3"}) {
        CAPTURE(schedule);
        const Status status = compile_text(text, *parse_schedule(schedule));
        CHECK_MESSAGE(status.ok(), status.message());
    }
}
