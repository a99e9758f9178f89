# cmake --install: the program, the library with its headers, pkg-config and a CMake package. All of
# it can be moved afterwards.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS zero3d_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS zero3d EXPORT zero3d_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET zero3d_cuda)
  install(TARGETS zero3d_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/zero3d)
endif()
# The launcher stands next to the program, as zero3d-launch. A build without MPI cannot use the machine's mpirun.
file(READ scripts/launch text)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/scripts/launch)
if(NOT ZERO3D_HAS_MPI)
  string(REPLACE [[${ZERO3D_LAUNCH:-}]] [[${ZERO3D_LAUNCH:-tcp}]] text "${text}")
endif()
set(launcher ${CMAKE_BINARY_DIR}/bin/zero3d-launch)
file(CONFIGURE OUTPUT ${launcher} CONTENT "${text}" @ONLY) # leaves a file with equal contents alone: it may be running
file(CHMOD ${launcher} FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
install(PROGRAMS ${launcher} DESTINATION ${CMAKE_INSTALL_BINDIR})
# Completion and the man page, by the program that is installed.
foreach(form bash zsh fish man)
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:zero3d_program>\" completion ${form}
    OUTPUT_FILE \"${CMAKE_BINARY_DIR}/package/completion.${form}\" COMMAND_ERROR_IS_FATAL ANY)")
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/package/completion.bash
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME zero3d)
install(FILES ${CMAKE_BINARY_DIR}/package/completion.zsh
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _zero3d)
install(FILES ${CMAKE_BINARY_DIR}/package/completion.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME zero3d.fish)
install(FILES ${CMAKE_BINARY_DIR}/package/completion.man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME zero3d.1)
install(DIRECTORY configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zero3d/configs FILES_MATCHING PATTERN "*.yaml" PATTERN "*.csv")
configure_file(packaging/modulefile.in ${CMAKE_BINARY_DIR}/package/modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/modulefile DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/zero3d
  RENAME ${PROJECT_VERSION})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Headers keep the tree's layout, so their includes of each other work under include/zero3d.
set(ZERO3D_FACES
  src/base/base.h src/base/config.h src/device/device.h parallel/parallel.h tensor_parallel/tensor_parallel.h src/model/model.h
  src/model/gpt/gpt.h src/model/llama/llama.h zero/zero.h checkpoint/checkpoint.h src/plan/plan.h src/train/train.h src/train/data.h)
file(GLOB folder_headers RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/src/base/*.h ${CMAKE_SOURCE_DIR}/src/base/config/keys/*.h ${CMAKE_SOURCE_DIR}/zero/program/*.h)
foreach(header ${ZERO3D_FACES} ${folder_headers} src/base/config/keys.h src/device/kernels.h src/device/collectives.h src/model/unit.h src/model/lora.h src/model/layers.h src/model/transformer.h parallel/schedule/schedule.h zero/program.h src/train/tokenizer.h src/train/data/token_file.h)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zero3d/${folder})
endforeach()

# One header that includes all public headers.
set(ZERO3D_INCLUDES "")
foreach(header ${ZERO3D_FACES})
  string(APPEND ZERO3D_INCLUDES "#include \"${header}\"\n")
endforeach()
configure_file(cmake/zero3d.h.in ${CMAKE_BINARY_DIR}/package/zero3d.h @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/zero3d.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/zero3d)

# zero3d.pc. The library is static, so what it needs is part of --libs.
file(RELATIVE_PATH ZERO3D_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND "-I" OUTPUT_VARIABLE ZERO3D_MPI_CFLAGS)
string(REPLACE ";" " " ZERO3D_MPI_CFLAGS "${ZERO3D_MPI_CFLAGS}")
string(REPLACE ";" " " ZERO3D_MPI_LIBS "${MPI_C_LIBRARIES}")
set(ZERO3D_PC_LIBURING "")
if(LIBURING_FOUND)
  set(ZERO3D_PC_LIBURING " liburing")
endif()
configure_file(cmake/zero3d.pc.in ${CMAKE_BINARY_DIR}/package/zero3d.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/zero3d.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# find_package(zero3d) gives zero3d::zero3d.
set(ZERO3D_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/zero3d)
install(EXPORT zero3d_targets NAMESPACE zero3d:: DESTINATION ${ZERO3D_CMAKE_DIR} FILE zero3dTargets.cmake)
configure_package_config_file(cmake/zero3dConfig.cmake.in ${CMAKE_BINARY_DIR}/package/zero3dConfig.cmake
  INSTALL_DESTINATION ${ZERO3D_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/zero3dConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/zero3dConfig.cmake ${CMAKE_BINARY_DIR}/package/zero3dConfigVersion.cmake
  DESTINATION ${ZERO3D_CMAKE_DIR})
