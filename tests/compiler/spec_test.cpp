// SPDX-License-Identifier: Apache-2.0
#include "normjit/spec.h"

#include "random_spec.h"
#include "support/text.h"

#include <limits>
#include <string>

#include <doctest/doctest.h>

namespace normjit {

namespace {

struct Example {
    std::string_view text;
    std::string_view expected;  ///< the canonical text, or the error
};

std::string read_spec(std::string_view text) {
    const auto spec = parse_spec(text);
    return spec ? to_text(*spec) : spec.status().message();
}

void check_answers(std::initializer_list<Example> examples) {
    for (const Example& example : examples) {
        CAPTURE(example.text);
        CHECK(read_spec(example.text) == example.expected);
    }
}

/// Returns the inputs that a launch reads, in the order of tensors.def.
std::string reads(std::string_view text) {
    const auto spec = parse_spec(text);
    REQUIRE_MESSAGE(spec.ok(), text);
    std::string names;
    for (Tensor tensor : all_tensors) {
        if (spec->reads(tensor)) names += (names.empty() ? "" : " ") + std::string(name(tensor));
    }
    return names;
}

}  // namespace

TEST_CASE("a text becomes the spec that it describes") {
    const auto spec = parse_spec("layernorm rows=4096 cols=768 x=bf16 gamma=f32 dy=f16 stats=bf16 dresidual=bf16");
    REQUIRE(spec.ok());
    Spec expected;
    expected.rows = 4096;
    expected.cols = 768;
    for (const Tensor tensor : {Tensor::x, Tensor::dx, Tensor::dresidual}) expected.set(tensor, DType::bf16);
    for (const Tensor tensor : {Tensor::mean, Tensor::rstd}) expected.set(tensor, DType::bf16);
    expected.set(Tensor::dy, DType::f16);
    for (const Tensor tensor : {Tensor::gamma, Tensor::dgamma, Tensor::dbeta}) expected.set(tensor, DType::f32);
    CHECK(*spec == expected);
    CHECK(hash(*spec) == hash(expected));
    CHECK(validate(expected).ok());
}

TEST_CASE("the gradient may be written twice, and recomputed statistics are outputs") {
    check_answers({
        {"layernorm cols=8 out=dresidual_in,dx", "layernorm cols=8 out=dx,dresidual_in"},
        {"rmsnorm cols=8 x=bf16 out=dx,dresidual_in dresidual_in=f32",
         "rmsnorm cols=8 x=bf16 dresidual_in=f32 out=dx,dresidual_in"},
        {"rmsnorm cols=8 x=bf16 dresidual=f32 dresidual_in=f32 out=dresidual_in",
         "rmsnorm cols=8 x=bf16 dresidual=f32 out=dresidual_in"},
        {"layernorm cols=8 stats=recompute out=rstd,dx,mean", "layernorm cols=8 out=mean,rstd,dx stats=recompute"},
        {"layernorm cols=8 stats=recompute,f32 out=dx,mean", "layernorm cols=8 out=mean,dx stats=recompute"},
        {"layernorm cols=8 x=bf16 stats=recompute,bf16 out=dx,mean",
         "layernorm cols=8 x=bf16 out=mean,dx stats=recompute,bf16"},
        {"rmsnorm cols=8 stats=recompute out=dbeta,rstd", "rmsnorm cols=8 out=rstd,dbeta stats=recompute"},
        {"rmsnorm cols=8 stats=recompute out=dx,mean", "spec: out=dx,mean: rmsnorm has no mean"},
        {"layernorm cols=8 out=dx,mean", "spec: out=dx,mean: mean and rstd are written with stats=recompute only"},
        {"layernorm cols=8 source=xhat stats=recompute out=dgamma,rstd",
         "spec: out=dgamma,rstd: statistics of x are known from source=x only"},
        {"layernorm cols=8 stats=recompute,f32",
         "spec: stats=recompute,f32: is the type of mean and rstd, but out names neither"},
        {"layernorm cols=8 stats=recompute,f8 out=dx,mean",
         "spec: stats=recompute,f8: recompute, needs one of f32 bf16 f16 f64"},
        {"layernorm cols=8 out=dgamma dresidual=f32",
         "spec: dresidual=f32: is added into dx and dresidual_in, and out names neither them nor amax"},
        {"layernorm cols=8 dresidual_in=f32", "spec: dresidual_in=f32: dresidual_in is not an output; name it in out="},
        {"layernorm cols=8 stats=recompute out=mean",
         "spec: out=mean: must name one of: dx dresidual_in dgamma dbeta amax"},
    });
    CHECK(reads("layernorm cols=8 stats=recompute out=dbeta,mean") == "x dy");
    CHECK(reads("layernorm cols=8 out=dresidual_in") == "x dy gamma mean rstd");
}

TEST_CASE("the largest magnitude of dx is an output in the compute type") {
    check_answers({
        {"layernorm cols=8 x=bf16 out=amax", "layernorm cols=8 x=bf16 out=amax"},
        {"layernorm cols=8 x=bf16 amax=f32 out=dx,amax", "layernorm cols=8 x=bf16 out=dx,amax"},
        {"rmsnorm cols=8 x=f64 rowscale=f64 out=amax", "rmsnorm cols=8 x=f64 rowscale=f64 out=amax"},
        {"layernorm cols=8 x=bf16 amax=bf16 out=amax", "spec: amax=bf16: must be f32, the type of all arithmetic"},
        {"layernorm cols=8 amax=f64 out=amax", "spec: amax=f64: f64 needs x=f64"},
        {"layernorm cols=8 out=dx,amax accumulate=amax",
         "spec: accumulate=amax: 'amax' is not one of dgamma dbeta; join several by commas"},
        {"layernorm cols=8 pass=forward out=y,amax",
         "spec: out=y,amax: 'amax' is not one of mean rstd y h; join several by commas"},
    });
    CHECK(reads("layernorm cols=8 out=amax") == reads("layernorm cols=8 out=dx"));
    const Spec spec = *parse_spec("layernorm slices=3 rows=5 cols=8 out=amax");
    CHECK(elements_of(spec, Tensor::amax, *spec.batch()) == 1);
}

TEST_CASE("a forward writes the layer's output, the sum that it normalised, and statistics") {
    check_answers({
        {"layernorm pass=forward cols=8", "layernorm pass=forward cols=8"},
        {"layernorm cols=8 pass=forward x=bf16 y=bf16 gamma=f32 beta=f32 out=rstd,y,mean eps=1e-5",
         "layernorm pass=forward cols=8 x=bf16 gamma=f32 out=mean,rstd,y"},
        {"layernorm cols=8 pass=backward", "layernorm cols=8"},
        {"rmsnorm pass=forward cols=8 stats=recompute,bf16 out=rstd,y",
         "rmsnorm pass=forward cols=8 out=rstd,y stats=bf16"},
        {"rmsnorm pass=forward cols=8 stats=recompute out=rstd,y eps=0",
         "rmsnorm pass=forward cols=8 out=rstd,y eps=0"},
        {"rmsnorm pass=forward cols=8 x=bf16 residual=f32 rowscale=f32 out=y,h",
         "rmsnorm pass=forward cols=8 x=bf16 residual=f32 rowscale=f32"},
        {"rmsnorm pass=forward cols=8 residual=f32 out=y", "rmsnorm pass=forward cols=8 residual=f32 out=y"},
        {"layernorm pass=forward cols=8 gamma=f16 gamma_offset=1 out=mean", "layernorm pass=forward cols=8 out=mean"},
        {"layernorm pass=forward cols=8 gamma=none", "layernorm pass=forward cols=8 gamma=none"},
        {"rmsnorm pass=forward cols=8 gamma=none beta=f32", "rmsnorm pass=forward cols=8 gamma=none beta=f32"},
        {"rmsnorm cols=8 rowscale=f32", "rmsnorm cols=8 rowscale=f32"},
        {"layernorm pass=sideways cols=8", "spec: pass=sideways: allowed: backward forward"},
        {"layernorm pass=forward cols=8 out=dx",
         "spec: out=dx: 'dx' is not one of mean rstd y h; join several by commas"},
        {"layernorm pass=forward cols=8 dy=f32", "spec: dy=f32: needs pass=backward"},
        {"layernorm pass=forward cols=8 dx=f32", "spec: dx=f32: needs pass=backward"},
        {"layernorm cols=8 residual=f32", "spec: residual=f32: needs pass=forward"},
        {"layernorm cols=8 y=f32", "spec: y=f32: needs pass=forward"},
        {"layernorm pass=forward cols=8 source=y", "spec: source=y: a forward reads x"},
        {"layernorm pass=forward cols=8 stats=saved", "spec: stats=saved: allowed: f32 bf16 f16 f64 recompute"},
        {"layernorm pass=forward cols=8 accumulate=dgamma",
         "spec: accumulate=dgamma: dgamma is not an output; name it in out="},
        {"layernorm pass=forward cols=8 h=f32", "spec: h=f32: h is not an output; name it in out="},
        {"layernorm pass=forward cols=8 out=y,h", "spec: out=y,h: h is x without a residual or rowscale"},
        {"layernorm pass=forward cols=8 residual=f32 out=h", "spec: out=h: must name one of: y mean rstd"},
        {"rmsnorm pass=forward cols=8 out=y,mean", "spec: out=y,mean: rmsnorm has no mean"},
        {"rmsnorm cols=8 rowscale=f32 out=dgamma",
         "spec: rowscale=f32: is a factor of dx, and out names neither dx nor amax"},
        {"layernorm pass=forward cols=8 x=f64 residual=f32", "spec: residual=f32: must be f64, as x is"},
    });
    CHECK(reads("layernorm pass=forward cols=8") == "x gamma beta");
    CHECK(reads("rmsnorm pass=forward cols=8 residual=f32 rowscale=f32") == "x residual gamma rowscale");
    CHECK(reads("rmsnorm pass=forward cols=8 out=rstd") == "x");
    CHECK(reads("rmsnorm cols=8 rowscale=f32") == "x dy gamma rstd rowscale");
    CHECK(reads("rmsnorm cols=8 rowscale=f32 out=dx,dresidual_in") == "x dy gamma rstd rowscale");
}

TEST_CASE("rounding=llama is for rmsnorm only") {
    check_answers({
        {"rmsnorm cols=8 x=bf16 rounding=llama", "rmsnorm cols=8 x=bf16 rounding=llama"},
        {"rmsnorm cols=8 rounding=none", "rmsnorm cols=8"},
        {"rmsnorm pass=forward cols=8 x=bf16 rounding=llama eps=1e-6",
         "rmsnorm pass=forward cols=8 x=bf16 rounding=llama eps=1e-06"},
        {"rmsnorm cols=8 rounding=gemma", "spec: rounding=gemma: allowed: none llama"},
        {"layernorm cols=8 rounding=llama", "spec: rounding=llama: needs rmsnorm"},
        {"rmsnorm cols=8 source=xhat rounding=llama", "spec: rounding=llama: needs source=x"},
        {"rmsnorm cols=8 gamma_offset=1 rounding=llama", "spec: rounding=llama: has no gamma_offset"},
        {"rmsnorm cols=8 out=dx,dbeta rounding=llama", "spec: rounding=llama: has no beta"},
        {"rmsnorm pass=forward cols=8 beta=f32 rounding=llama", "spec: rounding=llama: has no beta"},
    });
}

TEST_CASE("slices, and column tensors with a row for each") {
    const Spec spec = *parse_spec("layernorm slices=8 rows=64 cols=32 per_slice=gamma");
    CHECK(spec.slices == 8);
    CHECK(spec.all_rows() == 512);
    CHECK(spec.is_per_slice(Tensor::gamma));
    CHECK(spec.is_per_slice(Tensor::dgamma));
    CHECK(!spec.is_per_slice(Tensor::dbeta));
    CHECK(bytes_moved(spec, *spec.batch()) == 4 * (512 * (3 * 32 + 2) + 8 * 2 * 32 + 32));
    CHECK(elements_of(spec, Tensor::dgamma, *spec.batch()) == 8 * 32);
    CHECK(!parse_spec("rmsnorm slices=any rows=64 cols=32")->all_rows());
    CHECK(to_text(*parse_spec("rmsnorm cols=32 per_slice=beta,gamma slices=any")) ==
          "rmsnorm slices=any cols=32 per_slice=gamma");
    CHECK(to_text(*parse_spec("rmsnorm cols=32 slices=1")) == "rmsnorm cols=32");
    CHECK(to_text(*parse_spec("layernorm cols=32 slices=1 per_slice=gamma,beta")) == "layernorm cols=32");
    CHECK(to_text(*parse_spec("layernorm cols=32 slices=2 per_slice=gamma out=dbeta")) ==
          "layernorm slices=2 cols=32 out=dbeta");
    const auto error = [](const char* text) { return parse_spec(text).status().message(); };
    CHECK(error("rmsnorm cols=32 slices=0") == "spec: slices=0: must be at least 1");
    CHECK(error("rmsnorm cols=32 per_slice=gamma") == "spec: per_slice=gamma: needs slices, a number or any");
    CHECK(error("rmsnorm cols=32 slices=1 per_slice=x").starts_with("spec: per_slice=x: 'x' is not one of"));
    CHECK(error("rmsnorm cols=32 slices=3 per_slice=x") ==
          "spec: per_slice=x: 'x' is not one of gamma beta; join several by commas");
    CHECK(error("rmsnorm cols=32 slices=3 per_slice=gamma,gamma") == "spec: per_slice=gamma,gamma: gamma comes twice");
    Spec by_hand = spec;
    by_hand.slices = 1;
    CHECK(validate(by_hand).message() == "spec: per_slice=gamma: needs more than one slice, or any");
    by_hand.slices = 0;
    CHECK(validate(by_hand).message() == "spec: slices=0: must be at least 1");
    by_hand = spec;
    by_hand.tensors[Tensor::x]->axes = axes::columns;
    CHECK(validate(by_hand).message().starts_with("spec: per_slice=x: only gamma and beta"));
    by_hand = spec;
    by_hand.rows = INT64_MAX / 1024;
    CHECK(validate(by_hand).message().starts_with("spec: rows=9007199254740991: must be at most"));
}

TEST_CASE("texts of one problem become one text, the shortest") {
    check_answers({
        {"layernorm cols=8 x=f32 dy=f32 gamma=f32 out=dx,dgamma,dbeta source=x stats=saved", "layernorm cols=8"},
        {"rmsnorm cols=8 out=dgamma,dx rows=2", "rmsnorm rows=2 cols=8"},
        {"layernorm cols=8 x=bf16 gamma=f32", "layernorm cols=8 x=bf16 gamma=f32"},
        {"layernorm cols=8 stats=recompute eps=0.00001", "layernorm cols=8 stats=recompute"},
        {"layernorm cols=8 stats=recompute eps=-0", "layernorm cols=8 stats=recompute eps=0"},
        {"layernorm cols=8 invariant=1", "layernorm cols=8 invariant=1"},
        {"layernorm cols=8 invariant=1 out=dgamma", "layernorm cols=8 out=dgamma"},
        {"layernorm cols=8 x=f64 stats=f64 gamma_offset=1.0", "layernorm cols=8 x=f64 gamma_offset=1"},
        {"layernorm cols=8 gamma=none", "layernorm cols=8 gamma=none"},
        {"layernorm cols=8 accumulate=dbeta,dgamma", "layernorm cols=8 accumulate=dgamma,dbeta"},
        {"layernorm cols=8 gamma=none out=dx,dbeta x=f16", "layernorm cols=8 x=f16 gamma=none out=dx,dbeta"},
        {"layernorm cols=8 source=y beta=f32 dresidual=none", "layernorm cols=8 source=y"},
        {"rmsnorm cols=8 source=y beta=none", "rmsnorm cols=8 source=y"},
    });
}

TEST_CASE("what no output depends on is dropped") {
    check_answers({
        {"layernorm cols=8 x=bf16 gamma=f32 gamma_offset=1 out=dgamma",
         "layernorm cols=8 x=bf16 dgamma=f32 out=dgamma"},
        {"layernorm cols=8 source=xhat stats=bf16 out=dgamma", "layernorm cols=8 out=dgamma source=xhat"},
        {"layernorm cols=8 source=xhat stats=recompute eps=1 out=dgamma", "layernorm cols=8 out=dgamma source=xhat"},
        {"layernorm cols=8 source=y beta=f16 stats=recompute out=dbeta", "layernorm cols=8 out=dbeta"},
        {"layernorm cols=8 x=bf16 gamma=none out=dbeta", "layernorm cols=8 x=bf16 dbeta=f32 out=dbeta"},
    });
}

TEST_CASE("errors name the key, the value and what is allowed") {
    const auto names = norm_names();
    const std::string norms = text::join(names);
    REQUIRE(norms.starts_with("layernorm rmsnorm "));
    const std::string batchnorm = "spec: norm 'batchnorm': allowed: " + norms;
    const std::string rmsnrm = "spec: norm 'rmsnrm': allowed: " + norms + "; did you mean 'rmsnorm'?";
    check_answers({
        {"", "spec: the text is empty"},
        {"batchnorm cols=8", batchnorm},
        {"rmsnrm cols=8", rmsnrm},
        {"layernorm", "spec: cols is missing: the number of columns, at least 1"},
        {"layernorm col=8",
         "spec: unknown key 'col'; allowed: pass slices rows cols out accumulate per_slice source stats rounding eps "
         "gamma_offset invariant x dy dresidual residual gamma beta rowscale y h dx dresidual_in dgamma dbeta amax; "
         "did you "
         "mean 'cols'?"},
        {"layernorm cols=0", "spec: cols=0: must be at least 1"},
        {"layernorm cols=-3", "spec: cols=-3: must be at least 1"},
        {"layernorm cols=2147483648", "spec: cols=2147483648: must be at most 2147483647"},
        {"layernorm cols=8 rows=-1", "spec: rows=-1: must be at least 0"},
        {"layernorm cols=8 rows=any", "spec: rows=any: must be a whole number; without the key, M is given at launch"},
        {"layernorm cols=8 rows=99999999999999999",
         "spec: rows=99999999999999999: must be at most 88686269585142074 with cols=8"},
        {"layernorm cols=8 x=fp8", "spec: x=fp8: allowed: f32 bf16 f16 f64"},
        {"layernorm cols=8 x=none", "spec: x=none: allowed: f32 bf16 f16 f64"},
        {"layernorm cols=8 gamma=fp8", "spec: gamma=fp8: allowed: f32 bf16 f16 f64 none"},
        {"layernorm cols=8 stats=save",
         "spec: stats=save: allowed: f32 bf16 f16 f64 saved recompute; did you mean 'saved'?"},
        {"layernorm cols=8 accumulate=dx",
         "spec: accumulate=dx: 'dx' is not one of dgamma dbeta; join several by commas"},
        {"layernorm cols=8 accumulate=dbeta,dbeta", "spec: accumulate=dbeta,dbeta: dbeta comes twice"},
        {"rmsnorm cols=8 accumulate=dbeta", "spec: accumulate=dbeta: dbeta is not an output; name it in out="},
        {"layernorm cols=8 source=z", "spec: source=z: allowed: x xhat y"},
        {"layernorm cols=8 source=xha", "spec: source=xha: allowed: x xhat y; did you mean 'xhat'?"},
        {"layernorm cols=8 source=", "spec: source=: allowed: x xhat y"},
        {"layernorm cols=8 eps=1e-6", "spec: eps=1e-6: needs stats=recompute"},
        {"layernorm cols=8 stats=recompute eps=-1", "spec: eps=-1: must be at least 0"},
        {"layernorm cols=8 stats=recompute eps=nan", "spec: eps=nan: must be finite"},
        {"layernorm cols=8 invariant=2", "spec: invariant=2: allowed: 0 1"},
        {"layernorm cols=8 gamma_offset=inf", "spec: gamma_offset=inf: must be finite"},
        {"layernorm cols=8 gamma_offset=1e300", "spec: gamma_offset=1e+300: is beyond the range of f32"},
    });
}

TEST_CASE("impossible combinations are refused") {
    check_answers({
        {"layernorm cols=8 out=",
         "spec: out=: '' is not one of mean rstd dx dresidual_in dgamma dbeta amax; join several by commas"},
        {"layernorm cols=8 out=dx,dy",
         "spec: out=dx,dy: 'dy' is not one of mean rstd dx dresidual_in dgamma dbeta amax; join several by commas"},
        {"layernorm cols=8 out=dx,dx", "spec: out=dx,dx: dx comes twice"},
        {"layernorm cols=8 out=dx dbeta=f32", "spec: dbeta=f32: dbeta is not an output; name it in out="},
        {"layernorm cols=8 x=f64 dy=f32", "spec: dy=f32: must be f64, as x is"},
        {"layernorm cols=8 x=f64 stats=f32", "spec: stats=f32: must be f64, as x is"},
        {"layernorm cols=8 dgamma=f64", "spec: dgamma=f64: f64 needs x=f64"},
        {"rmsnorm cols=8 gamma=none out=dgamma", "spec: gamma=none: out has dgamma, the gradient of a gamma"},
        {"rmsnorm cols=8 gamma=none gamma_offset=1",
         "spec: gamma_offset=1: needs a gamma that a requested output reads"},
        {"rmsnorm cols=8 out=dgamma dresidual=f32",
         "spec: dresidual=f32: is added into dx and dresidual_in, and out names neither them nor amax"},
        {"layernorm cols=8 beta=f32", "spec: beta=f32: is read by source=y only"},
        {"layernorm cols=8 source=xhat stats=recompute",
         "spec: stats=recompute: dx needs rstd, which is computed with source=x only; allowed: saved"},
        {"layernorm cols=8 source=y stats=recompute out=dx",
         "spec: stats=recompute: dx needs rstd, which is computed with source=x only; allowed: saved"},
    });
}

TEST_CASE("a launch reads only the inputs that its outputs depend on") {
    CHECK(reads("layernorm cols=8") == "x dy gamma mean rstd");
    CHECK(reads("rmsnorm cols=8") == "x dy gamma rstd");
    CHECK(reads("rmsnorm cols=8 gamma=none dresidual=f32") == "x dy dresidual rstd");
    CHECK(reads("layernorm cols=8 stats=recompute") == "x dy gamma");
    CHECK(reads("layernorm cols=8 out=dgamma") == "x dy mean rstd");
    CHECK(reads("layernorm cols=8 out=dbeta") == "dy");
    CHECK(reads("layernorm cols=8 source=xhat") == "x dy gamma rstd");
    CHECK(reads("layernorm cols=8 source=xhat out=dgamma") == "x dy");
    CHECK(reads("layernorm cols=8 source=y") == "x dy gamma beta rstd");
    CHECK(reads("layernorm cols=8 source=y out=dgamma,dbeta") == "x dy gamma beta");
    CHECK(reads("rmsnorm cols=8 source=y") == "x dy gamma rstd");
}

TEST_CASE("a spec filled by hand is checked") {
    Spec good = *parse_spec("layernorm cols=8 out=dx");
    const auto refused = [&](auto change) {
        Spec spec = good;
        change(spec);
        return validate(spec).message();
    };
    CHECK(validate(good).ok());
    CHECK(refused([](Spec& s) { s = Spec(); }) == "spec: x=none: must have a type");
    CHECK(refused([](Spec& s) { s.tensors[Tensor::dx].reset(); }) ==
          "spec: out=: must name one of: dx dresidual_in dgamma dbeta amax");
    CHECK(refused([](Spec& s) { s.tensors[Tensor::dy].reset(); }) == "spec: dy=none: is needed, so must have a type");
    CHECK(refused([](Spec& s) { s.tensors[Tensor::rstd].reset(); }) ==
          "spec: stats=none: is needed, so must have a type");
    CHECK(refused([](Spec& s) { s.set(Tensor::mean, DType::f16); }) ==
          "spec: stats=f16: mean and rstd must have one type");
    CHECK(refused([](Spec& s) { s.set(Tensor::beta, DType::f32); }) == "spec: beta=f32: is read by source=y only");
    CHECK(refused([](Spec& s) { s.eps = 1; }) == "spec: eps=1: needs stats=recompute");
    CHECK(refused([](Spec& s) { s.eps = std::numeric_limits<double>::quiet_NaN(); }) ==
          "spec: eps=nan: needs stats=recompute");
    CHECK(refused([](Spec& s) {
              s.tensors[Tensor::gamma].reset();
              s.gamma_offset = 1;
          }) == "spec: gamma_offset=1: needs a gamma that a requested output reads");
    CHECK(refused([](Spec& s) { s.tensors[Tensor::dx]->accumulate = true; }) ==
          "spec: accumulate=dx: only dgamma and dbeta, sums over the rows, can be added to");
    CHECK(refused([](Spec& s) { s.pass = Pass::forward; }) == "spec: dy=f32: needs pass=backward");
    CHECK(refused([](Spec& s) { s.set(Tensor::y, DType::f32); }) == "spec: y=f32: needs pass=forward");
    good = *parse_spec("layernorm pass=forward cols=8");
    CHECK(refused([](Spec& s) { s.stats = Stats::saved; }) == "spec: stats=saved: a forward computes them");
    CHECK(refused([](Spec& s) { s.source = Source::y; }) == "spec: source=y: a forward reads x");
    CHECK(refused([](Spec& s) { s.set(Tensor::dx, DType::f32); }) == "spec: dx=f32: needs pass=backward");
    CHECK(refused([](Spec& s) { s.set(Tensor::h, DType::f32); }) ==
          "spec: out=y,h: h is x without a residual or rowscale");
    good = *parse_spec("layernorm cols=8 out=dx");
    CHECK(refused([](Spec& s) { s.cols = 0; }) == "spec: cols=0: must be at least 1");
    CHECK(refused([](Spec& s) { s.rows = -1; }) == "spec: rows=-1: must be at least 0");
    good = *parse_spec("layernorm slices=2 cols=8 out=dx per_slice=gamma");
    CHECK(refused([](Spec& s) { s.tensors[Tensor::gamma]->axes.run = 0; }) ==
          "spec: per_slice=gamma: only gamma and beta, with their gradients, have a row per slice");
}

TEST_CASE("the traffic floor counts each tensor once, and outputs that are added to twice") {
    CHECK(bytes_moved(*parse_spec("layernorm cols=1024 x=bf16 gamma=f32 out=dx"), 10) == 10 * (3 * 2048 + 8) + 4096);
    CHECK(bytes_moved(*parse_spec("layernorm cols=1024 x=bf16 gamma=f32"), 0) == 3 * 4096);
    CHECK(bytes_moved(*parse_spec("layernorm cols=1024 x=bf16 gamma=f32 accumulate=dbeta"), 0) == 4 * 4096);
    CHECK(bytes_moved(*parse_spec("rmsnorm cols=100 dy=f16 out=dbeta"), 7) == 7 * 200 + 400);
    CHECK(bytes_moved(*parse_spec("rmsnorm cols=100"), INT64_MAX) == INT64_MAX);
    CHECK(bytes_moved(Spec(), 5) == 0);
}

TEST_CASE("random specs are valid and round trip through text") {
    test::Random random(test::seed());
    const int64_t count = test::rounds(10000);
    for (int64_t i = 0; i < count; ++i) {
        const Spec spec = test::random_spec(random);
        const std::string text = to_text(spec);
        CAPTURE(text);
        REQUIRE(validate(spec).message() == "");
        const auto back = parse_spec(text);
        REQUIRE(back.status().message() == "");
        REQUIRE(*back == spec);
        REQUIRE(hash(*back) == hash(spec));
        REQUIRE(canonical(spec) == spec);
    }
}

}  // namespace normjit
