zero3d_test(parallel_mesh ROOM parallel)
zero3d_test(parallel_reduce ROOM parallel)
zero3d_test(parallel_schedule ROOM parallel)
# Three ranks: an odd size for the arithmetic; sanitizers have seen all of its code on two and four.
if(ZERO3D_SANITIZE)
  zero3d_test(parallel_collectives ROOM parallel RANKS 1 2 4)
else()
  zero3d_test(parallel_collectives ROOM parallel RANKS 1 2 3 4)
endif()
# The same over TCP, where it is messages that differ, in a program that knows no MPI.
set(objects $<TARGET_OBJECTS:parallel_collectives> $<TARGET_OBJECTS:zero3d_parallel> $<TARGET_OBJECTS:zero3d_base> $<TARGET_OBJECTS:zero3d_device>
  ${ZERO3D_ISA_OBJECTS} ${ZERO3D_PROGRAM_OBJECTS})
set(libraries ${ZERO3D_EXTERNAL})
list(REMOVE_ITEM libraries MPI::MPI_C)
add_executable(parallel_without_mpi EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/parallel/mpi/none.c)
target_link_libraries(parallel_without_mpi PRIVATE zero3d_flags "$<FILTER:${objects},EXCLUDE,/parallel/mpi/>" zero3d_harness ${libraries} GTest::gtest)
set_target_properties(parallel_without_mpi PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(parallel_without_mpi parallel_collectives)
add_dependencies(tests parallel_without_mpi)
add_test(NAME parallel_collectives.tcp3
  COMMAND ${CMAKE_SOURCE_DIR}/scripts/launch -n 3 $<TARGET_FILE:parallel_without_mpi> --gtest_filter=World.*:*/messages)
set_tests_properties(parallel_collectives.tcp3 PROPERTIES TIMEOUT 300 PROCESSORS ${ZERO3D_PROCESSORS} ENVIRONMENT "OMP_WAIT_POLICY=passive;ZERO3D_LAUNCH=tcp")
zero3d_test(parallel_composite ROOM parallel RANKS 4)
# It starts mpirun itself and mostly waits, for ranks to die and to be given up.
zero3d_test(parallel_failures ROOM parallel SHARDS 4 WAITS)
