// SPDX-License-Identifier: Apache-2.0
// The behaviour on which programs and texts of earlier versions rely. Lines are only ever added here: a line that has
// to change means that earlier programs break.
#include "c_objects.h"

#include "normjit/normjit.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace normjit::test;

namespace {

/// normjit_spec as it was before formulas existed, followed by other memory of the program.
struct ShortSpec {
    alignas(normjit_spec) std::array<unsigned char, sizeof(normjit_spec)> bytes;

    ShortSpec() {
        bytes.fill(0x7f);
        const size_t size = offsetof(normjit_spec, text);
        std::memcpy(bytes.data(), &size, sizeof size);
    }
    normjit_spec* get() { return reinterpret_cast<normjit_spec*>(bytes.data()); }
    bool is_untouched_behind() const {
        for (size_t i = offsetof(normjit_spec, text); i < bytes.size(); ++i) {
            if (bytes[i] != 0x7f) return false;
        }
        return true;
    }
};

const char* const gated =
    "norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] "
    "{ rstd = rsqrt(row_mean(x * x) + eps); y = x * rstd * gamma * sigmoid(z) }";

}  // namespace

#define AT(field) offsetof(Struct, field)

TEST_CASE("fields of structs stay where they are") {
    using Places = std::vector<size_t>;
    {
        using Struct = normjit_spec;
        const Places now = {AT(size),     AT(norm),         AT(source),    AT(stats),      AT(rows), AT(cols),
                            AT(eps),      AT(gamma_offset), AT(dtypes),    AT(accumulate), AT(pass), AT(invariant),
                            AT(rounding), AT(slices),       AT(per_slice), AT(text)};
        CHECK(now == Places{0, 8, 12, 16, 24, 32, 40, 48, 56, 120, 124, 128, 132, 136, 144, 152});
    }
    {
        using Struct = normjit_operand;
        const Places now = {AT(size),    AT(tensor),     AT(dtype), AT(is_output), AT(per_slice),
                            AT(per_row), AT(accumulate), AT(cols),  AT(name)};
        CHECK(now == Places{0, 8, 12, 16, 20, 24, 28, 32, 40});
    }
    {
        using Struct = normjit_engine_options;
        const Places now = {AT(size),
                            AT(device),
                            AT(threads),
                            AT(parallel_for),
                            AT(allocator),
                            AT(log),
                            AT(cache_folder),
                            AT(cache_bytes),
                            AT(packs),
                            AT(pack_count),
                            AT(record_files),
                            AT(record_file_count),
                            AT(no_shipped_records),
                            AT(tune),
                            AT(tune_seconds),
                            AT(cache_trust_others),
                            AT(thread_policy),
                            AT(most_kernels),
                            AT(most_kernel_bytes),
                            AT(openmp_user)};
        CHECK(now == Places{0, 8, 16, 24, 40, 64, 80, 88, 96, 104, 112, 120, 128, 132, 136, 144, 148, 152, 160, 168});
    }
    {
        using Struct = normjit_prepare_options;
        const Places now = {AT(size), AT(on_miss), AT(schedule), AT(stream)};
        CHECK(now == Places{0, 8, 16, 24});
    }
    {
        using Struct = normjit_argument;
        const Places now = {AT(data), AT(cols), AT(row_stride), AT(dtype), AT(reserved)};
        CHECK(now == Places{0, 8, 16, 24, 28});
        CHECK(sizeof(Struct) == 32);  // it is an element of an array
    }
    {
        using Struct = normjit_arguments;
        const Places now = {AT(size),   AT(rows),           AT(tensors), AT(workspace),    AT(workspace_bytes),
                            AT(stream), AT(dlpack_tensors), AT(slices),  AT(slice_strides)};
        CHECK(now == Places{0, 8, 16, 528, 536, 544, 552, 560, 568});
    }
}

TEST_CASE("numbers keep their meanings") {
    CHECK(NORMJIT_TENSORS == 16);
    const char* const names[] = {"x",      "dy",    "dresidual",    "gamma", "beta", "mean",     "rstd",     "dx",
                                 "dgamma", "dbeta", "dresidual_in", "y",     "h",    "residual", "rowscale", "amax"};
    for (int32_t i = 0; i < int32_t{std::size(names)}; ++i) {
        REQUIRE(normjit_tensor_name(i) != nullptr);
        CHECK(std::string(normjit_tensor_name(i)) == names[i]);
    }
    normjit_spec spec = parsed("rmsnorm cols=8 x=f64 source=xhat dy=f64");
    CHECK((spec.norm == 1 && spec.source == 1 && spec.pass == 0 && spec.dtypes[NORMJIT_X] == 3));
    spec = parsed("layernorm pass=forward cols=8 x=f16 gamma=bf16 beta=f32");
    CHECK((spec.norm == 0 && spec.pass == 1 && spec.dtypes[NORMJIT_X] == 2 && spec.dtypes[NORMJIT_GAMMA] == 1));
    CHECK((spec.dtypes[NORMJIT_BETA] == 0 && spec.dtypes[NORMJIT_RESIDUAL] == -1));
    CHECK(parsed("rmsnorm cols=8 stats=recompute rounding=llama").rounding == 1);
    CHECK((NORMJIT_GRADIENT_DERIVED == 0 && NORMJIT_GRADIENT_ZERO == 1 && NORMJIT_GRADIENT_ABSENT == 2));
}

TEST_CASE("a program with a shorter spec works, and is told that it has no formulas") {
    ShortSpec spec;
    REQUIRE(normjit_spec_parse("rmsnorm cols=40 x=f32", spec.get()) == NORMJIT_OK);
    CHECK(spec.get()->size == offsetof(normjit_spec, text));
    CHECK(text_of(*spec.get()) == "rmsnorm cols=40");
    int32_t number = -1;
    CHECK((normjit_spec_tensor(spec.get(), "dgamma", &number) == NORMJIT_OK && number == NORMJIT_DGAMMA));
    normjit_artifact* made = nullptr;
    CHECK(normjit_compile("x86-64-avx512", spec.get(), nullptr, &made) == NORMJIT_OK);
    normjit_artifact_destroy(made);
    const std::string text = std::string(gated) + " cols=40";
    CHECK(normjit_spec_parse(text.c_str(), spec.get()) == NORMJIT_INVALID_ARGUMENT);
    CHECK(std::string(normjit_last_error()) ==
          "spec: size: this program was built with a normjit_spec that has no formulas");
    CHECK(text_of(*spec.get()) == "rmsnorm cols=40");
    CHECK(spec.is_untouched_behind());
}

TEST_CASE("the text of a spec says all") {
    const std::string text = std::string(gated) + " cols=1024 x=bf16 gamma=f32";
    normjit_spec spec = parsed(text.c_str());
    CHECK(spec.text == text.c_str());  // the pointer is the caller's, who keeps the text
    CHECK(text_of(spec) == text);
    spec.cols = 3, spec.norm = 77, spec.pass = 9, spec.dtypes[NORMJIT_X] = 40;  // these are ignored
    CHECK(text_of(spec) == text);
    normjit_spec bare{};
    bare.size = sizeof bare, bare.text = text.c_str();
    CHECK(text_of(bare) == text);
    bare.text = "rmsnorm cols=8 x=bf16";  // the text may also be that of a norm with a name
    CHECK(text_of(bare) == "rmsnorm cols=8 x=bf16");
    bare.text = "norm";
    CHECK(text_of(bare).starts_with("spec: formula: "));
    int32_t z = -1, dz = -1, x = -1;
    CHECK((normjit_spec_tensor(&spec, "z", &z) == NORMJIT_OK && normjit_spec_tensor(&spec, "dz", &dz) == NORMJIT_OK));
    CHECK((normjit_spec_tensor(&spec, "x", &x) == NORMJIT_OK && x == NORMJIT_X));
    CHECK((z >= 0 && dz >= 0 && z != dz && z < NORMJIT_TENSORS && dz < NORMJIT_TENSORS));
}

TEST_CASE("texts of specs keep their meaning") {
    static constexpr const char* texts[][2] = {
        // A text, and the shortest text with the same meaning; "" stands for the text itself.
        {"layernorm cols=4096 x=bf16 gamma=f32 out=dx,dgamma,dbeta", "layernorm cols=4096 x=bf16 gamma=f32"},
        {"rmsnorm rows=7 cols=9 x=f64 out=dgamma", ""},
        {"rmsnorm cols=3 stats=recompute eps=0.25 gamma_offset=1", ""},
        {"layernorm slices=8 rows=4096 cols=1152 x=bf16 per_slice=gamma,beta gamma_offset=1", ""},
        {"layernorm pass=forward cols=3 x=bf16 residual=f32 rowscale=f32 out=mean,y,h stats=bf16 eps=0.25", ""},
        {"rmsnorm cols=3 x=f16 rounding=llama invariant=1", ""},
        {"norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] {\n    rstd = rsqrt(row_mean(x * x) + eps)\n"
         "    y = x * rstd * gamma * sigmoid(z)\n}\ncols=1024 x=bf16 gamma=f32 out=dz,dx,dgamma",
         "norm gated(x[M,N], z[M,N], gamma?[N]) -> y[M,N], rstd?[M] { rstd = rsqrt(row_mean(x * x) + eps); "
         "y = x * rstd * gamma * sigmoid(z) } cols=1024 x=bf16 gamma=f32"},
        {"norm gated(x[M,N],z[M,N])->y[M,N],rstd?[M]{rstd=rsqrt(row_mean(x*x)+eps);y=x*rstd*silu(z)} pass=forward "
         "cols=1024 x=f16 z=bf16 out=y,rstd eps=1e-06",
         "norm gated(x[M,N], z[M,N]) -> y[M,N], rstd?[M] { rstd = rsqrt(row_mean(x * x) + eps); "
         "y = x * rstd * silu(z) } pass=forward cols=1024 x=f16 z=bf16 out=rstd,y eps=1e-06"},
        {"norm all(a[M,N], b[M,N]) -> y[M,N] { s = sqrt(abs(a)) + exp(0 - a) + log(abs(b) + 1) + tanh(a) + erf(b) + "
         "softplus(a) + gelu(b) + gelu_tanh(a) + silu(b); y = min(a, b) * max(s, 0.5) / (1 + sigmoid(a)) - "
         "round_bf16(b) + round_f16(a) } pass=forward cols=5",
         ""},
        {"norm others(x[M,N], g[N]) -> y[M,N], s[N], m[] { y = div_or_zero(compare(x, like(1, x)), g) * row_sum(x) / "
         "N; "
         "s = col_sum(y); m = max_abs(y) } pass=forward cols=9 x=f64 accumulate=s",
         ""},
        {"norm heads(x[S,M,N], g[S,N]) -> y[S,M,N] { y = x * g * rsqrt(row_mean(x * x) + eps) } slices=any cols=64 "
         "x=bf16 "
         "save=none invariant=1",
         "norm heads(x[S,M,N], g[S,N]) -> y[S,M,N] { y = x * g * rsqrt(row_mean(x * x) + eps) } slices=any cols=64 "
         "x=bf16 "
         "invariant=1"},
        {"gated_rmsnorm rows=64 cols=128 x=bf16", ""},
    };
    for (const auto& [text, shortest] : texts) {
        const std::string wanted = *shortest == '\0' ? text : shortest;
        CHECK(text_of(parsed(text)) == wanted);
        CHECK(text_of(parsed(wanted.c_str())) == wanted);
    }
}
