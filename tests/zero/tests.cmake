zero3d_test(planner ROOM zero)
