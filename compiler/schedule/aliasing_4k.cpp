// SPDX-License-Identifier: Apache-2.0
#include "schedule/aliasing_4k.h"

#include "normjit/operand.h"

#include <algorithm>

namespace normjit::schedule {

namespace {

/// Also true if rows are a few columns shorter or longer than whole pages, because strips of both rows then overlap.
bool fills_pages(const Operand& matrix, int64_t cols) {
    constexpr int64_t page_bytes = 4096, near_columns = 16;
    const int64_t near = near_columns * matrix.bytes(), beyond = (cols * matrix.bytes() + near) % page_bytes;
    return cols * matrix.bytes() >= page_bytes - near && beyond <= 2 * near;
}

}  // namespace

bool has_4k_aliasing(const Spec& spec) {
    const OperandList operands(spec);
    return std::ranges::any_of(operands.matrix_outputs(), [&](const Operand& written) {
        if (written.axes.has_groups()) return false;
        const auto is_alike = [&](const Operand& read) { return read.bytes() == written.bytes(); };
        return fills_pages(written, spec.cols) && std::ranges::any_of(operands.matrices(), is_alike);
    });
}

}  // namespace normjit::schedule
