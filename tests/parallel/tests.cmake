zero3d_test(parallel_topology ROOM parallel)
zero3d_test(parallel_reduce ROOM parallel)
zero3d_test(parallel_collectives ROOM parallel RANKS 1 2 3 4)
zero3d_test(parallel_failures ROOM parallel)
