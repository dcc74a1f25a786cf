// SPDX-License-Identifier: Apache-2.0
// Provides doctest without its main() for the property tests' code, which uses it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
