// SPDX-License-Identifier: Apache-2.0
#include "system/nvtx.h"

#include "support/lasting.h"
#include "support/text.h"
#include "system/environment.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include <dlfcn.h>
#include <fmt/format.h>

namespace normjit::nvtx {

namespace {

constexpr unsigned most_functions = 16;
constexpr const char* library_variable = "NVTX_INJECTION64_PATH";

/// These live as long as the process, because a tool may set functions at any time, from any thread.
Function functions[module_count][most_functions];
Function* places[module_count][most_functions + 1];

int functions_of(int module, Function*** table, unsigned* count) {
    if (module <= 0 || module >= module_count) return 0;
    for (unsigned i = 1; i < module_sizes[module]; ++i) places[module][i] = &functions[module][i];
    if (table != nullptr) *table = places[module];
    if (count != nullptr) *count = module_sizes[module];
    return 1;
}

void ignore_version(uint32_t) {}

const Callbacks callbacks = {sizeof(Callbacks), functions_of};
const Version version_of_program = {sizeof(Version), version, 0, ignore_version};

const void* export_table(uint32_t number) {
    if (number == callbacks_table) return &callbacks;
    return number == version_table ? static_cast<const void*>(&version_of_program) : nullptr;
}

/// Returns null if the tool currently has no use for such calls.
template <class Type>
Type function(int number) {
    return reinterpret_cast<Type>(std::atomic_ref(functions[core2][number]).load(std::memory_order_acquire));
}

using Domain = void*;
Domain domain = nullptr;

Domain create_domain(const char* name) {
    const auto create = function<Domain (*)(const char*)>(domain_create);
    return create == nullptr ? nullptr : create(name);
}

void push(const char* message) {
    const Event event{.message = message};
    const auto call = function<int (*)(Domain, const Event*)>(domain_range_push);
    if (call != nullptr) call(domain, &event);
}

void pop() {
    const auto call = function<int (*)(Domain)>(domain_range_pop);
    if (call != nullptr) call(domain);
}

/// Connects to the tool of this process. Returns success if the tool listens.
Status connect_as_asked() {
    const auto& asked = environment();
    if (!asked.ok() || !asked->nvtx) return unavailable("off");
    const char* library = read_variable(library_variable);
    if (library == nullptr || *library == 0)
        return unavailable(fmt::format("no tool: {} is not set", library_variable));
    const Status status = connect(library);
    return status.ok() ? status : unavailable(fmt::format("{}={}: {}", library_variable, library, status.message()));
}

const Status& connection() {
    static const Status& status = *lasting(connect_as_asked());
    return status;
}

}  // namespace

Status connect(const char* library) {
    void* const opened = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    if (opened == nullptr) return unavailable(dlerror());
    using Initialize = int (*)(const void* (*)(uint32_t));
    const auto initialize = reinterpret_cast<Initialize>(dlsym(opened, "InitializeInjectionNvtx2"));
    if (initialize == nullptr || initialize(export_table) == 0) {
        dlclose(opened);
        for (auto& module : functions) std::fill(std::begin(module), std::end(module), nullptr);
        return unavailable(initialize == nullptr ? "has no InitializeInjectionNvtx2" : "does not start");
    }
    domain = create_domain("normjit");
    return {};
}

bool is_listening() {
    static const bool listens = connection().ok();
    return listens;
}

std::string state() {
    return is_listening() ? fmt::format("on, to {}", read_variable(library_variable)) : connection().message();
}

Range::Range(const char* verb, const Spec& spec) : is_open_(is_listening()) {
    if (is_open_) push(fmt::format("{} {}", verb, to_text(spec)).c_str());
}

Range::~Range() {
    if (is_open_) pop();
}

}  // namespace normjit::nvtx
