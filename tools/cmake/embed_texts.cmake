# SPDX-License-Identifier: Apache-2.0
# normjit_embed_texts(OUTPUT FILES FUNCTION) generates OUTPUT, a C++ source that contains text files and defines FUNCTION()
# of support/embedded.h.
function(normjit_embed_texts OUTPUT FILES FUNCTION)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
  add_custom_command(
    OUTPUT ${OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${OUTPUT} "-DFILES=${FILES}" -DFUNCTION=${FUNCTION} -P ${script}
    DEPENDS ${FILES} ${script}
    VERBATIM)
endfunction()
if(NOT CMAKE_SCRIPT_MODE_FILE)
  return()
endif()

# Literals are divided into pieces of 8000 bytes; g++ and clang accept any total length. The length is written explicitly,
# because clang fails to count 200 KB in a constant expression. A NUL follows each text.
set(body "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(LENGTH "${text}" length)
  set(literals "")
  foreach(start RANGE 0 ${length} 8000)
    string(SUBSTRING "${text}" ${start} 8000 piece)
    string(APPEND literals "R\"text(${piece})text\"\n")
  endforeach()
  string(LENGTH "${name}" name_length)
  string(APPEND body "    {{\"${name}\", ${name_length}}, {\n${literals}, ${length}}},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated.
#include \"support/embedded.h\"

#pragma GCC diagnostic ignored \"-Woverlength-strings\"

namespace normjit::embedded {

Texts ${FUNCTION}() {
  static constexpr Text table[] = {
${body}};
  return table;
}

}  // namespace normjit::embedded
")
