// SPDX-License-Identifier: Apache-2.0
// Protects threads that are cancelled (pthread_cancel) inside the library.
#pragma once

#include <pthread.h>

namespace normjit {

/// Prevents cancellation of the thread for its lifetime. A cancellation would unwind the stack from any system call,
/// and a destructor on the way would end the process. The cancellation takes effect at the first system call of the
/// thread after that.
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
