// SPDX-License-Identifier: Apache-2.0
#include "schedule/cuda_cost.h"

#include "plan/cuda.h"
#include "support/divide.h"
#include "support/embedded.h"
#include "support/lasting.h"
#include "support/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace normjit::schedule {

namespace {

constexpr double most_moved = 1 << 30;  // bytes: launches that move more have the same fastest schedules

double logarithm(double value) { return std::log2(std::max(value, 1e-4)); }

/// How a schedule divides a problem's rows.
struct Division {
    Division(const CudaFeatures& p, const CudaTarget& target, const Schedule& schedule, const CudaSchedule& s) {
        const bool has_teams = s.form == CudaForm::rows;
        const double row_moved = static_cast<double>(p.cols) * p.element_bytes * (p.matrices_read + p.matrices_written);
        rows = std::min(p.rows_of_processor * target.sm_count, std::max(most_moved / row_moved, 1.0));
        if (has_teams) steps = vectors_of_thread(p.cols, s), idle = idle_lanes(p.cols, s);
        const double groups = static_cast<double>(schedule.row_groups);
        is_lone = schedule.row_groups == 1;
        if (p.slice_rows > 0) {
            const auto of_slice = static_cast<double>(round_up(p.slice_rows, int64_t{s.rows_per_block}));
            idle_teams = of_slice / static_cast<double>(p.slice_rows) - 1;
        }
        turns = rows / s.rows_per_block / groups;
        waiting = std::ceil(turns) / std::max(turns, 1e-9) - 1;
        blocks = groups * s.cluster / target.sm_count;
        active = std::min<double>(blocks, s.blocks_per_sm);
        threads = active * s.threads_per_row * s.rows_per_block;
        const double row_bytes = static_cast<double>(steps) * s.vector_width * p.element_bytes * p.matrices_read;
        const bool is_staged = s.staging != CudaStaging::registers;
        in_flight = threads * row_bytes * s.pipeline_depth;
        shared = is_staged ? row_bytes * s.pipeline_depth * s.threads_per_row * s.rows_per_block : 0;
        double words = p.sums * static_cast<double>(steps) * s.vector_width;
        if (s.row_memory == CudaMemory::registers) words += row_bytes / 4 * (is_staged ? 1 : s.pipeline_depth);
        if (s.column_memory == CudaMemory::registers)
            words += static_cast<double>(steps) * s.vector_width * p.column_bytes / 4;
        registers = words;
        moved = rows * row_moved;
        partials = groups * static_cast<double>(p.cols) * 4 * p.sums;
    }

    double rows = 0;        ///< rows of all slices
    int64_t steps = 1;      ///< vectors of a row that one thread has
    double idle = 0;        ///< lanes without a vector, as a fraction of the vectors
    double idle_teams = 0;  ///< teams that get no row in a slice's last turn, as a fraction of its rows
    bool is_lone = false;   ///< there is one row group and no final reduce
    double turns = 0;       ///< how many times a row group takes rows
    double waiting = 0;     ///< the part of the last turn in which some groups have no row, as a fraction of all turns
    double blocks = 0;      ///< blocks per multiprocessor in the whole launch
    double active = 0;      ///< blocks per multiprocessor at one time
    double threads = 0;     ///< threads per multiprocessor at one time
    double in_flight = 0;   ///< bytes that a multiprocessor has requested at one time
    double shared = 0;      ///< bytes of a block's stages
    double registers = 0;   ///< words of data in a thread
    double moved = 0;       ///< bytes
    double partials = 0;    ///< bytes
};

struct Number {
    std::string_view name;
    double (*of)(const CudaFeatures&, const CudaTarget&, const CudaSchedule&, const Division&);
};
using P = const CudaFeatures&;
using T = const CudaTarget&;
using S = const CudaSchedule&;
using D = const Division&;

constexpr std::array numbers_of_cost = std::to_array<Number>({
    {"cols", [](P p, T, S, D) { return logarithm(static_cast<double>(p.cols)); }},
    {"rows_of_processor", [](P, T t, S, D d) { return logarithm(d.rows / t.sm_count); }},
    {"slice_rows", [](P p, T, S, D) { return logarithm(static_cast<double>(p.slice_rows) + 1); }},
    {"has_slices", [](P p, T, S, D) { return p.has_slices ? 1.0 : 0.0; }},
    {"element_bytes", [](P p, T, S, D) { return double(p.element_bytes); }},
    {"alignment", [](P p, T, S, D) { return double(p.alignment); }},
    {"matrices_read", [](P p, T, S, D) { return double(p.matrices_read); }},
    {"matrices_written", [](P p, T, S, D) { return double(p.matrices_written); }},
    {"columns_read", [](P p, T, S, D) { return double(p.columns_read); }},
    {"column_bytes", [](P p, T, S, D) { return double(p.column_bytes); }},
    {"sums", [](P p, T, S, D) { return double(p.sums); }},
    {"reduces", [](P p, T, S, D) { return p.reduces ? 1.0 : 0.0; }},
    {"sweeps", [](P p, T, S, D) { return double(p.work.sweeps); }},
    {"functions", [](P p, T, S, D) { return double(p.work.functions); }},
    {"group_maxima", [](P p, T, S, D) { return double(p.work.group_maxima); }},
    {"form", [](P, T, S s, D) { return double(static_cast<int>(s.form)); }},
    {"staging", [](P, T, S s, D) { return double(static_cast<int>(s.staging)); }},
    {"row_memory", [](P, T, S s, D) { return double(static_cast<int>(s.row_memory)); }},
    {"column_memory", [](P, T, S s, D) { return double(static_cast<int>(s.column_memory)); }},
    {"threads_per_row", [](P, T, S s, D) { return logarithm(s.threads_per_row); }},
    {"rows_per_block", [](P, T, S s, D) { return logarithm(s.rows_per_block); }},
    {"rows_per_team", [](P, T, S s, D) { return double(s.rows_per_team); }},
    {"cluster", [](P, T, S s, D) { return logarithm(s.cluster); }},
    {"blocks_per_sm", [](P, T, S s, D) { return double(s.blocks_per_sm); }},
    {"pipeline_depth", [](P, T, S s, D) { return double(s.pipeline_depth); }},
    {"pace", [](P, T, S s, D) { return double(s.pace); }},
    {"pace_slack", [](P, T, S s, D) { return double(s.pace_slack); }},
    {"block_threads", [](P, T, S s, D) { return logarithm(s.threads_per_row * s.rows_per_block); }},
    {"vector_bytes", [](P p, T, S s, D) { return double(s.vector_width * p.element_bytes); }},
    {"shift", [](P p, T, S s, D) { return double(s.vector_width) / p.alignment; }},
    {"vectors", [](P p, T, S s, D) { return logarithm(double(plan::vectors_of_row(p.cols, s.vector_width))); }},
    {"steps", [](P, T, S, D d) { return double(d.steps); }},
    {"idle", [](P, T, S, D d) { return d.idle; }},
    {"idle_teams", [](P, T, S, D d) { return d.idle_teams; }},
    {"lone", [](P, T, S, D d) { return d.is_lone ? 1.0 : 0.0; }},
    {"turns", [](P, T, S, D d) { return logarithm(d.turns); }},
    {"waiting", [](P, T, S, D d) { return d.waiting; }},
    {"blocks", [](P, T, S, D d) { return logarithm(d.blocks); }},
    {"active", [](P, T, S, D d) { return d.active; }},
    {"threads", [](P, T, S, D d) { return logarithm(d.threads); }},
    {"in_flight", [](P, T, S, D d) { return logarithm(d.in_flight); }},
    {"shared", [](P, T t, S, D d) { return d.shared / static_cast<double>(t.shared_bytes); }},
    {"registers", [](P, T, S, D d) { return d.registers; }},
    {"moved", [](P, T, S, D d) { return logarithm(d.moved); }},
    {"of_l2", [](P, T t, S, D d) { return logarithm(d.moved / static_cast<double>(t.l2_bytes)); }},
    {"partials", [](P, T, S, D d) { return logarithm(d.partials / d.moved); }},
});

const CostTrees& trees() {
    static const CostTrees& costs = *lasting(*CostTrees::parse(embedded::costs().front().text, cuda_cost_names()));
    return costs;
}

constexpr double units = 100'000;  // how many units of leaves are 1

bool take(std::string_view& text, char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
}

std::optional<int> take_int(std::string_view& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return value;
}

/// Returns nothing if the line is anything but increasing numbers.
std::optional<std::vector<double>> read_limits(std::string_view line) {
    std::vector<double> limits;
    for (const std::string_view word : text::split(line, ' ')) {
        const auto limit = text::parse_double(word);
        if (!limit.ok() || (!limits.empty() && *limit <= limits.back())) return std::nullopt;
        limits.push_back(*limit);
    }
    return limits;
}

}  // namespace

std::span<const std::string_view> cuda_cost_names() {
    static constexpr auto names = [] {
        std::array<std::string_view, numbers_of_cost.size()> all;
        std::ranges::transform(numbers_of_cost, all.begin(), &Number::name);
        return all;
    }();
    return names;
}

std::vector<double> cuda_cost_numbers(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule) {
    const auto& s = std::get<CudaSchedule>(schedule.device);
    const Division division(problem, target, schedule, s);
    std::vector<double> numbers;
    for (const Number& each : numbers_of_cost) numbers.push_back(each.of(problem, target, s, division));
    return numbers;
}

double cuda_cost(const CudaFeatures& problem, const CudaTarget& target, const Schedule& schedule) {
    return trees().sum(cuda_cost_numbers(problem, target, schedule));
}

Expected<CostTrees> CostTrees::parse(std::string_view text, std::span<const std::string_view> names) {
    CostTrees costs;
    costs.nodes_.reserve(static_cast<size_t>(std::ranges::count(text, ' ')));
    bool has_names = false;
    for (const std::string_view line : text::split(text, '\n')) {
        if (line.empty() || line.starts_with('#')) continue;
        if (!has_names) {
            if (!std::ranges::equal(text::split(line, ' '), names))
                return invalid_argument("costs: the numbers have other names");
            has_names = true;
        } else if (costs.limits_.size() < names.size()) {
            auto limits = read_limits(line);
            if (!limits) return invalid_argument("costs: limits must be numbers that increase: " + text::shown(line));
            costs.limits_.push_back(std::move(*limits));
        } else {
            costs.roots_.push_back(costs.nodes_.size());
            if (std::string_view rest = line; !costs.read_tree(rest) || !rest.empty())
                return invalid_argument("costs: a line is not a tree: " + text::shown(line));
        }
    }
    if (costs.roots_.empty()) return invalid_argument("costs: there is no tree");
    return costs;
}

bool CostTrees::read_tree(std::string_view& line) {
    const auto first = take_int(line);
    if (!first) return false;
    const size_t at = nodes_.size();
    if (!take(line, ':')) {
        nodes_.push_back({-1, *first});
        return true;
    }
    const auto limit = take_int(line);
    if (!limit || !take(line, ' ') || std::cmp_greater_equal(*first, limits_.size()) || *first < 0 || *limit < 0 ||
        std::cmp_greater_equal(*limit, limits_[static_cast<size_t>(*first)].size()))
        return false;
    nodes_.push_back({*first, *limit});
    if (!read_tree(line)) return false;
    nodes_[at].otherwise = static_cast<uint32_t>(nodes_.size());
    return take(line, ' ') && read_tree(line);
}

double CostTrees::sum(std::span<const double> numbers) const {
    // A number's place is the number of limits below it.
    std::vector<int> places;
    for (size_t i = 0; i < limits_.size(); ++i)
        places.push_back(static_cast<int>(std::ranges::lower_bound(limits_[i], numbers[i]) - limits_[i].begin()));
    int64_t sum = 0;
    for (size_t at : roots_) {
        while (nodes_[at].number >= 0) {
            const Node& node = nodes_[at];
            at = places[static_cast<size_t>(node.number)] <= node.value ? at + 1 : node.otherwise;
        }
        sum += nodes_[at].value;
    }
    return static_cast<double>(sum) / units;
}

}  // namespace normjit::schedule
