# zero3d_test(NAME ROOM room [RANKS n...] [LONG]): tests/<room>/<NAME>.cc, linked with the room and the floors below it, run by mpirun on n
# ranks (default: started alone). LONG: with ZERO3D_LONG in its environment it does more, in `make test-long`, which runs what has the
# label `long`. SCRIPT file: a long test only, which the script tests/<room>/<file> runs: file LAUNCH PROGRAM. Threads do not spin for
# their next piece of work: other tests run beside them.
find_package(GTest REQUIRED)
# Optimising the tests' own code is not worth the time it takes.
string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O1")
set(ZERO3D_FLOOR_base base)
set(ZERO3D_FLOOR_device base device)
set(ZERO3D_FLOOR_parallel base device parallel)
set(ZERO3D_FLOOR_tensor_parallel ${ZERO3D_FLOOR_parallel} tensor_parallel)
set(ZERO3D_FLOOR_model ${ZERO3D_FLOOR_tensor_parallel} model)
set(ZERO3D_FLOOR_zero ${ZERO3D_FLOOR_model} zero)
set(ZERO3D_FLOOR_checkpoint ${ZERO3D_FLOOR_zero} checkpoint)
set(ZERO3D_FLOOR_plan ${ZERO3D_FLOOR_checkpoint} plan)
set(ZERO3D_FLOOR_train ${ZERO3D_FLOOR_plan} train)

function(zero3d_test name)
  cmake_parse_arguments(ARG "LONG" "ROOM;TIMEOUT;SCRIPT" "RANKS" ${ARGN})
  set(source ${CMAKE_SOURCE_DIR}/tests/${ARG_ROOM}/${name}.cc)
  set(objects "")
  foreach(room ${ZERO3D_FLOOR_${ARG_ROOM}})
    if(TARGET zero3d_${room})
      list(APPEND objects $<TARGET_OBJECTS:zero3d_${room}>)
    endif()
    if(room STREQUAL device)
      list(APPEND objects ${ZERO3D_ISA_OBJECTS})
    endif()
  endforeach()
  add_executable(${name} ${source} ${objects} ${ZERO3D_PROGRAM_OBJECTS})
  target_link_libraries(${name} PRIVATE zero3d_flags ${ZERO3D_EXTERNAL} GTest::gtest)
  # GoogleTest's header is most of a test's compile time: the first test compiles it for all.
  get_property(first GLOBAL PROPERTY ZERO3D_FIRST_TEST)
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE <gtest/gtest.h>)
    set_property(GLOBAL PROPERTY ZERO3D_FIRST_TEST ${name})
  endif()
  target_compile_definitions(${name} PRIVATE ZERO3D_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
    ZERO3D_BINARY="${CMAKE_BINARY_DIR}/bin/zero3d")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(properties ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(ARG_LONG)
    set(ARG_TIMEOUT 3600)
    list(APPEND properties LABELS long)
  endif()
  if(ARG_SCRIPT)
    add_test(NAME ${name} CONFIGURATIONS long COMMAND ${CMAKE_SOURCE_DIR}/tests/${ARG_ROOM}/${ARG_SCRIPT} ${CMAKE_SOURCE_DIR}/scripts/launch
      $<TARGET_FILE:${name}>)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS 8 ${properties})
  elseif(NOT ARG_RANKS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
  endif()
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}.${ranks} COMMAND ${CMAKE_SOURCE_DIR}/scripts/launch -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${ranks} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} ${properties})
  endforeach()
endfunction()

# The CUDA kernels for the host (tests/device/cuda_shim): no toolkit needed, and no undefined behaviour looked for in what is a GPU's.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels/*.cu)
set(shim_sources ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/fibres.cc)
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(shim_source ${CMAKE_BINARY_DIR}/generated/cuda_shim/${name}.cc)
  file(CONFIGURE OUTPUT ${shim_source} CONTENT "#include \"${source}\"\n")
  list(APPEND shim_sources ${shim_source})
endforeach()
add_library(zero3d_cuda_shim OBJECT ${shim_sources})
target_include_directories(zero3d_cuda_shim BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim)
target_link_libraries(zero3d_cuda_shim PRIVATE zero3d_flags)
target_compile_options(zero3d_cuda_shim PRIVATE -O1 -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
  $<$<CXX_COMPILER_ID:GNU>:--param=asan-use-after-return=0>) # fibres come and go too often for fake stacks

# Each room lists its tests in tests/<room>/tests.cmake.
foreach(room ${ZERO3D_ROOMS})
  include(${CMAKE_SOURCE_DIR}/tests/${room}/tests.cmake OPTIONAL)
endforeach()
# The program as a whole.
include(${CMAKE_SOURCE_DIR}/tests/cli/tests.cmake OPTIONAL)
