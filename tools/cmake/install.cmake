# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where, so that find_package and pkg-config find it.
include(CMakePackageConfigHelpers)

if(normjit_with_llvm)  # here, since the runtime does not know it
  target_sources(normjit_static PRIVATE $<TARGET_OBJECTS:normjit_llvm>)
  target_link_libraries(normjit_static PRIVATE ${normjit_llvm_libraries})
endif()
install(TARGETS normjit_shared normjit_static normjit_torch_shared EXPORT normjitTargets)
install(DIRECTORY compiler/include/normjit runtime/include/normjit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN *.h PATTERN *.def)
if(TARGET normjit)
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

file(RELATIVE_PATH NORMJIT_PC_ROOT ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(NORMJIT_PRIVATE_LIBS "-lstdc++ -lpthread ${CMAKE_DL_LIBS}")
if(NOT NORMJIT_PORTABLE)
  string(PREPEND NORMJIT_PRIVATE_LIBS "-lfmt ")
endif()
if(normjit_with_llvm)
  list(JOIN normjit_llvm_libraries " " llvm_libraries)
  string(PREPEND NORMJIT_PRIVATE_LIBS "${llvm_libraries} ")
endif()
configure_file(tools/cmake/normjit.pc.in ${PROJECT_BINARY_DIR}/normjit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/normjit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
