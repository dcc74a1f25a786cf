// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"

#include "mutate.h"

#include <cstdio>
#include <cstdlib>

namespace normjit::fuzz {

void require(bool holds, std::string_view what, std::string_view detail) {
    if (holds) return;
    std::fprintf(stderr, "\nERROR: %.*s\n%.*s\n", static_cast<int>(what.size()), what.data(),
                 static_cast<int>(detail.size()), detail.data());
    std::abort();
}

void require_error(const Status& status, std::string_view subject) {
    require(status.message().starts_with(subject), "an error without its subject", status.message());
    require(test::is_printable_line(status.message()), "an error that is no printable line", status.message());
}

}  // namespace normjit::fuzz
