# SPDX-License-Identifier: Apache-2.0
# Installs files in the places where find_package and pkg-config find them.
include(CMakePackageConfigHelpers)

install(TARGETS normjit_shared normjit_static normjit_torch_shared EXPORT normjitTargets)
if(TARGET normjit_llvm)
  install(TARGETS normjit_llvm DESTINATION ${CMAKE_INSTALL_LIBDIR})
  target_link_options(normjit_static INTERFACE
    $<BUILD_INTERFACE:LINKER:-rpath,${CMAKE_BUILD_RPATH}>
    $<INSTALL_INTERFACE:LINKER:-rpath,$<TARGET_FILE_DIR:normjit::static>>)
endif()
install(DIRECTORY compiler/include/normjit runtime/include/normjit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN *.h PATTERN *.def)
# Installs the pages that the headers name.
install(FILES README.md LICENSE tools/packaging/THIRD_PARTY_LICENSES.txt DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES compiler/FORMULAS.md compiler/SPEC.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/compiler)
install(FILES runtime/PROMISES.md runtime/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/runtime)
if(TARGET normjit)
  file(RELATIVE_PATH libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(normjit PROPERTIES INSTALL_RPATH $ORIGIN/${libraries})
  install(TARGETS normjit)
endif()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/normjit)
install(EXPORT normjitTargets NAMESPACE normjit:: DESTINATION ${package})
if(NOT NORMJIT_PORTABLE)
  set(NORMJIT_FIND_FMT "find_dependency(fmt)")
endif()
configure_package_config_file(tools/cmake/normjitConfig.cmake.in ${PROJECT_BINARY_DIR}/normjitConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/normjitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/normjitConfig.cmake ${PROJECT_BINARY_DIR}/normjitConfigVersion.cmake
  DESTINATION ${package})

# The shared library has only the C interface. Both libraries have the same name, so the linker is told which file is
# the static one. `private` is for programs that are linked with -static or -static-pie (pkg-config --static normjit).
# They cannot open LLVM's library, and glibc ends a -static-pie program with a RUNPATH before main().
function(normjit_install_pc name libs private)
  file(RELATIVE_PATH root ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
  string(REGEX REPLACE "/$" "" root "${root}")
  file(RELATIVE_PATH libraries ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
  file(RELATIVE_PATH headers ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  configure_file(tools/cmake/normjit.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
set(needed -lstdc++ -lm -lpthread)
foreach(library ${CMAKE_DL_LIBS})
  list(APPEND needed -l${library})
endforeach()
if(NOT NORMJIT_PORTABLE)
  list(PREPEND needed -lfmt)
endif()
list(JOIN needed " " needed)
normjit_install_pc(normjit -lnormjit "${needed}")
if(TARGET normjit_llvm)
  string(APPEND needed " -Wl,-rpath,\${libdir}")
endif()
normjit_install_pc(normjit-static "-l:libnormjit.a ${needed}" "")
