// SPDX-License-Identifier: Apache-2.0
// Measures oneDNN's layer normalization backward: normjit_onednn SECONDS SPEC... prints a JSON line for each spec that
// oneDNN has a kernel for: {"spec": ..., "median_seconds": ..., "implementation": ...}. Threads: OMP_NUM_THREADS.
//
// All tensors are allocated and written before the clock starts. gamma is always f32, because with bf16 gamma oneDNN
// uses its reference code, which is hundreds of times slower.
#include "normjit/spec.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

using namespace dnnl;
using normjit::DType;
using normjit::Spec;
using normjit::Tensor;

namespace {

using Clock = std::chrono::steady_clock;

memory::data_type type_of(DType type) {
    switch (type) {
        case DType::bf16: return memory::data_type::bf16;
        case DType::f16: return memory::data_type::f16;
        default: return memory::data_type::f32;
    }
}

#if DNNL_VERSION_MAJOR >= 3
const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
constexpr int scales[] = {DNNL_ARG_SCALE, DNNL_ARG_SHIFT},
              scale_gradients[] = {DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT};
#else
const auto flags = normalization_flags::use_scale_shift;  // gamma and beta in one tensor
constexpr int scales[] = {DNNL_ARG_SCALE_SHIFT}, scale_gradients[] = {DNNL_ARG_DIFF_SCALE_SHIFT};
#endif
constexpr float epsilon = 1e-5f;

layer_normalization_backward::primitive_desc describe(const engine& cpu, const memory::desc& data,
                                                      const memory::desc& statistics) {
#if DNNL_VERSION_MAJOR >= 3
    const layer_normalization_forward::primitive_desc forward(cpu, prop_kind::forward_training, data, data, statistics,
                                                              epsilon, flags);
    return {cpu, prop_kind::backward, data, data, data, statistics, epsilon, flags, forward};
#else
    const layer_normalization_forward::desc forward(prop_kind::forward_training, data, statistics, epsilon, flags);
    const layer_normalization_backward::desc backward(prop_kind::backward, data, data, statistics, epsilon, flags);
    return {backward, cpu, layer_normalization_forward::primitive_desc(forward, cpu)};
#endif
}

/// Returns memory that is filled with ordinary numbers, so that its pages exist.
memory filled(const memory::desc& description, const engine& cpu) {
    memory tensor(description, cpu);
    auto* bytes = static_cast<uint8_t*>(tensor.get_data_handle());
    const size_t size = description.get_size();
    for (size_t i = 0; i < size; ++i) bytes[i] = i % 2 == 0 ? static_cast<uint8_t>(i * 37 >> 3) : 0x3e;
    return tensor;
}

double median_seconds(const layer_normalization_backward::primitive_desc& description, const engine& cpu,
                      double budget) {
    stream queue(cpu);
    std::unordered_map<int, memory> tensors;
    const auto add = [&](int argument, const memory::desc& tensor) { tensors.emplace(argument, filled(tensor, cpu)); };
    add(DNNL_ARG_SRC, description.src_desc());
    add(DNNL_ARG_DIFF_DST, description.diff_dst_desc());
    add(DNNL_ARG_DIFF_SRC, description.diff_src_desc());
    add(DNNL_ARG_MEAN, description.mean_desc());
    add(DNNL_ARG_VARIANCE, description.variance_desc());
    for (const int argument : scales) add(argument, description.weights_desc());
    for (const int argument : scale_gradients) add(argument, description.diff_weights_desc());
    const layer_normalization_backward primitive(description);
    const auto seconds = [&] {
        const auto start = Clock::now();
        primitive.execute(queue, tensors);
        queue.wait();
        return std::chrono::duration<double>(Clock::now() - start).count();
    };
    seconds();
    std::vector<double> times;
    for (double spent = 0; times.size() < 7 || (spent < budget && times.size() < 10000); spent += times.back())
        times.push_back(seconds());
    std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
    return times[times.size() / 2];
}

int measure(const std::string& text, double budget) {
    const auto spec = normjit::parse_spec(text);
    if (!spec.ok() || !spec->rows || spec->norm != normjit::Norm::layernorm) {
        std::fprintf(stderr, "%s: left out: wants a layernorm with rows\n", text.c_str());
        return 0;
    }
    try {
        const engine cpu(engine::kind::cpu, 0);
        const memory::desc data({*spec->rows, spec->cols}, type_of(spec->dtype(Tensor::x)), memory::format_tag::ab);
        const memory::desc statistics({*spec->rows}, memory::data_type::f32, memory::format_tag::a);
        const auto description = describe(cpu, data, statistics);
        std::printf("{\"spec\": \"%s\", \"median_seconds\": %.9g, \"implementation\": \"%s\"}\n", text.c_str(),
                    median_seconds(description, cpu, budget), description.impl_info_str());
    } catch (const dnnl::error& error) {
        std::fprintf(stderr, "%s: left out: oneDNN: %s\n", text.c_str(), error.what());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "usage: normjit_onednn SECONDS SPEC...\n");
        return 2;
    }
    for (int i = 2; i < argc; ++i) measure(argv[i], std::atof(argv[1]));
    return 0;
}
