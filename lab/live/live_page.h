// The report page that updates itself: the page of lab/page with the script that polls the data.
#pragma once

#include <string>

#include "lab/live/feed.h"

namespace assay {

// While there is no report, a page that only says so, and loads again when there is one.
std::string live_page(const LiveData& data, const std::string& title);

// Its content security policy, as a header: also forbids frames around it.
std::string live_page_policy();

}  // namespace assay
