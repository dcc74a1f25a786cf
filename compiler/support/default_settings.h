// SPDX-License-Identifier: Apache-2.0
// Arithmetic that does not depend on how the calling thread rounds.
#pragma once

#include <cfenv>

namespace normjit {

/// The default floating-point settings, in which denormals are kept and rounding is to nearest even, until it ends.
class DefaultSettings {
  public:
    DefaultSettings() {
        std::fegetenv(&callers_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultSettings() { std::fesetenv(&callers_); }
    DefaultSettings(const DefaultSettings&) = delete;
    DefaultSettings& operator=(const DefaultSettings&) = delete;

  private:
    std::fenv_t callers_;
};

}  // namespace normjit
