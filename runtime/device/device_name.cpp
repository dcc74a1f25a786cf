// SPDX-License-Identifier: Apache-2.0
#include "device/device_name.h"

#include "support/text.h"

#include <climits>

namespace normjit {

std::optional<int> cuda_ordinal(std::string_view device) {
    constexpr std::string_view head = "cuda:";
    if (!device.starts_with(head)) return std::nullopt;
    const auto ordinal = text::parse_int(device.substr(head.size()), 0, INT_MAX);
    return ordinal.ok() ? std::optional(static_cast<int>(*ordinal)) : std::nullopt;
}

bool is_device_name(std::string_view text) { return text == "cpu" || cuda_ordinal(text).has_value(); }

}  // namespace normjit
