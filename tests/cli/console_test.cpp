// SPDX-License-Identifier: Apache-2.0
#include "command_line/console.h"

#include <doctest/doctest.h>

using namespace normjit::cli;

TEST_CASE("console: numbers have three digits and a unit") {
    CHECK(format_seconds(0) == "0.00 ns");
    CHECK(format_seconds(1.5e-7) == "150 ns");
    CHECK(format_seconds(3.1415e-5) == "31.4 us");
    CHECK(format_seconds(0.0025) == "2.50 ms");
    CHECK(format_seconds(59) == "59.0 s");
    CHECK(format_seconds(90) == "1.50 min");
    CHECK(format_seconds(7200) == "2.00 h");
    CHECK(format_seconds(86400 * 20) == "20.0 days");
    CHECK(format_seconds(-1) == "-");
    CHECK(format_bytes(96) == "96 bytes");
    CHECK(format_bytes(1536) == "1.50 KiB");
    CHECK(format_bytes(16.0 * (1 << 30)) == "16.0 GiB");
    CHECK(format_percent(0.723) == "72 %");
    CHECK(format_percent(-1) == "-");
}

TEST_CASE("console: one thing is no plural") {
    CHECK(counted(0, "kernel") == "0 kernels");
    CHECK(counted(1, "kernel") == "1 kernel");
    CHECK(counted(2, "kernel") == "2 kernels");
}

TEST_CASE("console: tables align and end lines without spaces") {
    Table table({"name", ">time", "note"});
    table.add({"a", "1", ""});
    table.add({"long", "100", "x"});
    CHECK(table.text() ==
          "name  time  note\n"
          "a        1\n"
          "long   100  x\n");
    const std::string formula(101, 'f');
    table.add({formula, "20", "y"});
    CHECK(table.text() ==
          "name  time  note\n"
          "a        1\n"
          "long   100  x\n" +
              formula +
              "\n"
              "        20  y\n");
}
