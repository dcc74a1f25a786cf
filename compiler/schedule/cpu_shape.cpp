// SPDX-License-Identifier: Apache-2.0
#include "schedule/cpu_shape.h"

#include "normjit/operand.h"

#include <algorithm>

namespace normjit::schedule {

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

}  // namespace normjit::schedule
