# What the Python wheel holds beside the package: the client library, found there by its SONAME, that
# needs nothing of the machine but its C library.

target_link_options(preload_client PRIVATE -static-libstdc++ -static-libgcc
  "-Wl,--version-script=${PROJECT_SOURCE_DIR}/src/client/exports.map")
install(FILES "$<TARGET_FILE:preload_client>" DESTINATION . COMPONENT python
  RENAME libpreload_client.so.1)
