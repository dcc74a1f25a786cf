// SPDX-License-Identifier: Apache-2.0
#include "random_spec.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace normjit::test {

namespace {

constexpr DType narrow_types[] = {DType::f32, DType::bf16, DType::f16};

int64_t random_cols(Random& random, int64_t most) {
    const int64_t near = int64_t{1} << random.between(0, 12);
    int64_t cols = random.between(1, most);
    if (random.chance(30)) cols = random.between(1, 80);
    if (random.chance(30)) cols = near + random.between(-1, 1);
    return std::clamp<int64_t>(cols, 1, most);
}

/// Draws a type for each tensor that a layer of this kind may have. canonical() drops the types that the outputs do not
/// need.
void draw_dtypes(Random& random, const SpecLimits& limits, Spec& spec) {
    const bool wide = random.chance(limits.f64_percent);
    const bool mixed = random.chance(50);
    const DType x = wide ? DType::f64 : random.pick(narrow_types);
    for (Tensor tensor : all_tensors) spec.set(tensor, !wide && mixed ? random.pick(narrow_types) : x);
    spec.set(Tensor::mean, spec.dtype(Tensor::rstd));
    if (random.chance(60)) {
        for (const Tensor tensor : {Tensor::mean, Tensor::rstd}) spec.set(tensor, spec.compute());
    }
    spec.set(Tensor::amax, spec.compute());
    if (random.chance(70)) spec.tensors[Tensor::dresidual].reset();
    if (random.chance(60)) spec.tensors[Tensor::residual].reset();
    if (random.chance(80)) spec.tensors[Tensor::rowscale].reset();
    if (random.chance(20)) spec.tensors[Tensor::beta].reset();
    if (random.chance(20)) {
        spec.tensors[Tensor::gamma].reset();
        spec.tensors[Tensor::dgamma].reset();
    }
}

void draw_outputs(Random& random, Spec& spec) {
    const auto drawn = spec.tensors;
    if (spec.pass == Pass::forward) {
        if (random.chance(10)) spec.tensors[Tensor::y].reset();
        if (random.chance(50)) spec.tensors[Tensor::h].reset();
        return;
    }
    if (random.chance(30)) spec.tensors[Tensor::dx].reset();
    if (random.chance(30)) spec.tensors[Tensor::dgamma].reset();
    if (random.chance(30)) spec.tensors[Tensor::dbeta].reset();
    if (random.chance(80)) spec.tensors[Tensor::dresidual_in].reset();
    if (random.chance(70)) spec.tensors[Tensor::amax].reset();
    const bool any = spec.has(Tensor::dx) || spec.has(Tensor::dresidual_in) || spec.has(Tensor::dgamma) ||
                     spec.has(Tensor::dbeta) || spec.has(Tensor::amax);
    if (!any) spec.tensors = drawn;
    for (const Tensor tensor : {Tensor::dgamma, Tensor::dbeta}) {
        const bool accumulates = random.chance(25);
        if (spec.has(tensor)) spec.tensors[tensor]->accumulate = accumulates;
    }
}

/// Draws statistics. If they are recomputed and have a type, they are outputs.
void draw_statistics(Random& random, Spec& spec) {
    spec.stats = Stats::recompute;
    spec.eps = random.chance(50) ? spec.eps : random.pick({0.0, 1e-12, 1e-6, 1e-3, 0.1, 1.0});
    if (spec.norm == Norm::rmsnorm || random.chance(60)) spec.tensors[Tensor::mean].reset();
    const bool is_needed = spec.pass == Pass::forward && !spec.has(Tensor::y) && !spec.has(Tensor::mean);
    if (!is_needed && random.chance(60)) spec.tensors[Tensor::rstd].reset();
}

/// Draws slices. canonical() drops what the spec does not use.
void draw_slices(Random& random, Spec& spec) {
    spec.slices.reset();
    if (random.chance(50)) spec.slices = random.chance(80) ? random.between(1, 9) : random.between(1, 70);
    const bool gamma = random.chance(50);
    spec.set_per_slice(Tensor::gamma, gamma);
    spec.set_per_slice(Tensor::beta, random.chance(80) ? gamma : random.chance(50));
}

int64_t random_rows(Random& random, const Spec& spec, int64_t most) {
    if (spec.rows) return *spec.rows;
    if (random.chance(10)) return random.between(0, std::min<int64_t>(1, most));
    return random.between(0, most);
}

}  // namespace

uint64_t seed() {
    static const uint64_t value = [] {
        const char* given = std::getenv("NORMJIT_TEST_SEED");
        const uint64_t start = given ? std::strtoull(given, nullptr, 0) : 20240229;
        std::printf("seed: NORMJIT_TEST_SEED=%llu\n", static_cast<unsigned long long>(start));
        return start;
    }();
    return value;
}

int64_t rounds(int64_t usual) {
    const char* given = std::getenv("NORMJIT_TEST_ROUNDS");
    if (!given) return usual;
    char* end = nullptr;
    const int64_t number = std::strtoll(given, &end, 10);
    return std::clamp<int64_t>(*end == '%' ? usual * number / 100 : number, 1, usual);
}

uint64_t Random::bits() {
    if (!draws_bytes_) return engine_();
    uint64_t drawn = 0;
    const size_t count = std::min(bytes_.size(), sizeof drawn);
    std::memcpy(&drawn, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return drawn;
}

int64_t Random::between(int64_t low, int64_t high) {
    const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
    const uint64_t drawn = range == 0 ? bits() : bits() % range;
    return static_cast<int64_t>(static_cast<uint64_t>(low) + drawn);
}

double Random::real(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
}

Spec random_spec(Random& random, const SpecLimits& limits) {
    Spec spec;
    spec.norm = random.pick({Norm::layernorm, Norm::rmsnorm});
    if (random.chance(limits.forward_percent)) spec.pass = Pass::forward;
    spec.cols = random_cols(random, limits.max_cols);
    draw_dtypes(random, limits, spec);
    draw_outputs(random, spec);
    const bool forward = spec.pass == Pass::forward;
    if (!forward && random.chance(40)) spec.source = random.pick({Source::xhat, Source::y});
    if (forward || (spec.source == Source::x && random.chance(40))) draw_statistics(random, spec);
    if (spec.has(Tensor::gamma) && random.chance(30)) {
        spec.gamma_offset = random.pick({1.0, -1.0, 0.5, 0.1, random.real(-2, 2)});
    }
    spec.invariant = random.chance(15);
    if (spec.norm == Norm::rmsnorm && spec.source == Source::x && random.chance(25)) {
        spec.rounding = Rounding::llama;
        spec.gamma_offset = 0;
        spec.tensors[Tensor::beta].reset();
        if (spec.pass == Pass::backward) spec.tensors[Tensor::dbeta].reset();
        const bool any = spec.has(Tensor::dx) || spec.has(Tensor::dresidual_in) || spec.has(Tensor::dgamma) ||
                         spec.has(Tensor::amax);
        if (spec.pass == Pass::backward && !any) spec.set(Tensor::dx, spec.dtype(Tensor::x));
    }
    if (random.chance(limits.slices_percent)) draw_slices(random, spec);
    spec = canonical(spec);
    if (!random.chance(limits.dynamic_percent)) spec.rows = random_batch(random, spec, limits).rows;
    return spec;
}

Batch random_batch(Random& random, const Spec& spec, const SpecLimits& limits) {
    if (!spec.has_slices()) return {random_rows(random, spec, limits.max_rows)};
    const int64_t most = std::max<int64_t>(limits.max_rows, 1);
    const int64_t many = random.chance(30) ? most : std::min<int64_t>(most, 8);
    const int64_t slices = spec.slices.value_or(random.chance(5) ? 0 : random.between(1, many));
    return {random_rows(random, spec, most / std::max<int64_t>(slices, 1)), slices};
}

Schedule random_schedule(Random& random) {
    CpuSchedule cpu;
    cpu.row_block = static_cast<int>(random.chance(50) ? random.between(1, 64) : int64_t{1} << random.between(0, 6));
    cpu.strip = static_cast<int>(random.between(1, 8));
    cpu.unroll = static_cast<int>(random.between(1, 8));
    cpu.cache_columns = static_cast<int>(random.between(0, 1));
    cpu.cache_elements = static_cast<int>(random.between(0, 1));
    cpu.overlap = static_cast<int>(random.between(0, 1));
    cpu.prefetch = static_cast<int>(random.between(0, 3));
    cpu.column_ranges = static_cast<int>(random.chance(50) ? random.between(1, 9) : random.between(1, 200));
    cpu.thread_groups = static_cast<int>(random.chance(50) ? 1 : random.between(1, 9));
    cpu.split_rows = random.pick({int64_t{0}, random.between(1, 100), INT64_MAX});
    cpu.nontemporal_kb = random.pick({int64_t{-1}, int64_t{0}, random.between(0, 1 << 20)});
    return {random.between(1, 64), cpu};
}

Schedule random_cuda_schedule(Random& random) {
    const auto power = [&](int64_t most) { return static_cast<int>(int64_t{1} << random.between(0, most)); };
    CudaSchedule cuda;
    cuda.form = random.chance(80) ? CudaForm::rows : CudaForm::two_pass;
    cuda.threads_per_row = random.chance(70) ? power(10) : static_cast<int>(32 * random.between(1, 32));
    cuda.rows_per_block = random.chance(50) ? 1 : power(7);
    cuda.rows_per_team = random.chance(70) ? 0 : static_cast<int>(random.between(1, 8));
    cuda.cluster = random.chance(70) ? 1 : power(4);
    cuda.blocks_per_sm = static_cast<int>(random.between(1, 4));
    cuda.vector_width = power(3);
    cuda.pipeline_depth = static_cast<int>(random.between(1, 4));
    cuda.staging = random.pick(all_cuda_stagings);
    cuda.row_memory = random.pick(all_cuda_memories);
    cuda.column_memory = random.pick(all_cuda_memories);
    cuda.pace = random.chance(50) ? 0 : static_cast<int>(random.between(1, 8));
    cuda.pace_slack = static_cast<int>(random.between(1, 4));
    return {random.between(1, 600), cuda};
}

Target random_target(Random& random) {
    Target target;
    if (random.chance(50)) {
        target.isa = random.pick({Isa::x86_64_avx512, Isa::x86_64_v3, Isa::x86_64, Isa::aarch64});
        target.cpu.backend = random.pick({BackendChoice::automatic, BackendChoice::x64, BackendChoice::llvm});
        target.cpu.avx512_bf16 = target.isa == Isa::x86_64_avx512 && random.chance(50);
        target.cpu.avx512_fp16 = target.isa == Isa::x86_64_avx512 && random.chance(50);
        if (target.isa == Isa::x86_64_avx512) target.cpu.tune = random.pick({Tune::generic, Tune::zen4});
        target.cpu.cores = static_cast<int>(random.between(1, 256));
        target.cpu.l1_bytes = random.between(1, 1 << 20);
        target.cpu.l2_bytes = random.between(1, 1 << 26);
        target.cpu.l3_bytes = random.between(0, 1 << 30);
        return target;
    }
    target.isa = Isa::cuda;
    target.cuda.sm = random.pick({70, 75, 80, 86, 89, 90, 100, 120});
    target.cuda.sm_count = static_cast<int>(random.between(1, 200));
    target.cuda.shared_bytes = random.between(48 << 10, 1 << 18);
    target.cuda.l2_bytes = random.between(1 << 20, 1 << 27);
    return target;
}

}  // namespace normjit::test
