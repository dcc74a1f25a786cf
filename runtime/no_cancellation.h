// SPDX-License-Identifier: Apache-2.0
// Threads that are cancelled (pthread_cancel) while they are inside of normjit.
#pragma once

#include <pthread.h>

namespace normjit {

/// While it lives, the thread goes on. A cancellation would unwind from any call of the system, through destructors
/// too, where it ends the process; it waits for the thread's next such call after this.
class NoCancellation {
  public:
    NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
    ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
    NoCancellation(const NoCancellation&) = delete;
    NoCancellation& operator=(const NoCancellation&) = delete;

  private:
    int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace normjit
