# The parts of src/base that the plugin has its own copy of; scripts/cuda-build reads this line.
set(ZERO3D_PLUGIN_BASE src/base/status.c src/base/dtype.c src/base/numbers.c src/base/format.c)

# CUDA: ZERO3D_CUDA=AUTO (where a GPU and the toolkit are) | ON (or fail) | OFF. Kernels
# (src/device/cuda/kernels/*.cu) become the object library zero3d_cuda_kernels. They take minutes to
# compile, so a machine without a GPU builds them only if it is asked to, as for other machines.
set(ZERO3D_CUDA AUTO CACHE STRING "CUDA device: AUTO (where a GPU and the toolkit are), ON, OFF")
set_property(CACHE ZERO3D_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ZERO3D_HAS_CUDA OFF)
if(ZERO3D_CUDA STREQUAL "OFF")
  return()
endif()
if(ZERO3D_CUDA STREQUAL "AUTO" AND NOT EXISTS /dev/nvidiactl)
  message(STATUS "CUDA device: off (this machine has no GPU; `make build CUDA=1` or ZERO3D_CUDA=ON asks for it)")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(ZERO3D_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(ZERO3D_NVCC)
    set(CMAKE_CUDA_COMPILER ${ZERO3D_NVCC})
  elseif(ZERO3D_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA device: off (no nvcc found; ZERO3D_CUDA=ON with CUDACXX=/path/to/nvcc asks for it)")
    return()
  else()
    message(FATAL_ERROR "ZERO3D_CUDA=ON, but no nvcc was found: set CUDACXX=/path/to/nvcc")
  endif()
endif()

# One binary per generation, no PTX: what is tested is what runs. 90a has Hopper's own instructions.
# CUDA 12 is the last with V100 (70).
if(NOT CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90a-real")
  if(nvcc_version MATCHES "release ([0-9]+)\\." AND CMAKE_MATCH_1 LESS 13)
    list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)
  endif()
endif()
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
set(ZERO3D_HAS_CUDA ON)
message(STATUS "CUDA device: on (CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES})")

file(GLOB cuda_kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/kernels/*.cu)
if(cuda_kernel_sources)
  add_library(zero3d_cuda_kernels OBJECT ${cuda_kernel_sources})
  set_target_properties(zero3d_cuda_kernels PROPERTIES CUDA_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
  target_include_directories(zero3d_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR})
  # -Wextra's pedantry is about the host code that nvcc generates. A report beside each object says
  # what its kernels use (scripts/cuda-resources). A register that spills to memory is an error with
  # CUDA 13; earlier compilers spill a few bytes of some kernels.
  set_property(TARGET zero3d_cuda_kernels PROPERTY CUDA_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/cuda-report ${CMAKE_CUDA_COMPILER_LAUNCHER})
  set(spills)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    set(spills ,-warn-spills)
  endif()
  target_compile_options(zero3d_cuda_kernels PRIVATE -Xcompiler=-Wall -Xptxas=-v${spills} -lineinfo
    $<$<BOOL:${ZERO3D_WERROR}>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()

# The plugin: everything that links CUDA, with its own copy of a few files of src/base. It exports
# one symbol.
if(cuda_kernel_sources)
  file(GLOB plugin_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/device/cuda/*.c)
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "[^0-9].*" "" OUTPUT_VARIABLE cuda_generations)
  list(SORT cuda_generations COMPARE NATURAL)
  list(GET cuda_generations 0 cuda_oldest)
  # A Python package of cuBLAS has no libcublasLt.so, which is what FindCUDAToolkit looks for.
  if(TARGET CUDA::cublasLt)
    set(cublaslt CUDA::cublasLt)
  else()
    string(REPLACE ":" ";" library_path "$ENV{LD_LIBRARY_PATH}")
    find_library(ZERO3D_CUBLASLT NAMES libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} HINTS ${library_path} REQUIRED)
    set(cublaslt ${ZERO3D_CUBLASLT})
  endif()
  add_library(zero3d_cuda MODULE ${plugin_sources} ${ZERO3D_PLUGIN_BASE} $<TARGET_OBJECTS:zero3d_cuda_kernels>)
  set_target_properties(zero3d_cuda PROPERTIES C_VISIBILITY_PRESET hidden LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  target_compile_definitions(zero3d_cuda PRIVATE Z3D_CUDA_OLDEST=${cuda_oldest})
  target_include_directories(zero3d_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(zero3d_cuda PRIVATE zero3d_flags CUDA::cudart_static ${cublaslt} Threads::Threads ${CMAKE_DL_LIBS} m)
  target_link_options(zero3d_cuda PRIVATE -Wl,--exclude-libs,ALL)
  if(NOT ZERO3D_SANITIZE) # whose runtime is the program's
    target_link_options(zero3d_cuda PRIVATE -Wl,-z,defs)
  endif()
endif()
