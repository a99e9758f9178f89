# Benchmarks: built by `make bench`, never by the default build.
add_custom_target(benchmarks)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*.c)
if(NOT ZERO3D_HAS_MPI)
  list(FILTER bench_sources EXCLUDE REGEX "/collectives") # which MPI's own are measured beside
endif()
if(NOT LIBURING_FOUND)
  list(FILTER bench_sources EXCLUDE REGEX "/disk") # which raw io_uring is measured beside
endif()
file(GLOB bench_parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/parts/*.c)
add_library(bench_parts STATIC EXCLUDE_FROM_ALL ${bench_parts})
target_link_libraries(bench_parts PUBLIC zero3d_flags zero3d)
foreach(source ${bench_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE bench_parts)
  add_dependencies(benchmarks ${name})
endforeach()
