# Tests of the program as a whole: shell scripts, run when there is a program.
if(TARGET zero3d_program)
  add_executable(forbid EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/forbid.c)
  add_dependencies(tests forbid)
  foreach(name usage readme pages models config plan prove digest replay trace report browser bad_runs generate evaluate elastic submit offload tiling memory_limit disk_faults disk_breaks pipeline launch tcp slurm cuda products stuck signals install module)
    add_test(NAME cli_${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/cli/${name}.sh ${CMAKE_BINARY_DIR})
    set_tests_properties(cli_${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 PROCESSORS 2
      ENVIRONMENT "ZERO3D=$<TARGET_FILE:zero3d_program>;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR};FORBID=$<TARGET_FILE:forbid>;CC=${CMAKE_C_COMPILER};SANITIZE=${ZERO3D_SANITIZE};HOST_PLUGIN=${CMAKE_BINARY_DIR}/host_plugin")
  endforeach()
  # What trains or compiles keeps both processors of a small machine busy, what waits for processes that end badly keeps none.
  zero3d_processors(cli_cuda cli_memory_limit cli_pipeline cli_tiling cli_offload COUNT 2)
  zero3d_processors(cli_bad_runs cli_launch cli_stuck cli_signals cli_disk_faults WAITS)
  set_tests_properties(cli_memory_limit PROPERTIES TIMEOUT 3600 LABELS long)
  zero3d_processors(cli_install cli_readme cli_models COUNT 4)
endif()
