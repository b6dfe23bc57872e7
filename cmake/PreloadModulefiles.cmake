# The modulefiles name the prefix, which only `cmake --install` knows: they are written then, straight
# to where they go, so that installs into several prefixes at once do not meet.

set(module_variables "")
foreach(name PROJECT_VERSION CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_DATADIR
        CMAKE_INSTALL_MANDIR CMAKE_INSTALL_DOCDIR)
  string(APPEND module_variables "set(${name} \"${${name}}\")\n")
endforeach()
install(CODE "${module_variables}
get_filename_component(module_prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
foreach(kind lua tcl)
  set(module_file \"\${module_prefix}/\${CMAKE_INSTALL_DATADIR}/modulefiles/preload/\${PROJECT_VERSION}\")
  if(kind STREQUAL lua)  # both find their own: Lmod by the suffix, environment-modules by the first line
    string(APPEND module_file .lua)
  endif()
  message(STATUS \"Installing: \$ENV{DESTDIR}\${module_file}\")
  configure_file(\"${PROJECT_SOURCE_DIR}/launch/modulefiles/preload.\${kind}.in\"
    \"\$ENV{DESTDIR}\${module_file}\" @ONLY)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${module_file}\")
endforeach()")
