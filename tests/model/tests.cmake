zero3d_test(model_config ROOM model)
zero3d_test(model_gpt ROOM model)
zero3d_test(model_llama ROOM model)
zero3d_test(model_units ROOM model RANKS 1 2 4 LONG)

if(TARGET two_spirals)
  add_test(NAME two_spirals COMMAND ${CMAKE_SOURCE_DIR}/tests/model/two_spirals.sh
    ${CMAKE_SOURCE_DIR}/scripts/launch $<TARGET_FILE:two_spirals> ${CMAKE_SOURCE_DIR}/examples/two_spirals.c)
  set_tests_properties(two_spirals PROPERTIES TIMEOUT 300)
endif()
