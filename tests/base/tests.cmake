# src/base: started alone, no MPI.
zero3d_test(base_status ROOM base)
zero3d_test(base_log ROOM base)
zero3d_test(base_strings ROOM base)
zero3d_test(base_numbers ROOM base)
zero3d_test(base_files ROOM base)
zero3d_test(base_dtype ROOM base)
zero3d_test(base_rng ROOM base)
zero3d_test(base_ledger ROOM base)
zero3d_test(base_config_read ROOM base)
zero3d_test(base_config_refuse ROOM base)
zero3d_test(base_config_check ROOM base)
zero3d_test(base_config_resolve ROOM base)
zero3d_test(base_config_write ROOM base)
zero3d_test(base_config_paste ROOM base)
# The fuzzer's corpus, replayed by any compiler.
zero3d_test(base_config_corpus ROOM base)
target_sources(base_config_corpus PRIVATE ${CMAKE_SOURCE_DIR}/tests/fuzz/config.c)
set_target_properties(base_config_corpus PROPERTIES DISABLE_PRECOMPILE_HEADERS ON) # it has a C file
