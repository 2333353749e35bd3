# Writes OUTPUT (a C++ file) with a function NAME() that returns the text of every file of FILES, as TYPE of HEADER, under
# its name without folder and ending, so that the program needs none of them at run time:
#   cmake -DOUTPUT=... -DNAME=published_texts -DTYPE=PublishedText -DHEADER=lab/compare/published.h
#         "-DFILES=a/0003.json;a/0004.json" -P embed_texts.cmake
set(text "// Made by cmake/embed_texts.cmake.
#include \"${HEADER}\"
namespace assay {
const std::vector<${TYPE}>& ${NAME}() {
  static const std::vector<${TYPE}> texts = {
")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} content)
  string(APPEND text "{\"${name}\", R\"embedded(${content})embedded\"},\n")
endforeach()
string(APPEND text "  };
  return texts;
}
}  // namespace assay
")
file(WRITE ${OUTPUT} "${text}")
