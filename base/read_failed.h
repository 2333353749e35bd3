// A file or a folder that is there and cannot be read: a failing disk, no permission, too many open
// files. Who goes on without what is absent or damaged passes this error on: it may be gone when
// the same command is given again, and the result would be another.
#pragma once

#include "base/check.h"

namespace assay {

class ReadFailed : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace assay
