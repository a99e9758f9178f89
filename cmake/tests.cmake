# zero3d_test(NAME ROOM room [RANKS n...] [LONG] [LONG_RANKS n...]): tests/<room>/<NAME>.cc, linked with the room and the floors below it,
# run by mpirun on n ranks (default: started alone). LONG: with ZERO3D_LONG in its environment it does more, in `make test-long`, which runs
# what has the label `long`. LONG_RANKS: numbers of ranks on which it runs there only. SCRIPT file: a long test only, which the script
# tests/<room>/<file> runs: file LAUNCH PROGRAM. SHARDS n: n tests that each run a part, side by side: for programs that mostly wait.
# Threads do not spin for their next piece of work: other tests run beside them.
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
  cmake_parse_arguments(ARG "LONG" "ROOM;TIMEOUT;SCRIPT;SHARDS" "RANKS;LONG_RANKS" ${ARGN})
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
  elseif(ARG_SHARDS)
    math(EXPR last "${ARG_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.part${shard} COMMAND ${name})
      set_tests_properties(${name}.part${shard} PROPERTIES TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT "OMP_WAIT_POLICY=passive;GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  elseif(NOT ARG_RANKS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
  endif()
  foreach(ranks ${ARG_RANKS} ${ARG_LONG_RANKS})
    set(only_long "")
    if(ranks IN_LIST ARG_LONG_RANKS)
      set(only_long CONFIGURATIONS long)
    endif()
    add_test(NAME ${name}.${ranks} ${only_long} COMMAND ${CMAKE_SOURCE_DIR}/scripts/launch -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${ranks} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks} ${properties})
  endforeach()
endfunction()

# For tests/base/allocations.h: the linker hands it every allocation of our own objects.
function(zero3d_count_allocations name)
  foreach(function malloc calloc realloc posix_memalign aligned_alloc mmap)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
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

# The cuda device: the real plugin's code over the host's kernels and library calls (tests/device/cuda_shim), so that it runs here.
# Not under sanitizers: the kernels' own tests run there.
if(TARGET zero3d_cuda_shim AND NOT ZERO3D_SANITIZE)
  file(GLOB plugin_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.c ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/plugin/*.c)
  add_library(zero3d_cuda_host MODULE ${plugin_sources} ${ZERO3D_PLUGIN_BASE} $<TARGET_OBJECTS:zero3d_cuda_shim>)
  set_target_properties(zero3d_cuda_host PROPERTIES OUTPUT_NAME zero3d_cuda C_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/host_plugin)
  target_compile_definitions(zero3d_cuda_host PRIVATE Z3D_CUDA_SHIM Z3D_CUDA_OLDEST=80)
  target_include_directories(zero3d_cuda_host BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/plugin)
  target_link_libraries(zero3d_cuda_host PRIVATE zero3d_flags Threads::Threads ${CMAKE_DL_LIBS} m)
  add_dependencies(gpu_check zero3d_cuda_host)
  add_test(NAME gpu_check COMMAND ${CMAKE_SOURCE_DIR}/tests/gpu/gpu_check.sh)
  set_tests_properties(gpu_check PROPERTIES TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "ZERO3D=$<TARGET_FILE:gpu_check>;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR};ZERO3D_PLUGIN_PATH=${CMAKE_BINARY_DIR}/host_plugin;OMP_WAIT_POLICY=passive")
endif()

# Registers of the kernels as they were compiled; cuDNN's answer to attention's graphs, where the toolkit has cuDNN and its stub of the driver.
if(TARGET zero3d_cuda)
  add_test(NAME cuda_resources COMMAND ${CMAKE_SOURCE_DIR}/scripts/cuda-resources ${CMAKE_BINARY_DIR})
  find_path(ZERO3D_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(ZERO3D_STUB_DRIVER cuda HINTS ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib/stubs lib64/stubs stubs)
  if(ZERO3D_CUDNN_INCLUDE AND ZERO3D_STUB_DRIVER)
    add_library(zero3d_cudnn OBJECT src/device/cuda/attention.c src/device/cuda/cudnn_graph.c)
    target_link_libraries(zero3d_cudnn PRIVATE zero3d_flags)
    target_include_directories(zero3d_cudnn SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${ZERO3D_CUDNN_INCLUDE})
    zero3d_test(cuda_cudnn ROOM device)
    target_sources(cuda_cudnn PRIVATE $<TARGET_OBJECTS:zero3d_cudnn>)
    target_include_directories(cuda_cudnn SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${ZERO3D_CUDNN_INCLUDE})
    target_compile_definitions(cuda_cudnn PRIVATE CUDA_STUB_DRIVER="${ZERO3D_STUB_DRIVER}")
    target_link_libraries(cuda_cudnn PRIVATE CUDA::cudart_static)
  endif()
endif()
