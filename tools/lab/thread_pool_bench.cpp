// SPDX-License-Identifier: Apache-2.0
// thread_pool_bench [threads]: measures what it costs to give a job to 2, 4, 8 ... threads of the pool and to wait for
// the last task, in microseconds: 20th percentile, median and 80th percentile. A task is empty or computes for 1 us.
// Jobs follow each other at once, or after a pause in which workers may fall asleep.
#include "device/cpu/thread_pool.h"
#include "support/try.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

using namespace normjit;
using namespace std::chrono_literals;
using cpu::ThreadPool;

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

void busy_for(Clock::duration time) {
    for (const Clock::time_point end = Clock::now() + time; Clock::now() < end;) {
    }
}

struct Case {
    int tasks_each;
    std::chrono::microseconds task;
    std::chrono::microseconds pause;
};

/// Returns how long each job takes, in addition to its tasks, which all threads share.
std::vector<double> measure(ThreadPool& pool, const Case& the) {
    const int jobs = std::clamp(200'000 / (static_cast<int>(the.pause.count()) + 10), 200, 20'000);
    const auto task = [&](int64_t, int64_t) { busy_for(the.task); };
    std::vector<double> times;
    for (int i = -jobs / 10; i < jobs; ++i) {
        if (the.pause.count() > 0) busy_for(the.pause);
        const Clock::time_point begin = Clock::now();
        pool.run(cpu::phases_of(1, 0, the.tasks_each * pool.threads(), task));
        const double took = Microseconds(Clock::now() - begin).count();
        if (i >= 0) times.push_back(took - static_cast<double>(the.tasks_each * the.task.count()));
    }
    std::sort(times.begin(), times.end());
    return times;
}

Status report(int threads) {
    const auto pool = ThreadPool::create(threads);
    for (const auto pause : {0us, 10us, 100us, 1000us}) {
        for (const Case& each : {Case{1, 0us, pause}, Case{1, 1us, pause}, Case{4, 1us, pause}, Case{4, 5us, pause}}) {
            const std::vector<double> times = measure(*pool, each);
            const auto at = [&](double share) { return times[static_cast<size_t>(share * double(times.size()))]; };
            std::printf("%8d %8d %8d %8d %8.2f %8.2f %8.2f\n", threads, each.tasks_each, int(each.task.count()),
                        int(pause.count()), at(0.2), at(0.5), at(0.8));
        }
    }
    return {};
}

Status report_up_to(int most) {
    if (most < 2) return invalid_argument("thread_pool_bench: threads: allowed: 2 and more");
    std::printf("%8s %8s %8s %8s %8s %8s %8s\n", "threads", "tasks", "task_us", "pause_us", "p20", "median", "p80");
    for (int threads = 2; threads < most; threads *= 2) NORMJIT_RETURN_IF_ERROR(report(threads));
    return report(most);
}

}  // namespace

int main(int argc, char** argv) {
    const int most = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
    const Status status = report_up_to(most);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    return status.ok() ? 0 : 1;
}
