zero3d_test(planner ROOM zero)

# The one-rank run leaves the losses that the others are compared with.
zero3d_test(equivalence ROOM zero RANKS 1 2 4 8)
set_tests_properties(equivalence.1 PROPERTIES FIXTURES_SETUP one_rank)
set_tests_properties(equivalence.2 equivalence.4 equivalence.8 PROPERTIES FIXTURES_REQUIRED one_rank)
zero3d_test(reference ROOM zero RANKS 1 2 4)
zero3d_test(residual ROOM zero RANKS 1 2 4 LONG LONG_RANKS 8)
zero3d_test(verifier ROOM zero)
zero3d_test(large ROOM zero)
# Together the three worlds run all configurations.
zero3d_test(mutation ROOM zero RANKS 1 2 4 TIMEOUT 600)
zero3d_test(communication ROOM zero RANKS 1 2 4)
zero3d_test(memory ROOM zero RANKS 1 2 4)
zero3d_count_allocations(memory)
zero3d_test(models ROOM zero RANKS 1 2)
zero3d_test(loss_scale ROOM zero)
zero3d_test(overflow ROOM zero RANKS 1 2)
zero3d_test(observe ROOM zero RANKS 1 2)
