// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace normjit {

namespace {

/// "cuda:1" is 1; nothing for what is no such text.
std::optional<int> cuda_ordinal(std::string_view device) {
    constexpr std::string_view head = "cuda:";
    if (!device.starts_with(head)) return std::nullopt;
    device.remove_prefix(head.size());
    int ordinal = 0;
    const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), ordinal);
    const bool number = error == std::errc() && end == device.data() + device.size() && ordinal >= 0;
    return number ? std::optional(ordinal) : std::nullopt;
}

}  // namespace

OpenedDevice open_device(const EngineOptions& options) {
    if (options.device == "cpu") return cpu::open_device(options);
    if (const auto ordinal = cuda_ordinal(options.device)) return cuda::open_device(options, *ordinal);
    return invalid_argument(fmt::format("engine: device: '{}'; must be cpu or cuda:<number>", options.device));
}

}  // namespace normjit
