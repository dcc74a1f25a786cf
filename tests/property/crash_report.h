// SPDX-License-Identifier: Apache-2.0
// Prints the line that replays a case if that case crashes, because a guard page or a bad instruction ends the program
// before anything can be reported or reduced.
#pragma once

#include <string>

#include <signal.h>

namespace normjit::test {

/// For its lifetime, a crash prints the last text of show() to stderr. There may be only one at a time.
class CrashReport {
  public:
    CrashReport();
    ~CrashReport();
    void show(const std::string& text);

  private:
    struct sigaction segv_, bus_, ill_, fpe_;
};

}  // namespace normjit::test
