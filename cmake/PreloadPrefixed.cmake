# Files that name the prefix, which only `cmake --install` knows: modulefiles and systemd's units. They
# are written then, straight to where they go, so that installs into several prefixes at once do not meet.

set(prefixed_variables "")
foreach(name PROJECT_VERSION CMAKE_INSTALL_BINDIR CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_DATADIR
        CMAKE_INSTALL_MANDIR CMAKE_INSTALL_DOCDIR)
  string(APPEND prefixed_variables "set(${name} \"${${name}}\")\n")
endforeach()

# install_prefixed(TEMPLATE DESTINATION): DESTINATION is a file under the prefix.
function(install_prefixed template destination)
  install(CODE "${prefixed_variables}
get_filename_component(prefix \"\${CMAKE_INSTALL_PREFIX}\" ABSOLUTE)
set(file \"\${prefix}/${destination}\")
message(STATUS \"Installing: \$ENV{DESTDIR}\${file}\")
configure_file(\"${PROJECT_SOURCE_DIR}/${template}\" \"\$ENV{DESTDIR}\${file}\" @ONLY)
list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${file}\")")
endfunction()

# Lmod finds its modulefile by the suffix, environment-modules by the first line: one folder holds both.
set(module_file "${CMAKE_INSTALL_DATADIR}/modulefiles/preload/${PROJECT_VERSION}")
install_prefixed(launch/modulefiles/preload.lua.in "${module_file}.lua")
install_prefixed(launch/modulefiles/preload.tcl.in "${module_file}")

foreach(unit preload-keeper.service preload@.service)
  install_prefixed(launch/systemd/${unit}.in "lib/systemd/system/${unit}")
endforeach()
