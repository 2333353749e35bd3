# Some libraries of tests are the same with sanitizers and without: what they hold is not checked. A build with sanitizers
# takes them from a release build of the same files where ASSAY_PLAIN_BUILD names its folder (tools/test.sh does; that build
# must be up to date), and compiles them otherwise.
set(ASSAY_PLAIN_BUILD "" CACHE PATH "with ASSAY_SANITIZE: a release build whose unchecked libraries are taken")
if(NOT ASSAY_SANITIZE)
  set(ASSAY_PLAIN_BUILD "")
endif()

# assay_plain_library(target folder): the library of that build, made in `folder` of it.
function(assay_plain_library target folder)
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${ASSAY_PLAIN_BUILD}/${folder}/lib${target}.a)
endfunction()
