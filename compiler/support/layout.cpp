// SPDX-License-Identifier: Apache-2.0
#include "normjit/status.h"

namespace normjit {

void same_layout(std::index_sequence<sizeof(std::string), sizeof(std::vector<int>)>) {}

}  // namespace normjit
