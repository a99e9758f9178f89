# All tests are under the target `tests`: `make build` makes none, `make test` does.
#
# zero3d_test(NAME ROOM room [RANKS n...] [LONG] [LONG_RANKS n...]): tests/<room>/<NAME>.cc, linked with the library, run by mpirun on n
# ranks (default: started alone). LONG: with ZERO3D_LONG in its environment it does more, in `make test-long`, which runs what has the
# label `long`. LONG_RANKS: numbers of ranks on which it runs there only. SCRIPT file: a long test only, which the script
# tests/<room>/<file> runs: file LAUNCH PROGRAM. SHARDS n: n tests that each run a part, side by side. WAITS: it mostly waits.
# CHAIN: each number of ranks reads what fewer have left.
# STATIC: linked with the archive, for a test that replaces functions of the library by its own or has the linker wrap them.
# Threads do not spin for their next piece of work: other tests run beside them.
find_package(GTest)
if(NOT GTest_FOUND)
  message(STATUS "Tests: off (no GoogleTest; `make test` installs it)")
  return()
endif()
enable_testing()
add_custom_target(tests)
if(TARGET zero3d_program)
  add_dependencies(tests zero3d_program)
endif()
# Optimising the tests' own code is not worth the time it takes, but where they compute what they expect.
string(APPEND CMAKE_CXX_FLAGS_RELEASE " -O0")
set(ZERO3D_COMPUTING_TESTS device parallel)

# gold, where it is, links in half the time (but warns of what clang's sanitizers export).
include(CheckLinkerFlag)
if(NOT ZERO3D_SANITIZE)
  check_linker_flag(CXX -fuse-ld=gold ZERO3D_GOLD)
endif()

# The library once for all tests. Calls within it stay within it, as in the archive.
add_library(zero3d_shared SHARED EXCLUDE_FROM_ALL ${ZERO3D_OBJECTS})
set_target_properties(zero3d_shared PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(zero3d_shared PRIVATE zero3d_flags ${ZERO3D_EXTERNAL})
target_link_options(zero3d_shared PRIVATE -Wl,-Bsymbolic-functions $<$<BOOL:${ZERO3D_GOLD}>:-fuse-ld=gold>)

# What tests share: headers declare it, and the .cc files next to them are compiled once, here. A test links the objects that it calls.
file(GLOB harness_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*.h ${CMAKE_SOURCE_DIR}/tests/*/*.h)
list(TRANSFORM harness_sources REPLACE "h$" "cc")
foreach(source ${harness_sources})
  if(NOT EXISTS ${source})
    list(REMOVE_ITEM harness_sources ${source})
  endif()
endforeach()
add_library(zero3d_harness STATIC EXCLUDE_FROM_ALL ${harness_sources})
target_link_libraries(zero3d_harness PRIVATE zero3d_flags GTest::gtest)
target_include_directories(zero3d_harness SYSTEM PRIVATE ${HDF5_INCLUDE_DIRS})
target_compile_definitions(zero3d_harness PRIVATE ZERO3D_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
set(computing ${CMAKE_SOURCE_DIR}/tests/device/kernels_harness.cc ${CMAKE_SOURCE_DIR}/tests/parallel/reference.cc)
set_source_files_properties(${computing} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1> SKIP_PRECOMPILE_HEADERS ON)
# GoogleTest's header is most of a test's compile time: it is compiled once, with the options of programs, because tests use it too.
set_target_properties(zero3d_harness PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(zero3d_harness PRIVATE -fPIE)
target_precompile_headers(zero3d_harness PRIVATE ${CMAKE_SOURCE_DIR}/tests/precompiled.h)
set_property(GLOBAL PROPERTY ZERO3D_FIRST_TEST zero3d_harness)

# ctest counts halves of processors (scripts/test). A test takes a whole one, also on two ranks, which sleep while they wait; with more
# ranks it takes three halves, and a half if it mostly waits.
set(ZERO3D_PROCESSORS 2)
set(ZERO3D_PROCESSORS_RANKS 3)
set(ZERO3D_PROCESSORS_WAITS 1)

function(zero3d_test name)
  cmake_parse_arguments(ARG "LONG;WAITS;STATIC;CHAIN" "ROOM;TIMEOUT;SCRIPT;SHARDS" "RANKS;LONG_RANKS" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/${ARG_ROOM}/${name}.cc ${ZERO3D_PROGRAM_OBJECTS})
  add_dependencies(tests ${name})
  set(library zero3d_shared)
  if(ARG_STATIC)
    set(library zero3d)
  endif()
  target_link_libraries(${name} PRIVATE zero3d_flags zero3d_harness ${library} ${ZERO3D_EXTERNAL} GTest::gtest)
  target_link_options(${name} PRIVATE $<$<BOOL:${ZERO3D_GOLD}>:-fuse-ld=gold>)
  set(optimise "")
  if(ARG_ROOM IN_LIST ZERO3D_COMPUTING_TESTS)
    set(optimise $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
    target_compile_options(${name} PRIVATE ${optimise})
  endif()
  get_property(first GLOBAL PROPERTY "ZERO3D_FIRST_TEST${optimise}")
  if(first)
    target_precompile_headers(${name} REUSE_FROM ${first})
  else()
    target_precompile_headers(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/precompiled.h)
    set_property(GLOBAL PROPERTY "ZERO3D_FIRST_TEST${optimise}" ${name})
  endif()
  target_compile_definitions(${name} PRIVATE ZERO3D_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
    ZERO3D_BINARY="${CMAKE_BINARY_DIR}/bin/zero3d")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set(processors ${ZERO3D_PROCESSORS})
  if(ARG_WAITS)
    set(processors ${ZERO3D_PROCESSORS_WAITS})
  endif()
  set(properties PROCESSORS ${processors} ENVIRONMENT OMP_WAIT_POLICY=passive)
  if(ARG_LONG)
    set(ARG_TIMEOUT 3600)
    list(APPEND properties LABELS long)
  endif()
  if(ARG_SCRIPT)
    add_test(NAME ${name} CONFIGURATIONS long COMMAND ${CMAKE_SOURCE_DIR}/tests/${ARG_ROOM}/${ARG_SCRIPT} ${CMAKE_SOURCE_DIR}/scripts/launch
      $<TARGET_FILE:${name}>)
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
  elseif(ARG_SHARDS)
    math(EXPR last "${ARG_SHARDS} - 1")
    foreach(shard RANGE ${last})
      add_test(NAME ${name}.part${shard} COMMAND ${name})
      set_tests_properties(${name}.part${shard} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties}
        ENVIRONMENT "OMP_WAIT_POLICY=passive;GTEST_TOTAL_SHARDS=${ARG_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  elseif(NOT ARG_RANKS)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
  endif()
  # What runs on 2 ranks and on 4 has 4 in make test, and 2 in the sanitized build: .ci/run has both. make test-long has the other one.
  set(other_build "")
  if(2 IN_LIST ARG_RANKS AND 4 IN_LIST ARG_RANKS AND NOT ARG_CHAIN)
    if(ZERO3D_SANITIZE)
      set(other_build 4)
    else()
      set(other_build 2)
    endif()
  endif()
  foreach(ranks ${ARG_RANKS} ${ARG_LONG_RANKS})
    set(only_long "")
    if(ranks IN_LIST ARG_LONG_RANKS OR ranks STREQUAL "${other_build}")
      set(only_long CONFIGURATIONS long)
    endif()
    add_test(NAME ${name}.${ranks} ${only_long} COMMAND ${CMAKE_SOURCE_DIR}/scripts/launch -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${ranks} PROPERTIES TIMEOUT ${ARG_TIMEOUT} ${properties})
    if(ranks GREATER 2)
      set_tests_properties(${name}.${ranks} PROPERTIES PROCESSORS ${ZERO3D_PROCESSORS_RANKS})
    endif()
    if(only_long)
      set_tests_properties(${name}.${ranks} PROPERTIES LABELS long)
    endif()
  endforeach()
endfunction()

# For tests/base/allocations.h: the linker hands it every allocation of our own objects. The test is STATIC.
function(zero3d_count_allocations name)
  foreach(function malloc calloc realloc posix_memalign aligned_alloc mmap)
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()

# The CUDA kernels for the host (tests/device/cuda_shim): no toolkit needed, and no undefined behaviour looked for in what is a GPU's.
file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels/*.cu)
file(GLOB shim_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/*.cc)
foreach(source ${cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  set(shim_source ${CMAKE_BINARY_DIR}/generated/cuda_shim/${name}.cc)
  file(CONFIGURE OUTPUT ${shim_source} CONTENT "#include \"${source}\"\n")
  list(APPEND shim_sources ${shim_source})
endforeach()
add_library(zero3d_cuda_shim OBJECT EXCLUDE_FROM_ALL ${shim_sources})
target_include_directories(zero3d_cuda_shim BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim)
target_link_libraries(zero3d_cuda_shim PRIVATE zero3d_flags)
target_compile_options(zero3d_cuda_shim PRIVATE -O1 -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>
  $<$<CXX_COMPILER_ID:GNU>:--param=asan-use-after-return=0>) # fibres come and go too often for fake stacks

# Each module lists its tests in tests/<module>/tests.cmake.
foreach(room ${ZERO3D_ROOMS})
  include(${CMAKE_SOURCE_DIR}/tests/${room}/tests.cmake OPTIONAL)
endforeach()
# The program as a whole.
include(${CMAKE_SOURCE_DIR}/tests/cli/tests.cmake OPTIONAL)

# The cuda device: the real plugin's code over the host's kernels and library calls (tests/device/cuda_shim), so that it runs here.
# Not under sanitizers: the kernels' own tests run there.
if(TARGET zero3d_cuda_shim AND NOT ZERO3D_SANITIZE)
  file(GLOB plugin_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.c ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/plugin/*.c)
  add_library(zero3d_cuda_host MODULE EXCLUDE_FROM_ALL ${plugin_sources} ${ZERO3D_PLUGIN_BASE} $<TARGET_OBJECTS:zero3d_cuda_shim>)
  set_target_properties(zero3d_cuda_host PROPERTIES OUTPUT_NAME zero3d_cuda C_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/host_plugin)
  target_compile_definitions(zero3d_cuda_host PRIVATE Z3D_CUDA_SHIM Z3D_CUDA_OLDEST=80)
  target_include_directories(zero3d_cuda_host BEFORE PRIVATE ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim ${CMAKE_SOURCE_DIR}/tests/device/cuda_shim/plugin)
  target_link_libraries(zero3d_cuda_host PRIVATE zero3d_flags Threads::Threads ${CMAKE_DL_LIBS} m)
  add_dependencies(tests gpu_check zero3d_cuda_host)
  add_test(NAME gpu_check COMMAND ${CMAKE_SOURCE_DIR}/tests/gpu/gpu_check.sh)
  set_tests_properties(gpu_check PROPERTIES TIMEOUT 300 PROCESSORS ${ZERO3D_PROCESSORS}
    ENVIRONMENT "ZERO3D=$<TARGET_FILE:gpu_check>;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR};ZERO3D_PLUGIN_PATH=${CMAKE_BINARY_DIR}/host_plugin;OMP_WAIT_POLICY=passive")
endif()

# Registers of the kernels as CUDA 13 compiled them; cuDNN's answer to attention's graphs, where the toolkit has cuDNN and its stub of the driver.
if(TARGET zero3d_cuda)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    add_test(NAME cuda_resources COMMAND ${CMAKE_SOURCE_DIR}/scripts/cuda-resources ${CMAKE_BINARY_DIR})
  endif()
  cmake_path(GET CMAKE_CUDA_COMPILER PARENT_PATH nvcc_folder)
  find_program(ZERO3D_CUOBJDUMP cuobjdump HINTS ${nvcc_folder})
  if(ZERO3D_CUOBJDUMP)
    add_test(NAME cuda_sass COMMAND ${CMAKE_SOURCE_DIR}/scripts/cuda-sass ${CMAKE_BINARY_DIR})
    set_tests_properties(cuda_sass PROPERTIES ENVIRONMENT "CUOBJDUMP=${ZERO3D_CUOBJDUMP}")
  endif()
  find_path(ZERO3D_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(ZERO3D_STUB_DRIVER cuda HINTS ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib/stubs lib64/stubs stubs)
  if(ZERO3D_CUDNN_INCLUDE AND ZERO3D_STUB_DRIVER)
    add_library(zero3d_cudnn OBJECT EXCLUDE_FROM_ALL src/device/cuda/attention_plan.c)
    target_link_libraries(zero3d_cudnn PRIVATE zero3d_flags)
    target_include_directories(zero3d_cudnn SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${ZERO3D_CUDNN_INCLUDE})
    zero3d_test(device_cuda_cudnn ROOM device)
    target_sources(device_cuda_cudnn PRIVATE $<TARGET_OBJECTS:zero3d_cudnn>)
    target_include_directories(device_cuda_cudnn SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS} ${ZERO3D_CUDNN_INCLUDE})
    target_compile_definitions(device_cuda_cudnn PRIVATE CUDA_STUB_DRIVER="${ZERO3D_STUB_DRIVER}")
  endif()
endif()

# NCCL's header, where there is one with all functions that the plugin may use.
find_path(ZERO3D_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
find_path(ZERO3D_RUNTIME_INCLUDE cuda_runtime_api.h HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include)
if(ZERO3D_NCCL_INCLUDE AND ZERO3D_RUNTIME_INCLUDE)
  file(STRINGS ${ZERO3D_NCCL_INCLUDE}/nccl.h newest REGEX "ncclCommWindowRegister" LIMIT_COUNT 1)
  if(newest)
    zero3d_test(device_nccl_api ROOM device)
    target_include_directories(device_nccl_api SYSTEM PRIVATE ${ZERO3D_NCCL_INCLUDE} ${ZERO3D_RUNTIME_INCLUDE})
  endif()
endif()

# The long tests first.
file(STRINGS ${CMAKE_SOURCE_DIR}/tests/seconds lines REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/seconds)
foreach(line ${lines})
  separate_arguments(line)
  list(GET line 0 name)
  if(TEST ${name})
    list(GET line 1 seconds)
    set_tests_properties(${name} PROPERTIES COST ${seconds})
  endif()
endforeach()
