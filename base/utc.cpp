#include "base/utc.h"

namespace assay {

std::string utc_text(time_t at) {
  tm parts = {};
  gmtime_r(&at, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string utc_now() {
  return utc_text(time(nullptr));
}

}  // namespace assay
