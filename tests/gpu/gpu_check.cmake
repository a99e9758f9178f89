# bin/gpu_check: the cuda device against the cpu device, without a test framework. Built by the bare build and with the tests, else where
# it is asked for; always without what the bare build leaves out, so that every build links what a machine with a GPU will.
file(GLOB gpu_check_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/*.c)
list(APPEND gpu_check_sources ${CMAKE_SOURCE_DIR}/cmake/bare/missing.c)
set(gpu_check_objects ${ZERO3D_ISA_OBJECTS} ${ZERO3D_PROGRAM_OBJECTS})
foreach(room base device parallel tensor_parallel model zero)
  list(APPEND gpu_check_objects "$<FILTER:$<TARGET_OBJECTS:zero3d_${room}>,EXCLUDE,${ZERO3D_NOT_BARE}>")
endforeach()
add_executable(gpu_check ${gpu_check_sources} ${gpu_check_objects})
target_link_libraries(gpu_check PRIVATE zero3d_flags ${ZERO3D_EXTERNAL})
if(NOT ZERO3D_TESTS AND NOT ZERO3D_BARE)
  set_target_properties(gpu_check PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
