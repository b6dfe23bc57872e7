# preload_options carries the warnings and sanitizers every target of ours is built with.

add_library(preload_options INTERFACE)
target_include_directories(preload_options INTERFACE "${PROJECT_SOURCE_DIR}/src"
                                                      "${PROJECT_SOURCE_DIR}/include")
target_compile_definitions(preload_options INTERFACE PRELOAD_VERSION="${PROJECT_VERSION}")
target_compile_options(preload_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wconversion -fvisibility=hidden>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<AND:$<BOOL:${PRELOAD_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>>:-Werror>
  # Which values GCC believes uninitialised depends on how much it inlined: wrong at -O3.
  $<$<AND:$<BOOL:${PRELOAD_WERROR}>,$<COMPILE_LANGUAGE:C,CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-error=maybe-uninitialized>
  $<$<AND:$<BOOL:${PRELOAD_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:-Werror=all-warnings -Xcompiler=-Werror>)
if(PRELOAD_SANITIZE)
  # GCC loses track of what is initialised, and how long, in code that a sanitizer has instrumented.
  target_compile_options(preload_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${PRELOAD_SANITIZE} -fno-sanitize-recover=all
      -fno-omit-frame-pointer
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow>>)
  target_link_options(preload_options INTERFACE -fsanitize=${PRELOAD_SANITIZE})
endif()
