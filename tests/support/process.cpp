// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <fstream>

#include <unistd.h>

namespace normjit::test {

int64_t resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t all = 0, resident = 0;
    statm >> all >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

bool keeps_freed_memory() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    return true;
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

}  // namespace normjit::test
