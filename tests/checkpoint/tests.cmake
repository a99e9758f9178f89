zero3d_test(checkpoint_files ROOM checkpoint)
zero3d_test(checkpoint_engine ROOM checkpoint RANKS 1 2 4)
