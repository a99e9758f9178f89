# The library, the program, the examples.
if(ZERO3D_BARE)
  return()
endif()

add_library(zero3d STATIC ${ZERO3D_OBJECTS})
target_link_libraries(zero3d PUBLIC ${ZERO3D_EXTERNAL})
target_include_directories(zero3d PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}> $<INSTALL_INTERFACE:include/zero3d>)

file(GLOB cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.c)
add_executable(zero3d_program ${cli_sources} ${ZERO3D_PROGRAM_OBJECTS})
set_target_properties(zero3d_program PROPERTIES OUTPUT_NAME zero3d)
target_compile_definitions(zero3d_program PRIVATE ZERO3D_VERSION="${PROJECT_VERSION}")
target_compile_definitions(zero3d_train PRIVATE ZERO3D_VERSION="${PROJECT_VERSION}")
target_link_libraries(zero3d_program PRIVATE zero3d_flags zero3d)

file(GLOB example_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/*.c)
foreach(source ${example_sources})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source} ${ZERO3D_PROGRAM_OBJECTS})
  target_link_libraries(${name} PRIVATE zero3d_flags zero3d)
endforeach()

include(cmake/install.cmake)
