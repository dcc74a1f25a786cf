# SPDX-License-Identifier: Apache-2.0
# The arrows between the layers, templates <- compiler <- runtime <- tools, read off the #include lines. Run by CTest:
# cmake -P tests/layers.cmake
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

# Reports each #include in the sources of `folder` whose name matches the pattern `forbidden`, but for a file of the name
# that may follow `reason`.
function(forbid folder forbidden reason)
  file(GLOB_RECURSE files
    ${root}/${folder}/*.h ${root}/${folder}/*.def ${root}/${folder}/*.cpp ${root}/${folder}/*.cu ${root}/${folder}/*.cuh)
  foreach(file IN LISTS files)
    if(ARGN AND file MATCHES "/${ARGN}$")
      continue()
    endif()
    file(STRINGS ${file} includes REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
    foreach(line IN LISTS includes)
      string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*)[>\"].*$" "\\1" header "${line}")
      if(header MATCHES "${forbidden}")
        file(RELATIVE_PATH path ${root} ${file})
        message(SEND_ERROR "${path} includes ${header}: ${reason}")
      endif()
    endforeach()
  endforeach()
endfunction()

# The names of all headers under `folder`, as a pattern of how others may include them.
function(headers_of folder out)
  file(GLOB_RECURSE files RELATIVE ${root}/${folder} ${root}/${folder}/*.h)
  set(names "^$")
  foreach(file IN LISTS files)
    string(REGEX REPLACE "^include/" "" name ${file})
    string(REGEX REPLACE "([.+])" "\\\\\\1" name ${name})
    list(APPEND names "^${name}$" "^${folder}/${name}$")  # no groups: CMake allows ten
  endforeach()
  list(JOIN names "|" pattern)
  set(${out} "${pattern}" PARENT_SCOPE)
endfunction()

headers_of(runtime runtime_headers)
forbid(compiler "${runtime_headers}|^(runtime|tools|tests)/" "the compiler does not know the layers above it")
forbid(compiler "^(thread|mutex|shared_mutex|condition_variable|future|atomic|fstream|filesystem|iostream)$"
  "the compiler knows no threads and no files")
forbid(compiler "^(unistd|pthread|stdio)\\.h$|^sys/|^(cuda|nvrtc)\\.h$" "the compiler knows no system and no driver")
forbid(compiler "^(dlfcn|glob)\\.h$" "only the search for NVRTC opens a library" nvrtc_library.cpp)
forbid(runtime "^xbyak|^nvrtc|^llvm|^(tools|tests|templates)/" "the runtime knows no code generator")
forbid(templates "^normjit/|^cuda|^(cstd|std|type_traits|sys/)" "templates include no CUDA and no host header")
forbid(tools "^tests/|^doctest" "tools do not know the tests")

# The same arrows as links: a target's own CMake file names only targets of lower layers.
function(forbid_links folder forbidden)
  file(STRINGS ${root}/${folder}/CMakeLists.txt lines REGEX "${forbidden}")
  if(lines)
    message(SEND_ERROR "${folder}/CMakeLists.txt links a layer above it: ${lines}")
  endif()
endfunction()

forbid_links(compiler "normjit_(runtime|cli|bench|test)")
if(EXISTS ${root}/runtime/CMakeLists.txt)
  forbid_links(runtime "normjit_(cli|bench|test)|XBYAK|xbyak|LLVM|nvrtc")
endif()
