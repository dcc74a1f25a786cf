// SPDX-License-Identifier: Apache-2.0
#include "tuning/text_file.h"

#include "file_io.h"
#include "support/try.h"

#include <fmt/format.h>

namespace normjit::tuning {

Expected<std::string> read_text_file(const std::string& path) {
    constexpr int64_t most_bytes = 64 << 20;
    NORMJIT_TRY(const RegularFile file, open_regular(AT_FDCWD, path));
    if (file.facts.st_size > most_bytes) return unavailable(fmt::format("has more than {} bytes", most_bytes));
    return read_at(file.descriptor, 0, file.facts.st_size);
}

}  // namespace normjit::tuning
