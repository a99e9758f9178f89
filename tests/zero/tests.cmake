zero3d_test(zero_planner ROOM zero)

# The one-rank run leaves the losses that the others are compared with.
zero3d_test(zero_equivalence ROOM zero RANKS 1 2 4 8)
set_tests_properties(zero_equivalence.1 PROPERTIES FIXTURES_SETUP one_rank)
set_tests_properties(zero_equivalence.2 zero_equivalence.4 zero_equivalence.8 PROPERTIES FIXTURES_REQUIRED one_rank)
zero3d_test(zero_reference ROOM zero RANKS 1 2 4)
zero3d_test(zero_activation_checkpointing ROOM zero RANKS 1 2 4 LONG LONG_RANKS 8)
zero3d_test(zero_verifier ROOM zero)
zero3d_test(zero_large ROOM zero)
# Together the three worlds run all configurations.
zero3d_test(zero_mutation ROOM zero RANKS 1 2 4 TIMEOUT 600)
zero3d_test(zero_communication ROOM zero RANKS 1 2 4)
zero3d_test(zero_memory ROOM zero RANKS 1 2 4)
zero3d_count_allocations(zero_memory)
zero3d_test(zero_models ROOM zero RANKS 1 2)
zero3d_test(zero_loss_scale ROOM zero)
zero3d_test(zero_overflow ROOM zero RANKS 1 2)
zero3d_test(zero_observe ROOM zero RANKS 1 2)
