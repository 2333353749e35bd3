# The files of a folder compiled together. Most of what the laboratory's files take to compile is the
# same in each of them (the standard library's headers, JSON, CLI11), so a first build takes about
# 40% less. One edited file compiles again with its neighbours: -DASSAY_UNITY=OFF compiles each alone.
option(ASSAY_UNITY "compile the files of a folder together: lab, session, interop, tools, tests" ON)

# assay_unity(target [SANITIZED]): its files in groups of at most 12 of one folder. Two files of a folder
# can then not give the same name to different things, not even in an anonymous namespace. Files with
# options of their own stay alone (CMake sees to that). SANITIZED: only in builds with sanitizers. What
# computes a step is otherwise compiled file by file: what g++ sees together decides where it fuses a
# product with a sum, and so the last bit.
function(assay_unity target)
  if(NOT ASSAY_UNITY OR ("SANITIZED" IN_LIST ARGN AND NOT ASSAY_SANITIZE))
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.cpp$" OR IS_ABSOLUTE ${source})
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
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
