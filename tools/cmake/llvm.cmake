# SPDX-License-Identifier: Apache-2.0
# LLVM is optional: Debian's llvm-19-dev, or another installation of it in CMAKE_PREFIX_PATH. Sets normjit_with_llvm, and
# in normjit_llvm_libraries what is linked.
set(NORMJIT_LLVM AUTO CACHE STRING
  "The LLVM back end: ON links libLLVM; STATIC takes in what is needed of it; OFF; AUTO: ON where LLVM 19 is found")
find_path(NORMJIT_LLVM_INCLUDE_DIR llvm/IR/IRBuilder.h PATHS /usr/lib/llvm-19/include)
find_library(NORMJIT_LLVM_LIBRARY NAMES LLVM-19 PATHS /usr/lib/llvm-19/lib)
set(normjit_with_llvm OFF)
set(normjit_llvm_libraries ${NORMJIT_LLVM_LIBRARY})
if(NORMJIT_LLVM AND NOT (NORMJIT_LLVM STREQUAL AUTO AND NORMJIT_PORTABLE))
  if(NORMJIT_LLVM_INCLUDE_DIR AND NORMJIT_LLVM_LIBRARY)
    set(normjit_with_llvm ON)
  elseif(NOT NORMJIT_LLVM STREQUAL AUTO)
    message(FATAL_ERROR "NORMJIT_LLVM=${NORMJIT_LLVM}: LLVM 19 was not found (Debian: llvm-19-dev)")
  endif()
endif()

# 40 MB instead of a libLLVM of 120, which loads in 4 ms instead of 14 to 29 (2-core EPYC, 2026-11-22).
if(NORMJIT_LLVM STREQUAL STATIC)
  find_program(NORMJIT_LLVM_CONFIG NAMES llvm-config-19 llvm-config PATHS /usr/lib/llvm-19/bin REQUIRED)
  execute_process(
    COMMAND ${NORMJIT_LLVM_CONFIG} --link-static --libfiles
      x86codegen x86disassembler x86desc x86info aarch64codegen aarch64disassembler aarch64desc aarch64info
    OUTPUT_VARIABLE archives OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(archives)
  # The compressors of debug sections, which we write none of.
  find_library(NORMJIT_ZSTD NAMES libzstd.a zstd libzstd.so.1 REQUIRED)
  find_library(NORMJIT_ZLIB NAMES libz.a z REQUIRED)
  set(normjit_llvm_libraries ${archives} ${NORMJIT_ZSTD} ${NORMJIT_ZLIB} -Wl,--gc-sections)
endif()
