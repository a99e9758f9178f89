# Fuzzers (clang): tests/fuzz/NAME.c becomes bin/fuzz_NAME. The code that they test is compiled once,
# with ZERO3D_SANITIZE=address,undefined,fuzzer-no-link, into one archive; each links what it calls.
set(fuzzed_sources "")
foreach(folder src/base src/model src/plan src/train checkpoint parallel/interface parallel/schedule zero/program)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.c)
  list(APPEND fuzzed_sources ${sources})
endforeach()
add_library(fuzzed STATIC EXCLUDE_FROM_ALL ${fuzzed_sources})
target_link_libraries(fuzzed PUBLIC zero3d_flags ${ZERO3D_EXTERNAL})
target_compile_definitions(fuzzed PRIVATE ZERO3D_VERSION="${PROJECT_VERSION}")

file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(fuzz_${name} EXCLUDE_FROM_ALL ${source} ${ZERO3D_PROGRAM_OBJECTS})
  target_link_libraries(fuzz_${name} PRIVATE fuzzed)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
