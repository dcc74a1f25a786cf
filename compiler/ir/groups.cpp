// SPDX-License-Identifier: Apache-2.0
#include "ir/groups.h"

#include "support/try.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

namespace normjit::ir {

namespace {

bool is_element_wise(Op op) { return info(op).result == ResultRule::join; }

double columns_of(const Function& function, const Value& group_max) { return function[group_max.operands[1]].constant; }

PerValue<bool> depend_on_groups(const Function& function) {
    PerValue<bool> depend(function.values.size());
    for (ValueId id = 0; id < function.size(); ++id) {
        const auto [a, b] = function[id].operands;
        depend[id] = function[id].op == Op::group_max || (a != no_value && depend[a]) || (b != no_value && depend[b]);
    }
    return depend;
}

Status refuse(const Function& function, ValueId id, std::string_view reason) {
    const std::string_view name = function[id].name, op = info(function[id].op).notation;
    return invalid_argument(fmt::format("{}{}: {}", text(function[id].place), name.empty() ? op : name, reason));
}

}  // namespace

int64_t group_columns(const Function& function) {
    const auto found = std::ranges::find(function.values, Op::group_max, &Value::op);
    return found == function.values.end() ? 0 : static_cast<int64_t>(columns_of(function, *found));
}

PerValue<bool> same_in_groups(const Function& function) {
    PerValue<bool> same(function.values.size());
    for (ValueId id = 0; id < function.size(); ++id) {
        const Value& value = function[id];
        if (value.shape != Shape::matrix || !is_element_wise(value.op)) continue;
        same[id] = value.op == Op::group_max || std::ranges::all_of(value.operands, [&](ValueId operand) {
                       return operand == no_value || same[operand] || !has_columns(function[operand].shape);
                   });
    }
    return same;
}

Status check_group_size(const Function& function, ValueId operand, ValueId columns) {
    if (function[operand].shape != Shape::matrix)
        return invalid_argument(fmt::format("group_max of {}; must be of [M,N]", text(function[operand].shape)));
    const double count = function[columns].op == Op::constant ? function[columns].constant : 0;
    const auto size = static_cast<uint64_t>(std::clamp<double>(count, 0, most_group_columns));
    const bool fits = static_cast<double>(size) == count && size >= fewest_group_columns && std::has_single_bit(size);
    if (fits && function.cols % static_cast<int64_t>(size) == 0) return {};
    const std::string given = function[columns].op == Op::constant ? fmt::format("{}", count) : "not a number";
    return invalid_argument(
        fmt::format("group_max: the columns of a group are {}; must be a power of two from {} to {} that divides "
                    "the columns of a row",
                    given, fewest_group_columns, most_group_columns));
}

Status check_groups(const Function& function) {
    const int64_t columns = group_columns(function);
    if (columns == 0) return {};
    const PerValue<bool> depend = depend_on_groups(function);
    for (ValueId id = 0; id < function.size(); ++id) {
        const Value& value = function[id];
        const bool reads_group = value.operands[0] != no_value && depend[value.operands[0]];
        if (value.op == Op::group_max) {
            NORMJIT_RETURN_IF_ERROR(check_group_size(function, value.operands[0], value.operands[1]));
            if (columns_of(function, value) != static_cast<double>(columns))
                return refuse(function, id, "the groups of a formula must have one size");
            if (reads_group)
                return refuse(function, id, "a group_max of a value that depends on a group_max is not supported");
        } else if (value.is_row_reduction() && reads_group) {
            return refuse(function, id, "a reduction of a value that depends on a group_max is not supported");
        } else if (value.op == Op::col_sum || value.op == Op::max_abs || is_partial(value.shape)) {
            return refuse(function, id, "cannot be combined with group_max; a launch computes one or the other");
        } else if (value.op == Op::partner || value.op == Op::rotate_half || value.op == Op::neighbour) {
            return refuse(function, id, "cannot be combined with group_max");
        }
    }
    return {};
}

}  // namespace normjit::ir
