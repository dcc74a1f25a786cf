// SPDX-License-Identifier: Apache-2.0
#include "tune/worker.h"

#include "problem/checked_problem.h"
#include "problem/workbench.h"
#include "support/try.h"
#include "tune/compilers.h"
#include "tuning/statistics.h"

#include "normjit/engine.h"

#include <algorithm>
#include <optional>

namespace normjit::cli::tune {
namespace {

using tuning::compare;
using tuning::Comparison;
using Clock = std::chrono::steady_clock;

constexpr uint64_t data_seed = 1;
constexpr int trial_batch = 5, trial_most = 60;
constexpr int final_batch = 5, final_most = 400;

class Worker {
  public:
    Worker(std::unique_ptr<Workbench> workbench, Compilers compilers, Channel& channel)
        : workbench_(std::move(workbench)), compilers_(std::move(compilers)), channel_(channel) {}

    void run() {
        const DeviceClass& device = workbench_->engine().device_class();
        Status sent = channel_.send({{"model", device.model},
                                     {"target", to_text(device.target)},
                                     {"threads", device.threads},
                                     {"cold", workbench_->is_cold()}});
        while (sent.ok()) {
            const auto request = channel_.receive(Clock::time_point::max());
            if (!request.ok()) return;
            auto answer = answer_to(*request);
            sent = channel_.send(answer.ok() ? *answer : error_message(answer.status()));
            if (compilers_.are_gone()) return;  // the next worker gets new ones
        }
    }

  private:
    Expected<Json> answer_to(const Json& request) {
        const std::string op = request["op"];
        if (op == "open") return open(request);
        if (op == "trial") return trial(request);
        return final_round(request);
    }

    Expected<Json> open(const Json& request) {
        problem_.reset();  // frees its memory before that is needed again
        heuristic_.reset();
        NORMJIT_TRY(spec_, parse_spec(request["spec"].get<std::string>()));
        compilers_.open(spec_, engine().target());
        const std::string schedule = to_text(heuristic(spec_, engine().target()));
        compilers_.ask(schedule);
        ask_ahead(request);
        NORMJIT_TRY(const Kernel kernel, make(schedule));
        NORMJIT_TRY(problem_, workbench_->open_checked_problem(kernel, *spec_.batch(), data_seed));
        NORMJIT_RETURN_IF_ERROR(problem_->check(kernel));
        heuristic_ = kernel;
        return Json{{"caches", problem_->is_cold() ? "cold" : "warm"}, {"copies", problem_->copies()}};
    }

    Expected<Json> trial(const Json& request) {
        ask_ahead(request);
        auto kernel = make(request["schedule"]);
        if (!kernel.ok()) return Json{{"outcome", "refused"}, {"message", kernel.status().message()}};
        if (const Status right = problem_->check(*kernel); !right.ok())
            return Json{{"outcome", "wrong"}, {"message", right.message()}};
        const double best = request["best"];
        const auto hopeless = [&](const Comparison& c, size_t rounds) {
            const bool clear = rounds >= 15 && c.high - c.low < 0.01 * c.gain;
            return c.high < 0.98 * best || clear;
        };
        Seconds seconds(2);
        Comparison comparison;
        const Kernel pair[] = {*heuristic_, *kernel};
        const auto end = Clock::now() + std::chrono::duration<double>(request["seconds"].get<double>());
        do {
            NORMJIT_RETURN_IF_ERROR(time(pair, trial_batch, seconds));
            comparison = compare(seconds[0], seconds[1]);
        } while (Clock::now() < end && seconds[0].size() < trial_most && !hopeless(comparison, seconds[0].size()));
        return Json{{"outcome", "measured"},
                    {"gain", comparison.gain},
                    {"low", comparison.low},
                    {"high", comparison.high},
                    {"time", bench::sample_of(seconds[1]).median}};
    }

    Expected<Json> final_round(const Json& request) {
        std::vector<Kernel> kernels = {*heuristic_};
        for (const Json& each : request["schedules"]) {
            NORMJIT_TRY(const Kernel kernel, make(each));
            NORMJIT_RETURN_IF_ERROR(problem_->check(kernel));
            kernels.push_back(kernel);
        }
        kernels.push_back(*heuristic_);  // the heuristic's kernel is compared with itself, which shows the noise
        problem_->hold(request["warm"]);
        Seconds seconds(kernels.size());
        const auto end = Clock::now() + std::chrono::duration<double>(request["seconds"].get<double>());
        do {
            NORMJIT_RETURN_IF_ERROR(time(kernels, final_batch, seconds));
        } while (Clock::now() < end && seconds[0].size() < final_most && !is_decided(seconds));
        auto result = result_of(seconds, kernels);
        problem_->hold(false);
        return result;
    }

    static double noise_of(const Seconds& seconds) {
        const Comparison twin = compare(seconds.front(), seconds.back());
        return std::max({std::abs(twin.low - 1), std::abs(twin.high - 1)});
    }

    /// True if the fastest is clearly faster than all others, or if none can become so.
    static bool is_decided(const Seconds& seconds) {
        constexpr size_t least = 30;
        constexpr double narrow = 0.003;
        if (seconds[0].size() < least) return false;
        std::vector<Comparison> all;
        for (size_t k = 1; k + 1 < seconds.size(); ++k) all.push_back(compare(seconds[0], seconds[k]));
        std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.gain > b.gain; });
        const double noise = noise_of(seconds);
        const bool loses = all.empty() || all.front().high < 1 + noise;
        const bool wins = !all.empty() && all.front().low > 1 + noise;
        const bool alone = all.size() < 2 || all[1].high < all.front().low || all.front().gain - all[1].gain < narrow;
        return loses || (wins && alone);
    }

    Expected<Json> result_of(Seconds& seconds, const std::vector<Kernel>& kernels) {
        Json result = {{"kernels", Json::array()}, {"noise", noise_of(seconds)}};
        size_t fastest = 0;
        double best = 1;
        for (size_t k = 0; k + 1 < kernels.size(); ++k) {
            const Comparison comparison = compare(seconds[0], seconds[k]);
            if (k > 0 && comparison.gain > best) best = comparison.gain, fastest = k;
            std::vector<double> sorted = seconds[k];
            const bench::Sample sample = bench::sample_of(sorted);
            result["kernels"].push_back({{"median", sample.median},
                                         {"p20", sample.p20},
                                         {"p80", sample.p80},
                                         {"gain", comparison.gain},
                                         {"low", comparison.low},
                                         {"high", comparison.high}});
        }
        constexpr bench::MeasureOptions brief{.seconds = 0.02, .min_samples = 7, .max_samples = 100, .host = false};
        NORMJIT_TRY(const auto measurement, problem_->measure(kernels[fastest], brief));
        result["share"] = measurement.share;
        return result;
    }

    Status time(std::span<const Kernel> kernels, int rounds, Seconds& seconds) {
        NORMJIT_TRY(const Seconds more, problem_->time(kernels, rounds));
        for (size_t k = 0; k < more.size(); ++k) seconds[k].insert(seconds[k].end(), more[k].begin(), more[k].end());
        return {};
    }

    const Engine& engine() const { return workbench_->engine(); }

    void ask_ahead(const Json& request) {
        for (const std::string schedule : request["ahead"]) compilers_.ask(schedule);
        compilers_.step();
    }

    Expected<Kernel> make(const std::string& schedule) {
        NORMJIT_TRY(const Artifact artifact, compilers_.take(schedule));
        return engine().load(artifact);
    }

    const std::unique_ptr<Workbench> workbench_;
    Compilers compilers_;
    Channel& channel_;
    Spec spec_;
    std::optional<Kernel> heuristic_;
    std::unique_ptr<CheckedProblem> problem_;
};

}  // namespace

void serve(const DeviceOptions& device, Channel& channel) {
    const auto refuse = [&](const Status& status) { static_cast<void>(channel.send(error_message(status))); };
    auto compilers =
        Compilers::start(Compilers::usual_count(device.device));  // while this process still has one thread and no GPU
    if (!compilers.ok()) return refuse(compilers.status());
    auto workbench = open_workbench(device, Caches::cold);
    if (!workbench.ok()) return refuse(workbench.status());
    Worker(*std::move(workbench), *std::move(compilers), channel).run();
}

}  // namespace normjit::cli::tune
