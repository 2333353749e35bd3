# Writes OUTPUT (a C++ file) that holds the parts of the report page, so that the program needs no file at run time:
#   cmake -DOUTPUT=... -DFOLDER=lab/page/web "-DSCRIPTS=a.js;b.js" -DLIVE=live.js -DPLOTLY=plotly.min.js
#     -P embed_report.cmake
# SCRIPTS stand in the page in that order, as one. PLOTLY may be empty. The assembler reads the files (.incbin): the
# compiler would take long for megabytes of text. Their hashes stand beside them, as comments of the assembler: ccache
# does not look into what .incbin names, and gave the page of before.
set(text "// Made by cmake/embed_report.cmake.
#include \"lab/page/page.h\"
")
function(embed name)
  set(directives "")
  foreach(file ${ARGN})
    file(SHA256 ${file} hash)
    string(APPEND directives "\\t.incbin \\\"${file}\\\"  # ${hash}\\n\"\n    \"")
  endforeach()
  set(text "${text}
asm(\"\\t.pushsection .rodata\\n\"
    \"assay_report_${name}:\\n\"
    \"${directives}assay_report_${name}_end:\\n\"
    \"\\t.popsection\\n\");
extern const char ${name}[] asm(\"assay_report_${name}\");
extern const char ${name}_end[] asm(\"assay_report_${name}_end\");
" PARENT_SCOPE)
endfunction()
embed(html ${FOLDER}/page.html)
embed(css ${FOLDER}/page.css)
embed(javascript ${SCRIPTS})
embed(live ${LIVE})
embed(plotly ${PLOTLY})
string(APPEND text "
namespace assay {
ReportFiles report_files() {
  const auto between = [](const char* from, const char* to) {
    return std::string_view(from, static_cast<size_t>(to - from));
  };
  return {.html = between(html, html_end),
          .css = between(css, css_end),
          .javascript = between(javascript, javascript_end),
          .live = between(live, live_end),
          .plotly = between(plotly, plotly_end)};
}
}  // namespace assay
")
file(WRITE ${OUTPUT} "${text}")
