// SPDX-License-Identifier: Apache-2.0
// Uses the layout of nvtx3/nvtxDetail/nvtxTypes.h, and not runtime/system/nvtx.h, because it checks that header.
#include "fake_nvtx.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

namespace {

using Pointer = void (*)();

normjit::test::FakeNvtx fake;
std::mutex mutex;
std::list<std::string> domains;
thread_local int depth = 0;

struct Attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char* message;
};

void note(const std::string& event) {
    const std::lock_guard lock(mutex);
    fake.events.push_back(std::to_string(depth) + " " + event);
}

std::string domain_of(void* domain) { return domain == nullptr ? "none" : *static_cast<std::string*>(domain); }

void* create_domain(const char* name) {
    note(std::string("domain ") + name);
    const std::lock_guard lock(mutex);
    return &domains.emplace_back(name);
}

int push(void* domain, const Attributes* event) {
    if (event->version < 2 || event->size != sizeof(Attributes) || event->message_type != 1) {
        note("an event of another layout");
        return -1;
    }
    note("push " + domain_of(domain) + ": " + event->message);
    return depth++;
}

int pop(void* domain) {
    --depth;
    note("pop " + domain_of(domain));
    return depth;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED normjit::test::FakeNvtx* normjit_fake_nvtx() { return &fake; }

EXPORTED int InitializeInjectionNvtx2(const void* (*export_table)(uint32_t)) {
    struct Callbacks {
        size_t size;
        int (*functions_of)(int module, Pointer*** table, unsigned* count);
    };
    struct Version {
        size_t size;
        uint32_t version, reserved;
        void (*set)(uint32_t);
    };
    const auto* callbacks = static_cast<const Callbacks*>(export_table(1));
    const auto* version = static_cast<const Version*>(export_table(3));
    if (callbacks == nullptr || callbacks->size < sizeof(Callbacks) || version == nullptr || fake.refuses) return 0;
    version->set(3);
    fake.version = version->version;
    for (int module = 1; module <= 6; ++module) {  // tools may write to any entry of any table
        Pointer** table = nullptr;
        unsigned count = 0;
        if (callbacks->functions_of(module, &table, &count) == 0) return 0;
        for (unsigned i = 1; i < count; ++i) *table[i] = nullptr;
        if (module != 5) continue;
        *table[4] = reinterpret_cast<Pointer>(push);
        *table[5] = reinterpret_cast<Pointer>(pop);
        *table[12] = reinterpret_cast<Pointer>(create_domain);
    }
    return 1;
}
