// Allows one process at a time in a folder: a locked file .lock with its pid. The system releases
// the lock when the process ends, for whatever reason.
#pragma once

#include <string>

namespace assay {

inline constexpr const char* kFolderLock = ".lock";

class FolderLock {
 public:
  // Throws UserError if another process holds the lock or the folder cannot be written; `choose`
  // completes the hint "wait for it, stop it, or ...". The folder must exist.
  FolderLock(const std::string& folder, const std::string& choose);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int file_ = -1;
};

// True if a process holds the folder's lock now.
bool folder_in_use(const std::string& folder);

// Throws FolderLock's UserError if a process holds the lock now. The folder may be absent; nothing
// is made.
void require_unused(const std::string& folder, const std::string& choose);

}  // namespace assay
