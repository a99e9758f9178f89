zero3d_test(tensor_layers ROOM tensor_parallel RANKS 1 2 4)
