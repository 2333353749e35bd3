# Writes OUTPUT (a C++ file) with the commit and whether tracked files differ from it; leaves it alone when nothing
# changed, so that only a new commit relinks. Called at every build:
#   cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -DCOMPILER=... -DFLAGS=... -P build_info.cmake
set(commit unknown)
set(dirty false)
find_program(GIT git)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT} rev-parse --verify HEAD WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  file(REAL_PATH "${SOURCE}" here)
  file(REAL_PATH "${top}" top)
  if(NOT failed AND top STREQUAL here)  # not of another repository around the sources
    set(commit ${found})
    execute_process(COMMAND ${GIT} status --porcelain --untracked-files=no WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE changed ERROR_QUIET)
    if(NOT changed STREQUAL "")
      set(dirty true)
    endif()
  endif()
endif()
foreach(word IN ITEMS COMPILER FLAGS)  # within quotes below
  string(REPLACE "\\" "\\\\" ${word} "${${word}}")
  string(REPLACE "\"" "\\\"" ${word} "${${word}}")
endforeach()
set(text "// Made by cmake/build_info.cmake.
#include \"base/build_info.h\"
namespace assay {
BuildInfo build_info() {
  return {.version = \"${VERSION}\", .commit = \"${commit}\", .dirty = ${dirty},
          .compiler = \"${COMPILER}\", .flags = \"${FLAGS}\"};
}
}  // namespace assay
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUTPUT} "${text}")
endif()
