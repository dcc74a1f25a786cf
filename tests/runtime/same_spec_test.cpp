// SPDX-License-Identifier: Apache-2.0
#include "python/src/same_spec.h"

#include "c_objects.h"

#include <cstddef>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit::test;

TEST_CASE("same spec: equal texts and no others") {
    const std::string backward = "layernorm cols=96 x=bf16 gamma=f32", forward = "rmsnorm cols=96 pass=forward";
    const std::vector<std::string> texts = {backward,
                                            "rmsnorm cols=96 x=bf16 gamma=f32",
                                            "layernorm cols=97 x=bf16 gamma=f32",
                                            backward + " rows=4",
                                            backward + " stats=recompute",
                                            backward + " stats=recompute eps=1e-3",
                                            backward + " invariant=1",
                                            backward + " slices=any",
                                            backward + " slices=3",
                                            backward + " slices=any per_slice=gamma,beta",
                                            backward + " gamma_offset=1",
                                            backward + " accumulate=dgamma",
                                            backward + " source=xhat",
                                            "layernorm cols=96 x=bf16 gamma=bf16",
                                            "layernorm cols=96 x=bf16 gamma=f32 out=dx",
                                            forward,
                                            forward + " rounding=llama"};
    for (const std::string& a : texts) {
        for (const std::string& b : texts) {
            INFO(a, " and ", b);
            CHECK(normjit::python::is_same(parsed(a.c_str()), parsed(b.c_str())) == (a == b));
        }
    }
}
