# The files of a folder compiled together. Most of what the laboratory's files take to compile is the
# same in each of them (the standard library's headers, JSON, CLI11), so a first build takes about
# 40% less. One edited file compiles again with its neighbours: -DASSAY_UNITY=OFF compiles each alone.
option(ASSAY_UNITY "compile the files of a folder together" ON)

# assay_unity(target [SANITIZED] [ALONE file...]): its files in groups of at most 12 of one folder. Two
# files of a folder can then not give the same name to different things, not even in an anonymous
# namespace. Files with options of their own stay alone (CMake sees to that). What computes numbers of a
# step, a corpus, a score or the telemetry is compiled file by file, since what g++ sees together
# decides where it fuses a product with a sum, and so the last bit: ALONE are such files, SANITIZED says
# that all are. Builds with sanitizers group these too.
function(assay_unity target)
  cmake_parse_arguments(ARG "SANITIZED" "" "ALONE" ${ARGN})
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "assay_unity(${target}): unknown arguments ${ARG_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT ASSAY_UNITY OR (ARG_SANITIZED AND NOT ASSAY_SANITIZE))
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$" OR IS_ABSOLUTE ${source})
      continue()
    endif()
    if(source IN_LIST ARG_ALONE AND NOT ASSAY_SANITIZE)
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      list(REMOVE_ITEM ARG_ALONE ${source})
      continue()
    endif()
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "in_${folder}" folder)
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR group "${count_${folder}} / 12 + 1")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  if(ARG_ALONE AND NOT ASSAY_SANITIZE)
    message(FATAL_ERROR "assay_unity(${target}): no file is called ${ARG_ALONE}")
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
