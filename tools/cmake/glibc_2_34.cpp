// SPDX-License-Identifier: Apache-2.0
// Provides what libstdc++'s archive needs from a glibc newer than 2.34 (RHEL 9, Ubuntu 22.04): std::random_device,
// which normjit does not use, calls arc4random, which came with glibc 2.36.
#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include <sys/random.h>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept;

uint32_t arc4random() noexcept {
    uint32_t bits = 0;
    ssize_t got = 0;
    do {
        got = getrandom(&bits, sizeof bits, 0);
    } while (got < 0 && errno == EINTR);
    if (got != sizeof bits) std::abort();  // a Linux without getrandom() is from before 2014
    return bits;
}
