// SPDX-License-Identifier: Apache-2.0
// Provides doctest without its main(), because the code of the property tests uses it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
