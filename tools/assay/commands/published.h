// Shared by `assay published list` and `assay compare --published list`.
#pragma once

namespace assay {

int list_published_studies(bool json);  // the exit code

}  // namespace assay
