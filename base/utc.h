// Times as files and messages have them: in UTC, to the second.
#pragma once

#include <ctime>
#include <string>

namespace assay {

// "2026-01-31T09:05:00Z"
std::string utc_text(time_t at);
std::string utc_now();

}  // namespace assay
