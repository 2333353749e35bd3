# Refuses what the build cannot work on, before it fails in the middle. tools/setup.sh says so of CMake and g++ earlier.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  message(FATAL_ERROR "Assay is for x86-64, and this is ${CMAKE_SYSTEM_PROCESSOR}")
endif()
# It has -mmove-max, which the build needs for right results (tests/base/test_compiler.cpp), since 12.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "g++ is ${CMAKE_CXX_COMPILER_VERSION}, and Assay needs 12 or later. Install one and add "
    "-DCMAKE_C_COMPILER=gcc-12 -DCMAKE_CXX_COMPILER=g++-12")
endif()
