// SPDX-License-Identifier: Apache-2.0
// For what the property tests share, which names doctest, without its main().
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
