zero3d_test(hardware ROOM plan)
zero3d_test(links ROOM plan)
zero3d_test(simulate ROOM plan)
zero3d_test(paper ROOM plan)
zero3d_test(memory_plan ROOM plan)
zero3d_test(advice ROOM plan)
foreach(name hardware links simulate paper memory_plan)
  target_compile_definitions(${name} PRIVATE ZERO3D_CONFIGS="${CMAKE_SOURCE_DIR}/configs")
endforeach()
# The sim device against the cpu device, on one and on four ranks.
zero3d_test(sim_against_cpu ROOM plan RANKS 1 4)
add_test(NAME reproduce COMMAND ${CMAKE_SOURCE_DIR}/tests/plan/reproduce.sh)
set_tests_properties(reproduce PROPERTIES TIMEOUT 300
  ENVIRONMENT "ZERO3D=${CMAKE_BINARY_DIR}/bin/zero3d;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR}")
