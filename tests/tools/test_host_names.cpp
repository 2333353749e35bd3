// Names by which other machines may call this one, as /etc/hosts and DNS give them.
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tools/assay/host_names.h"

namespace assay {
namespace {

using Names = std::vector<std::string>;

TEST_CASE("the complete name is the first one, and the short one is among them") {
  REQUIRE(host_names("gpu1", "gpu1.lab.example.org") ==
          Names{"gpu1.lab.example.org", "gpu1", "gpu1"});
  REQUIRE(host_names("gpu1.lab", "gpu1.lab") == Names{"gpu1.lab", "gpu1.lab", "gpu1"});
  REQUIRE(host_names("gpu1.lab", "") == Names{"gpu1.lab", "gpu1"});
  REQUIRE(host_names("gpu1", "") == Names{"gpu1", "gpu1"});
}

TEST_CASE("a canonical name of another machine's form is not the one that is shown") {
  REQUIRE(host_names("gpu1", "localhost.localdomain").front() == "gpu1");
  REQUIRE(host_names("gpu1", "gpu12.lab.example.org").front() == "gpu1");
  REQUIRE(host_names("gpu1", "node17.lab.example.org") ==
          Names{"gpu1", "gpu1", "node17.lab.example.org"});
}

}  // namespace
}  // namespace assay
