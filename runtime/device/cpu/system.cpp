// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/system.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include <sched.h>
#include <unistd.h>

namespace normjit::cpu {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::vector<int> usable_processors() {
    std::vector<int> usable;
    for (int most = 1024; most <= 1 << 20; most *= 4) {  // the kernel refuses a set that is smaller than its own
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
        std::vector<cpu_set_t> set(bytes / sizeof(cpu_set_t) + 1);
        if (sched_getaffinity(0, bytes, set.data()) != 0) continue;
        for (int i = 0; i < most; ++i) {
            if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set.data())) usable.push_back(i);
        }
        if (!usable.empty()) return usable;
    }
    // A filter refuses the call, so the process is taken to be free to use all processors.
    usable.resize(static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))));
    std::iota(usable.begin(), usable.end(), 0);
    return usable;
}

}  // namespace normjit::cpu
