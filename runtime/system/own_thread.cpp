// SPDX-License-Identifier: Apache-2.0
#include "system/own_thread.h"

#include <algorithm>
#include <cstddef>

#include <signal.h>

namespace normjit {

namespace {

constexpr size_t least_stack = size_t{1} << 20;

/// Blocks all signals in the calling thread; threads that it starts inherit that. A mask in the attributes of the new
/// thread would be lost if a tool wraps pthread_create(), as AddressSanitizer does.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_;
};

}  // namespace

int start_own_thread(pthread_t& thread, void* (*function)(void*), void* argument) {
    const SignalsBlocked blocked;
    pthread_attr_t attributes;
    if (const int error = pthread_attr_init(&attributes); error != 0) return error;
    size_t usual = 0;
    pthread_attr_getstacksize(&attributes, &usual);
    pthread_attr_setstacksize(&attributes, std::max(usual, least_stack));
    const int error = pthread_create(&thread, &attributes, function, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

}  // namespace normjit
