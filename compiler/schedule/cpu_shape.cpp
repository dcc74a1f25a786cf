// SPDX-License-Identifier: Apache-2.0
#include "schedule/cpu_shape.h"

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

int64_t bytes_read(const Spec& spec) {
    int64_t element_bytes = 0;
    const OperandList operands(spec);
    for (const Operand& matrix : operands.matrices()) element_bytes += matrix.bytes();
    return std::max<int64_t>(element_bytes * spec.cols, 1);
}

int64_t computed_bytes(const Spec& spec) { return spec.cols * static_cast<int64_t>(size_of(spec.compute())); }

int64_t column_bytes(const Spec& spec) {
    const OperandList operands(spec);
    const size_t columns = operands.columns().size() + operands.reductions().size();
    return static_cast<int64_t>(columns) * computed_bytes(spec);
}

Width width_of(const Spec& spec, const Target& target) {
    const int64_t bytes = bytes_read(spec), columns = column_bytes(spec);
    if (bytes > target.cpu.l2_bytes / 2 || bytes + columns > target.cpu.l2_bytes) return Width::widest;
    return bytes > target.cpu.l2_bytes / 8 || columns >= target.cpu.l2_bytes / 4 ? Width::wide : Width::usual;
}

DType type_of_rows(const Spec& spec) { return OperandList(spec).matrices()[0].dtype; }
bool converts(const Spec& spec) { return type_of_rows(spec) != spec.compute(); }

bool has_4k_aliasing(const Spec& spec) {
    const OperandList operands(spec);
    return std::ranges::any_of(operands.matrix_outputs(), [&](const Operand& written) {
        if (written.axes.has_groups()) return false;
        const auto is_alike = [&](const Operand& read) { return read.bytes() == written.bytes(); };
        return fills_pages(written, spec.cols) && std::ranges::any_of(operands.matrices(), is_alike);
    });
}

}  // namespace normjit::schedule
