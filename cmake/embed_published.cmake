# Writes OUTPUT (a C++ file) with the text of every file of FILES under its name without folder and ending, so that the
# program needs none of them at run time:
#   cmake -DOUTPUT=... "-DFILES=a/0003.json;a/0004.json" -P embed_published.cmake
set(text "// Made by cmake/embed_published.cmake.
#include \"lab/compare/published.h\"
namespace assay {
const std::vector<PublishedText>& published_texts() {
  static const std::vector<PublishedText> texts = {
")
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} content)
  string(APPEND text "{\"${name}\", R\"published(${content})published\"},\n")
endforeach()
string(APPEND text "  };
  return texts;
}
}  // namespace assay
")
file(WRITE ${OUTPUT} "${text}")
