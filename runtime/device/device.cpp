// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include "device/device_name.h"
#include "support/text.h"

#include <fmt/format.h>

namespace normjit {

OpenedDevice open_device(const EngineOptions& options) {
    if (options.device == "cpu") return cpu::open_device(options);
    if (const auto ordinal = cuda_ordinal(options.device)) return cuda::open_device(options, *ordinal);
    return invalid_argument(
        fmt::format("engine: device: '{}'; must be cpu or cuda:<number>", text::shown(options.device)));
}

}  // namespace normjit
