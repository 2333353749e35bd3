// A folder of a run that is a link, as a user makes one to keep checkpoints on a larger disk. A run
// from elsewhere may bring a link to a folder of other files, or of another run, where training
// would write, replace and remove checkpoints. So what it leads to has to be empty at first, and is
// marked then: the file .run there names the run that may use it.
#pragma once

#include <string>

namespace assay {

// Before files are written into `folder`, RUN/checkpoints or the like, or removed there. Marks what
// it leads to, if that is empty. UserError if it is a link to anything else that has no mark of the
// run. Not a link, or absent: it may be used.
void require_own_folder(const std::string& folder);

// Whether the mark is all that is in the folder.
bool holds_only_mark(const std::string& folder);

}  // namespace assay
