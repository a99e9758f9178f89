zero3d_test(kernels_elementwise ROOM device)
zero3d_test(kernels_rows ROOM device)
zero3d_test(kernels_tables ROOM device)
zero3d_test(kernels_optimizer ROOM device)
zero3d_test(device_gemm ROOM device)
zero3d_test(device_attention ROOM device)
zero3d_test(device_cost ROOM device)
zero3d_test(device_face ROOM device)
zero3d_test(device_math ROOM device)
# Short products on a busy machine: threads that spin for their next one would take most of the time.
set_tests_properties(device_gemm device_attention device_cost PROPERTIES ENVIRONMENT OMP_WAIT_POLICY=passive)
set_tests_properties(kernels_elementwise kernels_rows kernels_tables kernels_optimizer PROPERTIES
  ENVIRONMENT OMP_WAIT_POLICY=passive)
