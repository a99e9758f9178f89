zero3d_test(tensor_parallel_layers ROOM tensor_parallel RANKS 1 2 4)
