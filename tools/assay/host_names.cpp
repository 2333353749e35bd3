#include "tools/assay/host_names.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

namespace assay {
namespace {

std::string canonical_name(const std::string& name) {
  addrinfo wanted = {};
  wanted.ai_flags = AI_CANONNAME;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &wanted, &found) != 0) return "";
  const std::string canonical = found->ai_canonname != nullptr ? found->ai_canonname : "";
  freeaddrinfo(found);
  return canonical;
}

}  // namespace

std::vector<std::string> host_names(const std::string& name, const std::string& canonical) {
  const std::string first = name.substr(0, name.find('.'));
  // /etc/hosts may say that this is localhost.localdomain: no name for others, but one of its own.
  if (canonical.starts_with(first + ".")) return {canonical, name, first};
  return canonical.empty() ? std::vector{name, first} : std::vector{name, first, canonical};
}

std::vector<std::string> own_host_names() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return {};
  return host_names(name, canonical_name(name));
}

}  // namespace assay
