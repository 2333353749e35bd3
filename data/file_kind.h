// Names what a file seems to be, for errors about a file of the wrong kind.
#pragma once

#include <string>
#include <string_view>

namespace assay {

// " (it looks like JSON)", from the first bytes of the file; "" for bytes that look like nothing
// known. begin: about 1 KB.
std::string seems_to_be(std::string_view begin);

}  // namespace assay
