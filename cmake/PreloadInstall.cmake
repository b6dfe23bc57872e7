# What `cmake --install` puts where, and the two ways to find the client library afterwards: a CMake
# package (find_package(preload) → preload::client) and a pkg-config file (preload-client).

include(CMakePackageConfigHelpers)

target_include_directories(preload_client INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
set_target_properties(preload_client PROPERTIES EXPORT_NAME client
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/src/client/exports.map")
# Only the C ABI leaves the library: no template of the standard library meets an engine's own.
target_link_options(preload_client PRIVATE
  "-Wl,--version-script=${PROJECT_SOURCE_DIR}/src/client/exports.map")
add_library(preload::client ALIAS preload_client)

install(TARGETS preload RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
install(TARGETS preload-runtime RUNTIME DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/preload")
install(TARGETS preload_client EXPORT preload-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
# NCCL opens it by its path, or by its short name "preload" where the linker finds this folder.
install(TARGETS preload_nccl_tuner LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/preload DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

# The launchers' wrappers beside preload, and what they share in libexec. Each names it from where it lies.
file(RELATIVE_PATH supervise "${CMAKE_INSTALL_FULL_BINDIR}"
     "${CMAKE_INSTALL_FULL_LIBEXECDIR}/preload/supervise")
foreach(wrapper slurm/preload-srun mpirun/preload-mpirun)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/launch/${wrapper}")
  file(READ "${PROJECT_SOURCE_DIR}/launch/${wrapper}" script)
  string(REGEX REPLACE "\nreadonly supervise=[^\n]*" "\nreadonly supervise=${supervise}" script "${script}")
  get_filename_component(name "${wrapper}" NAME)
  file(WRITE "${PROJECT_BINARY_DIR}/launch/${name}" "${script}")
  install(PROGRAMS "${PROJECT_BINARY_DIR}/launch/${name}" DESTINATION "${CMAKE_INSTALL_BINDIR}")
endforeach()
install(PROGRAMS launch/supervise DESTINATION "${CMAKE_INSTALL_LIBEXECDIR}/preload")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/preload")
configure_package_config_file(cmake/preload-config.cmake.in
  "${PROJECT_BINARY_DIR}/preload-config.cmake" INSTALL_DESTINATION "${package_dir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/preload-config-version.cmake"
  COMPATIBILITY SameMajorVersion)
install(EXPORT preload-targets NAMESPACE preload:: DESTINATION "${package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/preload-config.cmake"
              "${PROJECT_BINARY_DIR}/preload-config-version.cmake"
  DESTINATION "${package_dir}")

# The prefix as seen from the file, so that an installed tree can be moved.
file(RELATIVE_PATH PRELOAD_PC_PREFIX "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig"
     "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" PRELOAD_PC_PREFIX "${PRELOAD_PC_PREFIX}")
configure_file(cmake/preload-client.pc.in "${PROJECT_BINARY_DIR}/preload-client.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/preload-client.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# The Python package finds the library two folders up: put <libdir>/preload/python on PYTHONPATH.
install(DIRECTORY python/preload DESTINATION "${CMAKE_INSTALL_LIBDIR}/preload/python"
  FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)

# Manual pages, and completions where each shell looks for them.
install(DIRECTORY "${PRELOAD_MANUAL_DIR}/man1" DESTINATION "${CMAKE_INSTALL_MANDIR}")
install(FILES "${PRELOAD_MANUAL_DIR}/bash/preload"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES "${PRELOAD_MANUAL_DIR}/zsh/_preload"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions")
install(FILES "${PRELOAD_MANUAL_DIR}/fish/preload.fish"
  DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")

install(DIRECTORY docs/ DESTINATION "${CMAKE_INSTALL_DOCDIR}" FILES_MATCHING PATTERN "*.md")
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}")
# What people start their own job scripts from.
install(DIRECTORY launch/slurm launch/mpirun DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  FILES_MATCHING PATTERN "*.sbatch" PATTERN "hostfile" PATTERN "rankfile")
install(FILES README.md CHANGELOG.md LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
