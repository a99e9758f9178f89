zero3d_test(checkpoint_files ROOM checkpoint LONG)
zero3d_test(checkpoint_engine ROOM checkpoint RANKS 1 2 4 LONG)
zero3d_test(checkpoint_interop ROOM checkpoint RANKS 1 2)
zero3d_test(checkpoint_llama_interop ROOM checkpoint RANKS 1 2)
zero3d_test(checkpoint_crash ROOM checkpoint RANKS 1 2 LONG LONG_RANKS 4)
zero3d_test(checkpoint_sync ROOM checkpoint RANKS 1 2)
zero3d_test(checkpoint_sgd ROOM checkpoint RANKS 1 2 4 LONG)
zero3d_test(checkpoint_elastic ROOM checkpoint SCRIPT elastic.sh LONG)

# The program as a whole.
if(TARGET zero3d_program)
  foreach(name resume tools folders kill gpt2 llama tokenizer pipeline)
    add_test(NAME checkpoint_cli_${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/checkpoint/cli_${name}.sh ${CMAKE_BINARY_DIR})
    set_tests_properties(checkpoint_cli_${name} PROPERTIES TIMEOUT 3600 PROCESSORS ${ZERO3D_PROCESSORS} LABELS long
      ENVIRONMENT "ZERO3D=$<TARGET_FILE:zero3d_program>;LAUNCH=${CMAKE_SOURCE_DIR}/scripts/launch;SOURCE=${CMAKE_SOURCE_DIR}")
  endforeach()
endif()
