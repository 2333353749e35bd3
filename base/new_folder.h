// A folder that appears under its name only when it is complete.
//
//   NewFolder folder("runs/imported");  // makes runs/imported.part, locked against a second writer
//   ...                                 // write into folder.part()
//   folder.commit();                    // renames it
//
// Without commit() what was written is removed. What a killed process left is removed by the next
// one, so that its command can be given again.
#pragma once

#include <string>

namespace assay {

// Removes the lock of a NewFolder of this name that was killed after it was complete. Whoever finds
// the complete folder, and so makes no NewFolder, calls it.
void remove_left_lock(const std::string& path);

// UserError with this hint if there is a file or a link of that name, or a folder that is not
// empty.
void require_new_folder(const std::string& path, const std::string& hint);

class NewFolder {
 public:
  enum class WhenHeld { kRefuse, kWait };

  explicit NewFolder(const std::string& path, WhenHeld when_held = WhenHeld::kRefuse);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // The name under which the folder is written. What is there after a kill is not complete.
  static std::string part_of(const std::string& path);

  // An empty folder of that name is replaced.
  void commit();

  const std::string& path() const { return path_; }
  const std::string& part() const { return part_; }

 private:
  std::string path_;  // without a slash at its end
  std::string part_;
  std::string lock_;  // beside it: what is in the folder must not hold the lock of its name
  int file_ = -1;
};

}  // namespace assay
