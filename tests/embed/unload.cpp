// SPDX-License-Identifier: Apache-2.0
// unload LIBRARY: a program with plug-ins may call dlclose() for the library while an engine is alive.
#include "normjit/normjit.h"

#include <cstdio>

#include <dlfcn.h>

int main(int count, char** arguments) {
    void* library = count == 2 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) return 1;
    const auto create = reinterpret_cast<decltype(&normjit_engine_create)>(dlsym(library, "normjit_engine_create"));
    const auto destroy = reinterpret_cast<decltype(&normjit_engine_destroy)>(dlsym(library, "normjit_engine_destroy"));
    if (create == nullptr || destroy == nullptr) return 1;
    normjit_engine_options options{};
    options.size = sizeof options;
    options.threads = 3;
    options.cache_folder = "";
    options.thread_policy = NORMJIT_THREADS_OWN;
    normjit_engine* engine = nullptr;
    if (create(&options, &engine) != NORMJIT_OK || dlclose(library) != 0) return 1;
    destroy(engine);  // this function and the engine's threads must still be there
    std::puts("the engine has ended");
    return 0;
}
