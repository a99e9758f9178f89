zero3d_test(parallel_topology ROOM parallel)
zero3d_test(parallel_reduce ROOM parallel)
# Three ranks: an odd size for the arithmetic; sanitizers have seen all of its code on two and four.
if(ZERO3D_SANITIZE)
  zero3d_test(parallel_collectives ROOM parallel RANKS 1 2 4)
else()
  zero3d_test(parallel_collectives ROOM parallel RANKS 1 2 3 4)
endif()
# It starts mpirun itself and mostly waits, for ranks to die and to be given up.
zero3d_test(parallel_failures ROOM parallel SHARDS 4)
