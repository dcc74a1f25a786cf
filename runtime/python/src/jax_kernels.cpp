// SPDX-License-Identifier: Apache-2.0
#include "jax_kernels.h"

#include "jax_threads.h"
#include "warnings.h"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>

namespace normjit::jax {

namespace {

normjit_engine* make_engine(const std::string& device) {
    normjit_engine_options options{};
    options.size = sizeof options;
    options.device = device.c_str();
    options.log.write = normjit_python_log;
    if (device == "cpu") options.parallel_for = lent_threads();
    normjit_engine* made = nullptr;
    check(normjit_engine_create(&options, &made));
    return made;
}

/// Protects the kernels. Once a kernel exists, it does not move.
std::shared_mutex lock;
std::map<std::string, normjit_engine*> engines;
std::map<std::string, Kernel> kernels;  ///< indexed by "<device> <rows> <spec>"

Kernel make(const std::string& device, const std::string& spec, int64_t rows, void* stream) {
    normjit_engine*& engine = engines[device];
    if (engine == nullptr) engine = make_engine(device);
    Kernel made;
    made.spec.size = sizeof made.spec;
    check(normjit_spec_parse(spec.c_str(), &made.spec));
    normjit_prepare_options options{};
    options.size = sizeof options;
    options.stream = stream;
    options.expected_rows = rows;
    options.expected_slices = 1;  // `rows` counts the rows of all slices
    check(normjit_prepare(engine, &made.spec, &options, &made.kernel));
    made.spec.text = nullptr;  // the text of a formula belongs to the caller
    return made;
}

}  // namespace

const Kernel& kernel_of(std::string_view device, std::string_view spec, int64_t rows, void* stream) {
    const int64_t expected = device == "cpu" ? 0 : rows;  // on a CPU, an exported function may have any number of rows
    std::string key(device);
    key.append(" ").append(std::to_string(expected)).append(" ").append(spec);
    {
        const std::shared_lock reading(lock);
        if (const auto known = kernels.find(key); known != kernels.end()) return known->second;
    }
    const std::unique_lock writing(lock);
    if (const auto known = kernels.find(key); known != kernels.end()) return known->second;
    return kernels.emplace(key, make(std::string(device), std::string(spec), expected, stream)).first->second;
}

}  // namespace normjit::jax
