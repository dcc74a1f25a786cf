// SPDX-License-Identifier: Apache-2.0
#include "normjit/log.h"

#include "support/text.h"

namespace normjit {

void Log::operator()(LogLevel level, const char* message) const {
    if (write == nullptr) return;
    if (!text::has_control_characters(message)) return write(self, level, message);  // this needs no memory
    write(self, level, text::one_line(message).c_str());
}

}  // namespace normjit
