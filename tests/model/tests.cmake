zero3d_test(gpt_model ROOM model)
zero3d_test(gpt_units ROOM model RANKS 1 2 4)
