// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace normjit {

/// A checksum of the sources that this compiler and its templates were built from (tools/cmake/fingerprint.cmake), so
/// that no build serves code that another one made and cached under the same generator_version.
extern const char* const generator_fingerprint;

}  // namespace normjit
