# SPDX-License-Identifier: Apache-2.0
# Checks that README.md shows, letter for letter, the example that is compiled and run here. Run by CTest: cmake -P
# tests/embed/readme.cmake
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../.. ABSOLUTE)
file(READ ${root}/tests/embed/example.cpp source)
file(READ ${root}/README.md readme)
string(FIND "${source}" "// [example]\n" begin)
string(FIND "${source}" "// [example]" end REVERSE)
math(EXPR begin "${begin} + 13")
math(EXPR length "${end} - ${begin}")
string(SUBSTRING "${source}" ${begin} ${length} example)
string(FIND "${readme}" "```cpp\n${example}```" found)
if(found EQUAL -1)
  message(FATAL_ERROR "README.md does not show the example of tests/embed/example.cpp")
endif()
message("README.md shows the example")
