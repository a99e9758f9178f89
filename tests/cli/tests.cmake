# Tests of the program as a whole: shell scripts, run when there is a program.
if(TARGET zero3d_program)
  add_executable(forbid EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/forbid.c)
  add_dependencies(tests forbid)
  set(names usage readme models fine_tuning best config keys plan prove digest replay trace report outputs bad_runs generate evaluate elastic submit offload tiling sharding comms memory_limit disk_faults disk_breaks pipeline launch tcp slurm cuda products stuck signals)
  # Of pages and of what is installed sanitizers see nothing that other tests lack.
  if(NOT ZERO3D_SANITIZE)
    list(APPEND names pages browser install module)
  endif()
  foreach(name ${names})
    add_test(NAME cli_${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/cli/${name}.sh ${CMAKE_BINARY_DIR})
    set_tests_properties(cli_${name} PROPERTIES TIMEOUT 300 SKIP_RETURN_CODE 77 PROCESSORS ${ZERO3D_PROCESSORS}
      ENVIRONMENT "ZERO3D=$<TARGET_FILE:zero3d_program>;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR};FORBID=$<TARGET_FILE:forbid>;CC=${CMAKE_C_COMPILER};SANITIZE=${ZERO3D_SANITIZE};HOST_PLUGIN=${CMAKE_BINARY_DIR}/host_plugin")
  endforeach()
  # What waits for processes that end badly, or for Slurm's daemons.
  set_tests_properties(cli_bad_runs cli_launch cli_stuck cli_signals cli_slurm cli_disk_breaks cli_tcp PROPERTIES PROCESSORS ${ZERO3D_PROCESSORS_WAITS})
  set_tests_properties(cli_memory_limit PROPERTIES TIMEOUT 3600 LABELS long)
  set_tests_properties(cli_keys PROPERTIES TIMEOUT 900) # several commands for each key
  if(NOT ZERO3D_SANITIZE)
    set_tests_properties(cli_install cli_module PROPERTIES RESOURCE_LOCK install) # both install this build folder
  endif()
  set_tests_properties(cli_disk_faults cli_evaluate cli_offload cli_pipeline cli_replay cli_tiling cli_tcp PROPERTIES LABELS long)
endif()
