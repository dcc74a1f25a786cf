# SPDX-License-Identifier: Apache-2.0
# The arrows between the layers, templates <- compiler <- runtime <- tools, read off the #include lines. Run by CTest:
# cmake -P tests/layers.cmake
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

# Reports each #include in the files of the patterns `globs` whose name matches the pattern `forbidden`, but in files
# whose name matches the pattern that may follow `reason`.
function(forbid_in_files globs forbidden reason)
  list(TRANSFORM globs PREPEND ${root}/)
  file(GLOB files ${globs})
  forbid_in("${files}" "${forbidden}" "${reason}" ${ARGN})
endfunction()

# Of all sources in a folder.
function(forbid folder forbidden reason)
  file(GLOB_RECURSE files
    ${root}/${folder}/*.h ${root}/${folder}/*.def ${root}/${folder}/*.cpp ${root}/${folder}/*.cu ${root}/${folder}/*.cuh)
  forbid_in("${files}" "${forbidden}" "${reason}" ${ARGN})
endfunction()

function(forbid_in files forbidden reason)
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
forbid(compiler "^(dlfcn|glob)\\.h$" "only NVRTC and LLVM are opened, by the sources of their libraries"
  "(cuda/nvrtc_library|llvm/library)\\.cpp")
set(inside_llvm_library "(builder|convert|disassemble|frame|machine|module|object|processor)\\.(h|cpp)")
forbid(compiler/backend/llvm "^llvm/" "only libnormjit_llvm has LLVM" "(${inside_llvm_library}|backend\\.cpp)")
forbid(runtime "^xbyak|^nvrtc|^llvm|^(tools|tests|templates)/" "the runtime knows no code generator")
forbid(templates "^normjit/|^cuda|^(cstd|std|type_traits|sys/)" "templates include no CUDA and no host header")
forbid(tools "^tests/|^doctest" "tools do not know the tests")

# Variables name libraries and code to run: a program with more rights than its caller takes none of them from it.
file(GLOB_RECURSE files ${root}/compiler/*.cpp ${root}/runtime/*.cpp ${root}/tools/normjit/*.cpp)
foreach(file IN LISTS files)
  file(STRINGS ${file} lines REGEX "(^|[^_a-z])getenv *\\(")
  if(lines)
    message(SEND_ERROR "${file}: ${lines}: read variables with secure_getenv")
  endif()
endforeach()

# The order of the folders inside a layer: each knows itself and those before it only. `top` names the sources of the
# layer's own folder that stand above all; its others stand below all.
function(order layer top)
  set(later ${ARGN})
  foreach(folder IN LISTS ARGN)
    list(POP_FRONT later)
    list(JOIN later "|" above)
    if(above)
      forbid(${layer}/${folder} "^(${above})/" "${layer}'s folders are, from the bottom: ${ARGN}")
    endif()
  endforeach()
  list(JOIN ARGN "|" all)
  list(GET ARGN 0 lowest)
  string(REGEX REPLACE "^${lowest}[|]" "" all_but_lowest "${all}")
  forbid_in_files("${layer}/*.h;${layer}/*.cpp" "^(${all_but_lowest})/" "what stands in ${layer} itself is below its folders" "${top}")
endfunction()

order(compiler "compile\\.cpp" support spec target artifact ir frontend passes plan backend schedule serialise)
order(runtime "(engine\\.cpp|engine_impl\\.h)" device cache tuning c_abi)
foreach(folder IN ITEMS cpu cuda llvm portable x64)
  set(others cpu cuda llvm portable x64)
  list(REMOVE_ITEM others ${folder} cpu)  # cpu/ is what code for CPUs shares
  list(JOIN others "|" others)
  forbid(compiler/backend/${folder} "^backend/(${others})/" "a back end does not know the others")
endforeach()

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
