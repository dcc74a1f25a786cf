// SPDX-License-Identifier: Apache-2.0
#include "support/text.h"

#include "normjit/artifact.h"
#include "normjit/tuning.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

namespace normjit {

namespace {

constexpr size_t most_warnings = 20;

/// The least gain that makes a record of another device count here. A smaller gain may be due to that device's
/// properties.
constexpr double architecture_gain = 1.05;

/// The factor by which M and S of a record may differ.
constexpr double size_factor = 2;

/// Returns the part of a spec that decides its fastest schedule: everything except M and S.
Spec problem_of(Spec spec) {
    spec.rows.reset();
    if (spec.has_slices()) spec.slices.reset();
    spec.eps = Spec().eps;
    spec.gamma_offset = spec.gamma_offset == 0 ? 0 : 1;
    for (auto& tensor : spec.tensors.values) {
        if (tensor) tensor->accumulate = false;
    }
    return spec;
}

bool same_architecture(const Target& a, const Target& b) {
    return a.isa == b.isa && a.cuda.sm == b.cuda.sm && a.cpu.backend == b.cpu.backend && a.cpu.tune == b.cpu.tune &&
           a.cpu.avx512_bf16 == b.cpu.avx512_bf16 && a.cpu.avx512_fp16 == b.cpu.avx512_fp16;
}

/// Returns the schedule with as many row groups per core or multiprocessor as it had on the device that measured it.
Schedule scaled(Schedule schedule, const DeviceClass& from, const DeviceClass& to) {
    const auto units = [](const DeviceClass& device) {
        return device.target.isa == Isa::cuda ? int64_t{device.target.cuda.sm_count} : int64_t{device.threads};
    };
    schedule.row_groups = std::max<int64_t>(1, schedule.row_groups * units(to) / std::max<int64_t>(units(from), 1));
    return schedule;
}

/// Returns the number of columns in a line that to_text() made, in which the spec comes first; 0 if the line has none.
int64_t first_cols(std::string_view line) {
    constexpr std::string_view key = "cols=";
    const size_t at = line.find(key);
    int64_t cols = 0;
    if (at != line.npos) std::from_chars(line.data() + at + key.size(), line.data() + line.size(), cols);
    return cols;
}

std::string times_text(double gain) { return fmt::format("{:.2f} times as fast as the heuristic there", gain); }

}  // namespace

struct TuningRecords::Impl {
    struct Entry {
        TuningRecord record;
        std::string where;  ///< "<source>:<line>"
        size_t line;        ///< its number among all lines that were added
    };
    struct Unread {
        std::string_view text;
        std::string source;
        size_t line;  ///< the number of its first line
    };
    std::mutex mutex;  ///< find() locks it, because it reads lines
    std::vector<Entry> entries;
    std::unordered_multimap<std::string, size_t> by_problem;  ///< from the text of problem_of() to the index
    /// From that text together with S, M and the device to the index.
    std::unordered_map<std::string, size_t> by_identity;
    std::vector<Unread> unread;
    std::unordered_set<int64_t> read_cols;  ///< values of cols whose unread lines have been read
    size_t lines = 0;
    std::optional<PointSet> points;  ///< if not set, those in the library

    /// Returns the heuristic's choice. For a GPU, where points decide, appends the deciding ones to `reasons`.
    Schedule choose(const Spec& spec, const Target& target, std::vector<std::string>* reasons = nullptr) const {
        if (!target.is_cuda()) return heuristic(spec, target);
        return heuristic(spec, target, points ? *points : PointSet::shipped(), reasons);
    }

    Status check_use(const Spec& spec, const Schedule& schedule, const Target& target) const {
        return points ? usability(spec, schedule, target, *points) : usability(spec, schedule, target);
    }

    /// Adds a record. A later line replaces an earlier one with the same problem and device.
    void put(Entry entry) {
        const TuningRecord& record = entry.record;
        std::string problem = to_text(problem_of(record.spec));
        const auto [place, is_new] = by_identity.try_emplace(
            fmt::format("{}|{}|{}|{}|{}|{}", problem, *record.spec.slices, *record.spec.rows, record.device.model,
                        to_text(record.device.target), record.device.threads),
            entries.size());
        if (is_new) {
            by_problem.emplace(std::move(problem), entries.size());
            entries.push_back(std::move(entry));
        } else if (entries[place->second].line < entry.line) {
            entries[place->second] = std::move(entry);
        }
    }

    /// Adds the record of a line of a source whose first line has number `first` + 1. Returns a warning if it has none.
    std::optional<std::string> put_line(const text::Line& line, const std::string& source, size_t first) {
        std::string where = fmt::format("{}:{}", source, line.number);
        auto record = parse_record(line.text);
        if (!record) return fmt::format("{}: {}; the line is ignored", where, record.status().message());
        put({*std::move(record), std::move(where), first + static_cast<size_t>(line.number)});
        return std::nullopt;
    }

    /// Reads the unread lines for rows of this length. Returns warnings.
    std::vector<std::string> read(int64_t cols) {
        std::vector<std::string> warnings;
        if (!read_cols.insert(cols).second) return warnings;
        for (const Unread& each : unread) {
            for (const text::Line& line : text::content_lines(each.text)) {
                if (first_cols(line.text) != cols) continue;
                if (auto warning = put_line(line, each.source, each.line)) warnings.push_back(*std::move(warning));
            }
        }
        return warnings;
    }

    std::vector<Entry> of_problem(const Spec& spec) const {
        std::vector<Entry> found;
        const auto [begin, end] = by_problem.equal_range(to_text(problem_of(spec)));
        for (auto each = begin; each != end; ++each) found.push_back(entries[each->second]);
        // Sorted because the order in a hash table is arbitrary.
        std::ranges::sort(found, {}, &Entry::line);
        return found;
    }
};

namespace {

/// Returns the distance of a record's M or S: 0 if it is equal, negative if the record does not apply. If the size is
/// dynamic, the largest record counts, because the longest launches matter most.
std::optional<double> distance_of(std::optional<int64_t> wanted, int64_t recorded) {
    if (recorded == 0) return std::nullopt;
    if (!wanted) return 1 / static_cast<double>(recorded);
    if (*wanted == recorded) return 0;
    const double distance =
        std::fabs(std::log2(std::max(static_cast<double>(*wanted), 0.5) / static_cast<double>(recorded)));
    return distance <= std::log2(size_factor) ? std::optional(distance) : std::nullopt;
}

std::optional<double> distance_of(const Spec& spec, const Spec& recorded) {
    const auto rows = distance_of(spec.rows, *recorded.rows), slices = distance_of(spec.slices, *recorded.slices);
    return rows && slices ? std::optional(*rows + *slices) : std::nullopt;
}

/// A record that may apply.
struct Offer {
    const TuningRecord* record;
    const std::string* where;
    TuningTier tier;
    double distance;
};

std::optional<Offer> offer_of(const TuningRecord& record, const std::string& where, const Spec& spec,
                              const DeviceClass& device) {
    const auto distance = distance_of(spec, record.spec);
    if (!distance) return std::nullopt;
    if (record.device == device) {
        return Offer{&record, &where, *distance == 0 ? TuningTier::exact : TuningTier::nearest_rows, *distance};
    }
    const bool enough = record.is_tuned() && record.gain >= architecture_gain;
    if (!enough || !same_architecture(record.device.target, device.target)) return std::nullopt;
    return Offer{&record, &where, TuningTier::architecture, *distance};
}

std::string reason_of(const Offer& offer, const Spec& spec) {
    const TuningRecord& record = *offer.record;
    std::string reason = *offer.where;
    if (record.spec.rows != spec.rows) reason += fmt::format(", measured with rows={}", *record.spec.rows);
    if (record.spec.slices != spec.slices) reason += fmt::format(", measured with slices={}", *record.spec.slices);
    if (offer.tier == TuningTier::architecture) {
        reason += fmt::format(", measured on {} ({}, {} threads)",
                              record.device.model.empty() ? "another device" : record.device.model,
                              to_text(record.device.target), record.device.threads);
    }
    reason += record.is_tuned() ? ": " + times_text(record.gain) : ": nothing was faster than the heuristic there";
    if (record.generator != generator_version)
        reason += fmt::format("; made with code generator {}, this is {}", record.generator, generator_version);
    return reason;
}

}  // namespace

TuningRecords::TuningRecords() : impl_(std::make_unique<Impl>()) {}
TuningRecords::~TuningRecords() = default;
TuningRecords::TuningRecords(TuningRecords&&) noexcept = default;
TuningRecords& TuningRecords::operator=(TuningRecords&&) noexcept = default;

size_t TuningRecords::size() const { return impl_->entries.size(); }

std::vector<std::string> TuningRecords::add(std::string_view text, const std::string& source) {
    std::vector<std::string> warnings;
    size_t bad = 0, last = impl_->lines;
    for (const text::Line& line : text::content_lines(text)) {
        last = impl_->lines + static_cast<size_t>(line.number);
        auto warning = impl_->put_line(line, source, impl_->lines);
        if (warning && ++bad <= most_warnings) warnings.push_back(*std::move(warning));
    }
    impl_->lines = last;
    if (bad > most_warnings)
        warnings.push_back(fmt::format("{}: {} more lines are not records", source, bad - most_warnings));
    return warnings;
}

void TuningRecords::add_unread(std::string_view text, const std::string& source) {
    impl_->unread.push_back({text, source, impl_->lines});
    impl_->lines += static_cast<size_t>(std::ranges::count(text, '\n')) + 1;
    impl_->read_cols.clear();
}

void TuningRecords::set_points(PointSet points) { impl_->points = std::move(points); }

ChosenSchedule TuningRecords::find(const Spec& spec, const DeviceClass& device) const {
    ChosenSchedule chosen;
    std::vector<Offer> offers;
    std::vector<Impl::Entry> entries;
    {
        const std::lock_guard lock(impl_->mutex);
        chosen.warnings = impl_->read(spec.cols);
        entries = impl_->of_problem(spec);
    }
    for (const Impl::Entry& entry : entries) {
        if (const auto offer = offer_of(entry.record, entry.where, spec, device)) offers.push_back(*offer);
    }
    std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
        return std::pair(a.tier, a.distance) < std::pair(b.tier, b.distance);
    });
    for (const Offer& offer : offers) {
        chosen.tier = offer.tier;
        chosen.reason = reason_of(offer, spec);
        chosen.schedule = offer.record->schedule;
        if (offer.tier == TuningTier::architecture)
            chosen.schedule = scaled(chosen.schedule, offer.record->device, device);
        if (!offer.record->is_tuned()) {
            chosen.schedule = impl_->choose(spec, device.target);  // the heuristic of this version may know more
            return chosen;
        }
        const Status usable = impl_->check_use(spec, chosen.schedule, device.target);
        if (usable.ok()) return chosen;
        chosen.warnings.push_back(fmt::format("{}: {}; the record is ignored", *offer.where, usable.message()));
    }
    std::vector<std::string> reasons;
    chosen.schedule = impl_->choose(spec, device.target, &reasons);
    chosen.tier = TuningTier::heuristic;
    chosen.reason =
        entries.empty()
            ? "no record of this problem"
            : fmt::format("no record of this problem is for such a device and M; for others: {}", entries.size());
    for (const std::string& reason : reasons) chosen.reason += "; " + reason;
    return chosen;
}

}  // namespace normjit
