// SPDX-License-Identifier: Apache-2.0
// The fields of a schedule as dimensions of a search. A new field is one line in the table of its device.
#pragma once

#include "normjit/operand.h"
#include "normjit/schedule.h"
#include "normjit/spec.h"
#include "normjit/target.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace normjit::schedule {

/// The problem on which the values of a dimension depend, in addition to earlier dimensions.
struct SearchedProblem {
    const Spec& spec;
    const Target& target;
    const OperandList& operands;  ///< the operands of the spec
    int64_t rows;
    Schedule heuristic;
};

/// Returns the values worth trying, given the values of earlier dimensions in `so_far`, where later dimensions have no
/// meaning yet. The order does not matter; the list is never empty.
using DimensionValues = std::vector<int64_t> (*)(const SearchedProblem& problem, const Schedule& so_far);

struct Dimension {
    std::string_view key;  ///< the field's key in the schedule's text
    DimensionValues values;
    int64_t (*get)(const Schedule& schedule);
    void (*set)(Schedule& schedule, int64_t value);
};

template <class Owner, class Field>
Owner owner_of(Field Owner::*);
template <class Owner, class Field>
Field field_of(Field Owner::*);

/// Returns the object that a pointer to a member of `Owner` applies to: the schedule itself, or the part for its
/// device.
template <class Owner>
decltype(auto) part_of(auto& schedule) {
    if constexpr (std::is_same_v<Owner, Schedule>) {
        return (schedule);
    } else {
        return (std::get<Owner>(schedule.device));
    }
}

/// Makes a dimension from a number or an enum, in the schedule or in the part for its device.
template <auto member>
constexpr Dimension dimension(std::string_view key, DimensionValues values) {
    using Owner = decltype(owner_of(member));
    using Field = decltype(field_of(member));
    return {key, values,
            [](const Schedule& schedule) { return static_cast<int64_t>(part_of<Owner>(schedule).*member); },
            [](Schedule& schedule, int64_t value) { part_of<Owner>(schedule).*member = static_cast<Field>(value); }};
}

/// Returns the fewest tasks that a CPU phase may have if the heuristic chooses `usual`: two per core. With fewer, one
/// delayed thread would make all others wait, which measurements on an idle machine do not show.
int64_t least_tasks(const SearchedProblem& problem, int64_t usual);

/// Return the dimensions in an order in which values depend only on earlier dimensions.
std::span<const Dimension> cpu_dimensions();
std::span<const Dimension> cuda_dimensions();

}  // namespace normjit::schedule
