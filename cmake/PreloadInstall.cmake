# see src/CMakeLists.txt
