// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace normjit {

/// A checksum of the sources of this compiler and its templates (tools/cmake/fingerprint.cmake), so that no build uses
/// code that another one cached under the same generator_version.
extern const char* const generator_fingerprint;

}  // namespace normjit
