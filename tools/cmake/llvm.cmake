# SPDX-License-Identifier: Apache-2.0
# LLVM is optional: Debian's llvm-19-dev, or another installation of it in CMAKE_PREFIX_PATH. Sets normjit_with_llvm, and
# in normjit_llvm_libraries what libnormjit_llvm links, whose name is normjit_llvm_name.
set(NORMJIT_LLVM AUTO CACHE STRING
  "The LLVM back end: ON; STATIC: with what it needs of LLVM inside, as ON does where archives are; OFF; AUTO: ON where LLVM 19 is found")
find_path(NORMJIT_LLVM_INCLUDE_DIR llvm/IR/IRBuilder.h PATHS /usr/lib/llvm-19/include)
find_library(NORMJIT_LLVM_LIBRARY NAMES LLVM-19 PATHS /usr/lib/llvm-19/lib)
# The compressors of debug sections, which we write none of.
find_library(NORMJIT_ZSTD NAMES libzstd.a zstd libzstd.so.1)
find_library(NORMJIT_ZLIB NAMES libz.a z libz.so.1)
find_program(NORMJIT_LLVM_CONFIG NAMES llvm-config-19 llvm-config PATHS /usr/lib/llvm-19/bin)

# 40 MB instead of a libLLVM of 120 and what that links.
set(normjit_llvm_libraries "")
if(NORMJIT_LLVM AND NORMJIT_LLVM_CONFIG AND NORMJIT_ZSTD AND NORMJIT_ZLIB)
  execute_process(
    COMMAND ${NORMJIT_LLVM_CONFIG} --link-static --libfiles
      x86codegen x86disassembler x86desc x86info aarch64codegen aarch64disassembler aarch64desc aarch64info
    OUTPUT_VARIABLE archives OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE error)
  if(NOT error)
    separate_arguments(archives)
    set(normjit_llvm_libraries ${archives} ${NORMJIT_ZSTD} ${NORMJIT_ZLIB})
  endif()
endif()
if(NOT normjit_llvm_libraries AND NORMJIT_LLVM_LIBRARY AND NOT NORMJIT_LLVM STREQUAL STATIC)
  set(normjit_llvm_libraries ${NORMJIT_LLVM_LIBRARY})
endif()

set(normjit_llvm_name libnormjit_llvm-${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}.so)
set(normjit_with_llvm OFF)
if(NORMJIT_LLVM AND NOT (NORMJIT_LLVM STREQUAL AUTO AND NORMJIT_PORTABLE))
  if(NORMJIT_LLVM_INCLUDE_DIR AND normjit_llvm_libraries)
    set(normjit_with_llvm ON)
  elseif(NOT NORMJIT_LLVM STREQUAL AUTO)
    message(FATAL_ERROR "NORMJIT_LLVM=${NORMJIT_LLVM}: LLVM 19 was not found (Debian: llvm-19-dev; for STATIC also libzstd-dev)")
  endif()
endif()
