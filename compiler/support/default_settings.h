// SPDX-License-Identifier: Apache-2.0
// Makes arithmetic independent of the floating-point mode of the calling thread.
#pragma once

#include <cfenv>
#include <cstdint>

namespace normjit {

/// The default value of MXCSR on x86-64.
inline constexpr uint32_t default_mxcsr = 0x1f80;

/// Sets the default floating-point mode for its lifetime: denormals are kept, and rounding is to nearest even.
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
