// Reads the claims of a matrix file. Only for .cpp files that walk YAML.
#pragma once

#include <vector>

#include "lab/matrix/claim.h"
#include "lab/matrix/section_reader.h"

namespace assay {

struct MatrixFile;

// The items of `claims`. UserError with file and line for a mistake in one of them.
std::vector<MatrixClaim> read_claims(const SectionReader& reader, const YAML::Node& node);

// Names that the claims use must be in the file, which is read up to its end. UserError with file
// and line. Fills ClaimAcross::over.
void resolve_claims(MatrixFile& file);

}  // namespace assay
