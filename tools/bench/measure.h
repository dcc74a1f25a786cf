// SPDX-License-Identifier: Apache-2.0
// Times a launch against the memory ceiling: ceiling, launch, ceiling, launch, ... so that both run under the same
// conditions.
#pragma once

#include "stream.h"

#include "normjit/status.h"

#include <functional>
#include <string_view>
#include <vector>

namespace normjit::bench {

struct Sample {
    double median = -1, p20 = -1, p80 = -1;  ///< seconds; negative: not measured
};

/// Computes the sample; sorts `seconds`.
Sample sample_of(std::vector<double>& seconds);

struct Measurement {
    Sample launch;
    Sample ceiling;           ///< times of the fastest method; not measured if the traffic is less than
                              ///< min_ceiling_bytes
    std::string_view method;  ///< the name of that method
    int samples = 0;
    int launches_per_sample = 1;
    int64_t traffic_bytes = 0;
    int64_t copies = 1;    ///< copies of the data that the launches used in turn
    bool is_cold = false;  ///< no cache held the data of a launch when it began

    /// The share of the ceiling: at 1, a launch is as fast as moving the bytes alone. It is the median over pairs of a
    /// ceiling and the launch right after it, so that a temporary slow-down affects both. Negative if not measured.
    double share = -1;

    Sample host_launch;       ///< GPU: how long a launch takes its caller; not measured for long launches
    Sample host_bare_launch;  ///< the same for the launch of one kernel with as many bytes of arguments

    double bytes_per_second() const { return rate(launch); }
    double ceiling_bytes_per_second() const { return rate(ceiling); }

  private:
    double rate(const Sample& sample) const {
        return sample.median <= 0 ? -1 : static_cast<double>(traffic_bytes) / sample.median;
    }
};

/// A pass over fewer bytes takes about as long as starting it, so it says nothing about memory.
inline constexpr int64_t min_ceiling_bytes = 16 << 10;

struct MeasureOptions {
    double seconds = 0.3;  ///< the time for launches, without the time for the ceiling
    int min_samples = 7;
    int max_samples = 1000;
    bool host = true;  ///< GPU: measure the caller's time as well
};

/// Returns the traffic for each pass over memory: always the same, or the next of several that are alike.
using NextTraffic = std::function<const Traffic&()>;

/// Measures a launch. Stops at the first launch that fails. Overwrites the matrix that the traffic writes; a launch
/// comes last, so that its results remain.
Expected<Measurement> measure(Team& team, const NextTraffic& traffic, const std::function<Status()>& launch,
                              const MeasureOptions& options = {});

}  // namespace normjit::bench
