// SPDX-License-Identifier: Apache-2.0
#include "system/own_thread.h"

#include <algorithm>
#include <cstddef>

#include <signal.h>

namespace normjit {

namespace {

constexpr size_t least_stack = size_t{1} << 20;

/// The signals of a fault in the thread's own work. If such a signal is blocked, a fault ends the process without a call
/// of the program's handler.
constexpr int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

/// Blocks all signals except faults in the calling thread; threads that it starts inherit that. A mask in the attributes
/// of the new thread would be lost if a tool wraps pthread_create(), as AddressSanitizer does.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all_others;
        sigfillset(&all_others);
        for (const int fault : faults) sigdelset(&all_others, fault);
        pthread_sigmask(SIG_SETMASK, &all_others, &before_);
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
    int error = pthread_create(&thread, &attributes, function, argument);
    if (error != 0 && usual > least_stack) {  // the system may lack only the memory of such a stack
        pthread_attr_setstacksize(&attributes, least_stack);
        error = pthread_create(&thread, &attributes, function, argument);
    }
    pthread_attr_destroy(&attributes);
    return error;
}

}  // namespace normjit
