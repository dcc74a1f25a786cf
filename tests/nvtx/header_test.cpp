// SPDX-License-Identifier: Apache-2.0
// Compares runtime/system/nvtx.h with NVIDIA's headers if they exist, and tests the fake tool with the client in those
// headers.
#include "fake_nvtx.h"
#include "system/nvtx.h"

#include <string>
#include <type_traits>
#include <utility>

#include <dlfcn.h>
#include <doctest/doctest.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#if defined(NVTX_VERSION) && NVTX_VERSION >= 3

namespace {

namespace nvtx = normjit::nvtx;

static_assert(sizeof(nvtx::Event) == sizeof(nvtxEventAttributes_t) && nvtx::version == 3);
static_assert(offsetof(nvtx::Event, size) == offsetof(nvtxEventAttributes_t, size));
static_assert(offsetof(nvtx::Event, category) == offsetof(nvtxEventAttributes_t, category));
static_assert(offsetof(nvtx::Event, color_type) == offsetof(nvtxEventAttributes_t, colorType));
static_assert(offsetof(nvtx::Event, payload_type) == offsetof(nvtxEventAttributes_t, payloadType));
static_assert(offsetof(nvtx::Event, payload) == offsetof(nvtxEventAttributes_t, payload));
static_assert(offsetof(nvtx::Event, message_type) == offsetof(nvtxEventAttributes_t, messageType));
static_assert(offsetof(nvtx::Event, message) == offsetof(nvtxEventAttributes_t, message));
static_assert(NVTX_MESSAGE_TYPE_ASCII == 1 && NVTX_COLOR_UNKNOWN == 0 && NVTX_PAYLOAD_UNKNOWN == 0);

static_assert(int{nvtx::module_count} == int{NVTX_CB_MODULE_SIZE});
static_assert(nvtx::core == int{NVTX_CB_MODULE_CORE} && nvtx::module_sizes[nvtx::core] == NVTX_CBID_CORE_SIZE);
static_assert(nvtx::cuda == int{NVTX_CB_MODULE_CUDA} && nvtx::module_sizes[nvtx::cuda] == NVTX_CBID_CUDA_SIZE);
static_assert(nvtx::opencl == int{NVTX_CB_MODULE_OPENCL} && nvtx::module_sizes[nvtx::opencl] == NVTX_CBID_OPENCL_SIZE);
static_assert(nvtx::cudart == int{NVTX_CB_MODULE_CUDART} && nvtx::module_sizes[nvtx::cudart] == NVTX_CBID_CUDART_SIZE);
static_assert(nvtx::core2 == int{NVTX_CB_MODULE_CORE2} && nvtx::module_sizes[nvtx::core2] == NVTX_CBID_CORE2_SIZE);
static_assert(nvtx::sync == int{NVTX_CB_MODULE_SYNC} && nvtx::module_sizes[nvtx::sync] == NVTX_CBID_SYNC_SIZE);
static_assert(nvtx::domain_range_push == NVTX_CBID_CORE2_DomainRangePushEx);
static_assert(nvtx::domain_range_pop == NVTX_CBID_CORE2_DomainRangePop);
static_assert(nvtx::domain_create == NVTX_CBID_CORE2_DomainCreateA);

static_assert(nvtx::callbacks_table == NVTX_ETID_CALLBACKS && nvtx::version_table == NVTX_ETID_VERSIONINFO);
static_assert(sizeof(nvtx::Callbacks) == sizeof(NvtxExportTableCallbacks));
static_assert(offsetof(nvtx::Callbacks, functions_of) == offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
static_assert(sizeof(nvtx::Version) == sizeof(NvtxExportTableVersionInfo));
static_assert(offsetof(nvtx::Version, version) == offsetof(NvtxExportTableVersionInfo, version));
static_assert(offsetof(nvtx::Version, set_version_of_tool) ==
              offsetof(NvtxExportTableVersionInfo, SetInjectionNvtxVersion));

}  // namespace

TEST_CASE("the tests' tool receives what NVIDIA's client sends") {
    const nvtxDomainHandle_t domain = nvtxDomainCreateA("header");
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = "text";
    nvtxDomainRangePushEx(domain, &event);
    nvtxDomainRangePop(domain);
    auto& fake = *reinterpret_cast<decltype(&normjit_fake_nvtx)>(
        dlsym(dlopen(NORMJIT_FAKE_NVTX, RTLD_NOW | RTLD_NOLOAD), "normjit_fake_nvtx"))();
    const auto events = std::exchange(fake.events, {});
    REQUIRE(events.size() >= 3);
    CHECK(std::vector(events.end() - 3, events.end()) ==
          std::vector<std::string>{"0 domain header", "0 push header: text", "0 pop header"});
}

#else

TEST_CASE("the tests' tool receives what NVIDIA's client sends") { MESSAGE("skipped: no nvtx3/nvToolsExt.h"); }

#endif
