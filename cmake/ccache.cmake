# Compiles through ccache where it is installed (-DASSAY_CCACHE=OFF: not). Paths in the project are taken relative to it, so
# that several clones share what they compile. Objects for -march=native have a cache of their own for each kind of CPU:
# ccache compares the flag, not what it stands for. Where its folder cannot be written it would end every compilation, so it
# is left out.
option(ASSAY_CCACHE "compile through ccache where it is installed" ON)
find_program(ASSAY_CCACHE_PROGRAM ccache)
mark_as_advanced(ASSAY_CCACHE_PROGRAM)
if(ASSAY_CCACHE AND ASSAY_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(ccache_settings CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  if(ASSAY_NATIVE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -Q --help=target OUTPUT_VARIABLE native_target)
    string(SHA256 native_target "${native_target}")
    string(SUBSTRING ${native_target} 0 16 native_target)
    if(DEFINED ENV{CCACHE_DIR})
      set(ccache_folder $ENV{CCACHE_DIR}/native-${native_target})
    elseif(NOT "$ENV{HOME}" STREQUAL "")
      set(ccache_folder $ENV{HOME}/.cache/ccache/native-${native_target})
    endif()
  endif()
  if(ccache_folder)
    list(APPEND ccache_settings CCACHE_DIR=${ccache_folder})
  else()  # its own
    execute_process(COMMAND ${ASSAY_CCACHE_PROGRAM} --get-config cache_dir OUTPUT_VARIABLE ccache_folder
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(ccache_failed 0)
  if(ccache_folder)
    execute_process(COMMAND ${CMAKE_COMMAND} -E make_directory ${ccache_folder}
                    RESULT_VARIABLE ccache_failed OUTPUT_QUIET ERROR_QUIET)
    if(ccache_failed EQUAL 0)
      execute_process(COMMAND ${CMAKE_COMMAND} -E touch ${ccache_folder}/assay-writes
                      RESULT_VARIABLE ccache_failed OUTPUT_QUIET ERROR_QUIET)
      file(REMOVE ${ccache_folder}/assay-writes)
    endif()
  endif()
  # What ccache asks for with precompiled headers.
  list(APPEND ccache_settings CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(NOT ccache_failed EQUAL 0)
    message(STATUS "ccache: off, ${ccache_folder} cannot be written")
  else()
    foreach(language C CXX)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_settings} ${ASSAY_CCACHE_PROGRAM})
    endforeach()
  endif()
endif()
