// SPDX-License-Identifier: Apache-2.0
#include "system/own_thread.h"

#include <algorithm>
#include <cstddef>

#include <signal.h>

namespace normjit {

namespace {

constexpr size_t least_stack = size_t{1} << 20;

}  // namespace

int start_own_thread(pthread_t& thread, void* (*function)(void*), void* argument) {
    sigset_t all_signals;
    sigfillset(&all_signals);
    pthread_attr_t attributes;
    if (const int error = pthread_attr_init(&attributes); error != 0) return error;
    size_t usual = 0;
    pthread_attr_getstacksize(&attributes, &usual);
    pthread_attr_setstacksize(&attributes, std::max(usual, least_stack));
    pthread_attr_setsigmask_np(&attributes, &all_signals);
    const int error = pthread_create(&thread, &attributes, function, argument);
    pthread_attr_destroy(&attributes);
    return error;
}

}  // namespace normjit
