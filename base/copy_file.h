// std::filesystem::copy_file(), begun again where a signal interrupts it (EINTR): that is no error.
#pragma once

#include <filesystem>
#include <system_error>

namespace assay {

// Throws filesystem_error, also if `to` exists.
inline void copy_whole_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  namespace fs = std::filesystem;
  auto options = fs::copy_options::none;
  for (std::error_code error; !fs::copy_file(from, to, options, error);) {
    if (error != std::errc::interrupted) throw fs::filesystem_error("cannot copy", from, to, error);
    options = fs::copy_options::overwrite_existing;  // a part of it may be there
  }
}

}  // namespace assay
