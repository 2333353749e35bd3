# The operations: the one list. An operation is a line here and its own files:
#
#   ops/<op>.h                 formula, arguments, cost, declarations
#   ops/<op>.cpp               CPU body, checks
#   ops/<op>.cu                CUDA body
#   tests/ops/<op>_cases.cpp   the case list <op>_cases()
#
# Libraries, the list of all cases, the checks on the CPU, on the SIMT emulator, under the race
# detector and on a GPU, and the device benches are made from this list.
#
#   assay_op(<op> [ONLY_GPU] [LONG] [BENCH <name>]
#            [SOURCES <further .cpp>...] [KERNELS <further .cu>...] [HOPPER <.cu>...] [CASES <further lists>...])
#
#   KERNELS    compiled for every image of ASSAY_GPUS    HOPPER     for 90a only: they use wgmma
#   ONLY_GPU   there is no CPU body (the .cpp checks)
#   LONG       its checks are started first         BENCH      bench_<name> times it on a GPU
foreach(list ASSAY_OPS ASSAY_CPU_OPS ASSAY_GPU_OPS ASSAY_LONG_OPS ASSAY_OP_SOURCES ASSAY_OP_KERNELS
        ASSAY_HOPPER_KERNELS ASSAY_OP_CASES ASSAY_DEVICE_BENCHES)
  set(${list} "")
endforeach()
macro(assay_op op)
  cmake_parse_arguments(op "ONLY_GPU;LONG" "BENCH" "SOURCES;KERNELS;HOPPER;CASES" ${ARGN})
  if(op_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "assay_op(${op}): unknown arguments ${op_UNPARSED_ARGUMENTS}")
  endif()
  if(EXISTS ${CMAKE_SOURCE_DIR}/ops/${op}.cu)
    list(PREPEND op_KERNELS ${op}.cu)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/ops/${op}.cu)
  endif()
  if(NOT op_KERNELS AND NOT op_HOPPER)
    message(FATAL_ERROR "assay_op(${op}): there is no ops/${op}.cu")
  endif()
  list(APPEND ASSAY_OPS ${op})
  if(NOT op_ONLY_GPU)
    list(APPEND ASSAY_CPU_OPS ${op})
  endif()
  list(APPEND ASSAY_GPU_OPS ${op})
  if(op_LONG)
    list(APPEND ASSAY_LONG_OPS ${op})
  endif()
  list(APPEND ASSAY_OP_SOURCES ${op}.cpp ${op_SOURCES})
  list(APPEND ASSAY_OP_KERNELS ${op_KERNELS})
  list(APPEND ASSAY_HOPPER_KERNELS ${op_HOPPER})
  list(APPEND ASSAY_OP_CASES ${op}_cases.cpp ${op_CASES})
  if(op_BENCH)
    list(APPEND ASSAY_DEVICE_BENCHES ${op_BENCH})
    list(APPEND ASSAY_BENCH_${op_BENCH} ${op})
  endif()
endmacro()

assay_op(adamw BENCH optimizer)
assay_op(adamw_bf16 BENCH optimizer)
assay_op(amax BENCH quantisers)
assay_op(attention LONG BENCH attention
  SOURCES attention/cpu_amx_backward.cpp attention/cpu_amx_forward.cpp
  KERNELS attention/gpu_backward.cu attention/gpu_float.cu attention/gpu_forward.cu
  HOPPER attention/gpu_backward_keys_wgmma.cu attention/gpu_backward_queries_wgmma.cu attention/gpu_backward_wgmma.cu
         attention/gpu_forward_wgmma.cu)
assay_op(carry_sum BENCH memory_ops)
assay_op(cast BENCH memory_ops)
assay_op(checksum BENCH optimizer)
assay_op(combine BENCH router)
assay_op(dequantise BENCH quantisers)
assay_op(dispatch BENCH router)
assay_op(embedding BENCH memory_ops)
assay_op(fake_quantise LONG BENCH quantisers
  SOURCES quantise/cpu_fake_piece.cpp quantise/cpu_lanes.cpp
  KERNELS quantise/gpu_fake_amax.cu quantise/gpu_fake_measures.cu)
assay_op(global_norm BENCH optimizer)
assay_op(grouped_linear LONG BENCH grouped
  KERNELS grouped/gpu_mma.cu grouped/gpu_work_list.cu HOPPER grouped/gpu_linear_wgmma.cu)
assay_op(grouped_scaled ONLY_GPU BENCH grouped
  KERNELS grouped/gpu_scaled_mma.cu HOPPER grouped/gpu_scaled_wgmma.cu)
assay_op(grouped_swiglu BENCH grouped HOPPER grouped/gpu_swiglu_wgmma.cu)
assay_op(hadamard BENCH quantisers)
assay_op(head_loss LONG BENCH head)
assay_op(kv_cache_write BENCH attention)
assay_op(linear LONG BENCH gemm)
assay_op(muon BENCH optimizer)
assay_op(newton_schulz LONG BENCH optimizer)
assay_op(qk_norm BENCH attention)
assay_op(quantise LONG BENCH quantisers)
assay_op(rmsnorm BENCH memory_ops)
assay_op(rope BENCH attention)
assay_op(router LONG BENCH router
  SOURCES router/backward.cpp KERNELS router/backward.cu router/forward_registers.cu CASES router_backward_cases.cpp)
assay_op(scaled_linear ONLY_GPU BENCH gemm)
assay_op(sparse_linear BENCH router)
assay_op(swiglu BENCH memory_ops)
assay_op(swiglu_codes ONLY_GPU BENCH quantisers)
assay_op(tree_sum BENCH memory_ops)
assay_op(varlen_attention BENCH attention)
assay_op(zero BENCH memory_ops)
list(REMOVE_DUPLICATES ASSAY_DEVICE_BENCHES)
