// The names by which other machines know this one.
#pragma once

#include <string>
#include <vector>

namespace assay {

// The most complete one first, then its first part; empty if the machine has no name. May ask DNS.
std::vector<std::string> own_host_names();

// The same, of the name of the machine and its canonical one in DNS or /etc/hosts ("": none).
std::vector<std::string> host_names(const std::string& name, const std::string& canonical);

}  // namespace assay
