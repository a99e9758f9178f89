# Fuzzers (clang): tests/fuzz/NAME.c becomes bin/fuzz_NAME. The rooms are compiled with ZERO3D_SANITIZE=address,undefined,fuzzer-no-link.
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(fuzz_${name} ${source})
  target_link_libraries(fuzz_${name} PRIVATE zero3d_flags zero3d)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
endforeach()
