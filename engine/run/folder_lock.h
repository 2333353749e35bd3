// One process at a time in a folder: a locked file .lock with its pid. The system lets go of it
// when the process ends, however it ends.
#pragma once

#include <string>

namespace assay {

inline constexpr const char* kFolderLock = ".lock";

class FolderLock {
 public:
  // UserError when another process holds it or the folder cannot be written; `choose` completes the
  // hint "wait for it, stop it, or ...". The folder must exist.
  FolderLock(const std::string& folder, const std::string& choose);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int file_ = -1;
};

// Whether some process holds the lock of the folder now.
bool folder_in_use(const std::string& folder);

}  // namespace assay
