zero3d_test(model_config ROOM model)
zero3d_test(model_gpt ROOM model)
zero3d_test(model_llama ROOM model)
zero3d_test(model_units ROOM model RANKS 1 2 4)

foreach(example two_spirals own_block)
  if(TARGET ${example})
    add_test(NAME ${example} COMMAND ${CMAKE_SOURCE_DIR}/tests/model/${example}.sh
      ${CMAKE_SOURCE_DIR}/scripts/launch $<TARGET_FILE:${example}>)
    set_tests_properties(${example} PROPERTIES TIMEOUT 300 PROCESSORS 4)
  endif()
endforeach()
