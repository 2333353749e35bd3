// What `assay watch` answers to an HTTP request, without a socket: the page and its data, for GET
// and HEAD, and nothing else. No path of a request is ever a path of a file.
//
// A page of another site must not read the runs. Browsers keep it from reading answers of another
// origin; a name of its own that it points at this machine ("DNS rebinding") is found by the header
// Host: the site answers only to localhost, to addresses, which are not names, and to the names it
// was given.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lab/live/feed.h"

namespace assay {

enum class Encoding { kPlain, kGzip };

struct SiteRequest {
  std::string method, path, host;
  std::string if_none_match = {};
  Encoding accepts = Encoding::kPlain;
};

struct SiteAnswer {
  int status = 200;
  std::string type;                         // of the content
  std::shared_ptr<const std::string> body;  // never null
  std::vector<std::pair<std::string, std::string>> headers;
};

class LiveSite {
 public:
  // names: host names, beside localhost, by which a browser may call the site.
  LiveSite(LiveFeed& feed, std::string title, std::vector<std::string> names);

  SiteAnswer answer(const SiteRequest& request);

 private:
  struct Packed {
    std::string etag;
    std::shared_ptr<const std::string> plain, gzip;
  };

  bool is_known_host(const std::string& host) const;
  SiteAnswer page(Encoding accepts);
  SiteAnswer data(const SiteRequest& request);
  SiteAnswer packed(Packed& cache, Encoding accepts, const std::string& type);

  LiveFeed& feed_;
  const std::string title_;
  const std::vector<std::string> names_;
  std::mutex mutex_;  // guards the caches
  Packed page_, data_;
};

std::string gzip_bytes(const std::string& bytes);

}  // namespace assay
