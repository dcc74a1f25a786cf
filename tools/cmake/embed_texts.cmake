# SPDX-License-Identifier: Apache-2.0
# Writes a C++ source that holds text files: cmake -DOUTPUT=x.cpp -DFILES="a.cuh;b.cuh" -P embed_texts.cmake
# Literals are cut into pieces of 8000 bytes, below what any compiler takes.
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
  string(APPEND body "    {\"${name}\",\n${literals}},\n")
endforeach()
file(WRITE ${OUTPUT} "// Generated from templates/cuda.
#include \"backend/cuda/templates.h\"

namespace normjit::backend::cuda {
namespace {
constexpr Template table[] = {
${body}};
}  // namespace

std::span<const Template> templates() { return table; }

}  // namespace normjit::backend::cuda
")
