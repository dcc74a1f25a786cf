# SPDX-License-Identifier: Apache-2.0
# A port for the source tree that contains it: vcpkg install normjit --overlay-ports=tools/packaging/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)
vcpkg_check_features(OUT_FEATURE_OPTIONS features FEATURES llvm NORMJIT_LLVM tools NORMJIT_TOOLS)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${features} -DNORMJIT_TESTS=OFF -DNORMJIT_PYTHON=OFF -DNORMJIT_WARNINGS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME normjit CONFIG_PATH lib/cmake/normjit)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES normjit AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE" "${SOURCE_PATH}/tools/packaging/THIRD_PARTY_LICENSES.txt")
