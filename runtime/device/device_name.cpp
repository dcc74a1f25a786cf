// SPDX-License-Identifier: Apache-2.0
#include "device/device_name.h"

#include <charconv>
#include <system_error>

namespace normjit {

std::optional<int> cuda_ordinal(std::string_view device) {
    constexpr std::string_view head = "cuda:";
    if (!device.starts_with(head)) return std::nullopt;
    device.remove_prefix(head.size());
    int ordinal = 0;
    const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), ordinal);
    const bool number = error == std::errc() && end == device.data() + device.size() && ordinal >= 0;
    return number ? std::optional(ordinal) : std::nullopt;
}

bool is_device_name(std::string_view text) { return text == "cpu" || cuda_ordinal(text).has_value(); }

}  // namespace normjit
