# Precompiles the standard headers that almost every file includes: reading them is a third to a half
# of what most files take to compile. The files still name what they need: -DASSAY_PRECOMPILE=OFF, nvcc
# and clang compile them without.
option(ASSAY_PRECOMPILE "precompile the standard library's headers (g++)" ON)

# Sets `result` to how many files of a target are compiled with the same options, a group that is
# compiled together counted as one. Files with options of their own are left out of the header: for
# them it would be another one, and g++ 12 crashed on one of another level of optimisation.
function(assay_count_alike target result)
  get_target_property(sources ${target} SOURCES)
  get_target_property(home ${target} SOURCE_DIR)
  set(alike "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${home})
    get_property(language SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY LANGUAGE)
    get_property(options SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS)
    get_property(group SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP)
    if(options)
      set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    elseif(group)
      list(APPEND alike ${group})
    elseif(language STREQUAL "CXX" OR source MATCHES "\\.cpp$")
      list(APPEND alike ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES alike)
  list(LENGTH alike count)
  set(${result} ${count} PARENT_SCOPE)
endfunction()

# Headers of libraries that most files of a target include.
define_property(TARGET PROPERTY ASSAY_ALSO_PRECOMPILED)

# assay_precompile(folder): for the targets of a folder and of those below it, called when all are
# made. A target of few files is left out: its precompiled header takes as long as it saves.
function(assay_precompile folder)
  if(NOT ASSAY_PRECOMPILE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    return()
  endif()
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(one IN LISTS below)
    assay_precompile(${one})
  endforeach()
  set(headers algorithm array cmath cstdint cstdio cstring functional map memory optional string utility vector)
  list(TRANSFORM headers REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(NOT type MATCHES "^(STATIC_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$")
      continue()
    endif()
    assay_count_alike(${target} count)
    if(count LESS 5)
      continue()
    endif()
    get_target_property(more ${target} ASSAY_ALSO_PRECOMPILED)
    if(NOT more)
      set(more "")
    endif()
    list(TRANSFORM more REPLACE "(.+)" "$<$<COMPILE_LANGUAGE:CXX>:<\\1$<ANGLE-R>>")
    target_precompile_headers(${target} PRIVATE ${headers} ${more})
    if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      # More false reports of g++ 12 in std::string, which it takes for ours once it is precompiled.
      target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
    endif()
  endforeach()
endfunction()
