# Sets ASSAY_HAS_CUDA: are the CUDA bodies of the ops, and the device's run-time layer, built?
set(ASSAY_CUDA AUTO CACHE STRING "build for CUDA: ON, OFF, or AUTO (where a toolkit is found)")
set_property(CACHE ASSAY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(ASSAY_HAS_CUDA OFF)
# An image of the kernels for each: 80 runs on 8.x, 90a on 9.0, 100 on 10.x, 120 on 12.x.
set(ASSAY_GPUS 90a CACHE STRING "GPUs to compile the kernels for: a list of 80, 86, 89, 90a, 100, 103, 120, 121")
foreach(image IN LISTS ASSAY_GPUS)
  if(NOT image MATCHES "^(80|86|89|90a|100|103|120|121)$")
    message(FATAL_ERROR "ASSAY_GPUS: \"${image}\" is none of 80, 86, 89, 90a, 100, 103, 120, 121")
  endif()
endforeach()
if(NOT ASSAY_GPUS)
  message(FATAL_ERROR "ASSAY_GPUS is empty. Name at least one, for example 90a")
endif()
# To find a kernel that hangs.
set(ASSAY_GPU_WAIT_LIMIT_S 0 CACHE STRING
  "seconds after which a kernel that waits at an mbarrier says where, and fails (0: never)")
set(assay_cuda_oldest 12.5)  # cudaGetDriverEntryPointByVersion

if(ASSAY_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off")
  return()
endif()
# The host sanitizers look at host code; the device layer has none worth the trouble that their shadow memory makes
# for the driver.
if(ASSAY_CUDA STREQUAL "AUTO" AND ASSAY_SANITIZE)
  message(STATUS "CUDA: off under ${ASSAY_SANITIZE} (ASSAY_CUDA=ON builds it)")
  return()
endif()

# By CUDACXX, not CMAKE_CUDA_COMPILER: one that is set already is not checked, and enable_language ends all where it does
# not work.
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT DEFINED ENV{CUDACXX})
    find_program(ASSAY_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
    if(ASSAY_NVCC)
      set(ENV{CUDACXX} ${ASSAY_NVCC})
    endif()
  endif()
  if(DEFINED ENV{CUDACXX})
    unset(CMAKE_CUDA_COMPILER CACHE)  # by an earlier configuration, where nvcc did not work
  endif()
  # The check reads these where the variables are not.
  if(CMAKE_CUDA_FLAGS)
    set(ENV{CUDAFLAGS} "${CMAKE_CUDA_FLAGS}")
  endif()
  if(CMAKE_CUDA_HOST_COMPILER)
    set(ENV{CUDAHOSTCXX} ${CMAKE_CUDA_HOST_COMPILER})
  endif()
endif()
# The architectures are given below, for each target.
set(CMAKE_CUDA_ARCHITECTURES OFF)
include(CheckLanguage)
check_language(CUDA)
set(assay_why "")
set(assay_instead "Install the CUDA toolkit, set CMAKE_CUDA_COMPILER")
if(NOT CMAKE_CUDA_COMPILER AND DEFINED ENV{CUDACXX})
  set(assay_why "nvcc at $ENV{CUDACXX} is not there or does not work with this host compiler")
  set(assay_instead "Name a compiler that it takes in CMAKE_CUDA_HOST_COMPILER, or another nvcc in CMAKE_CUDA_COMPILER")
elseif(NOT CMAKE_CUDA_COMPILER)
  set(assay_why "no nvcc found")
else()
  enable_language(CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    set(assay_why "nvcc at ${CMAKE_CUDA_COMPILER}, but not the toolkit's headers and libraries")
  elseif(CUDAToolkit_VERSION VERSION_LESS assay_cuda_oldest)
    set(assay_why "toolkit ${CUDAToolkit_VERSION} is older than ${assay_cuda_oldest}")
  endif()
endif()
if(assay_why AND ASSAY_CUDA STREQUAL "ON")
  message(FATAL_ERROR "CUDA: ${assay_why}. ${assay_instead}, or use -DASSAY_CUDA=OFF")
elseif(assay_why)
  message(STATUS "CUDA: off, ${assay_why}")
  return()
endif()
list(TRANSFORM ASSAY_GPUS PREPEND sm_ OUTPUT_VARIABLE assay_images)
list(JOIN assay_images " " assay_images)
message(STATUS "CUDA: ${CUDAToolkit_VERSION}, for ${assay_images}")
set(ASSAY_HAS_CUDA ON)

# assay_cuda_objects(name images sources...): an OBJECT library of kernels compiled by nvcc for these
# images. CMake 3.25 knows no C++20 for nvcc, so every flag is given here. What ptxas reports of x.cu
# is kept beside its object, in x.cu.o.ptxas: registers, spills, serialised wgmma
# (tools/check_kernels.sh). The host's part of such a file starts kernels and computes nothing: -O1
# saves a tenth of its time.
function(assay_cuda_objects name images)
  list(TRANSFORM images REPLACE "(.+)" "SHELL:--generate-code arch=compute_\\1,code=sm_\\1")
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -std=c++20
    ${images} --expt-relaxed-constexpr "SHELL:-diag-suppress 554" -lineinfo
    "SHELL:-Xptxas -v" "SHELL:-Xcompiler -fopenmp" "SHELL:-Xcompiler -O1")
  if(ASSAY_GPU_WAIT_LIMIT_S GREATER 0)
    target_compile_definitions(${name} PRIVATE ASSAY_GPU_WAIT_LIMIT_S=${ASSAY_GPU_WAIT_LIMIT_S})
  endif()
  set(launcher bash ${CMAKE_SOURCE_DIR}/cmake/keep_ptxas_report.sh ${CMAKE_CXX_COMPILER_LAUNCHER})
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES OFF
    CUDA_COMPILER_LAUNCHER "${launcher}")
  set_property(GLOBAL APPEND PROPERTY ASSAY_CUDA_OBJECTS ${name})
endfunction()
