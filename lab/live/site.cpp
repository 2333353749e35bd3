#include "lab/live/site.h"

#include <arpa/inet.h>
#include <zlib.h>

#include <algorithm>

#include "base/check.h"
#include "lab/live/live_page.h"

namespace assay {
namespace {

constexpr size_t kSmallBytes = 1400;  // one packet: compressing it gains nothing

bool is_address(const std::string& name) {
  in6_addr address = {};
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') {
    return inet_pton(AF_INET6, name.substr(1, name.size() - 2).c_str(), &address) == 1;
  }
  return inet_pton(AF_INET, name.c_str(), &address) == 1;
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return text;
}

// "localhost:7117" -> "localhost"
std::string without_port(const std::string& host) {
  const size_t colon = host.rfind(':');
  const bool is_port = colon != std::string::npos && colon + 1 < host.size() &&
                       host.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return lower(is_port ? host.substr(0, colon) : host);
}

SiteAnswer text_answer(int status, const std::string& text) {
  return {.status = status,
          .type = "text/plain; charset=utf-8",
          .body = std::make_shared<const std::string>(text + "\n"),
          .headers = {}};
}

void add_safety(SiteAnswer& answer) {
  const auto add = [&](const char* name, const std::string& value) {
    answer.headers.emplace_back(name, value);
  };
  add("Cache-Control", "no-store");
  add("Content-Security-Policy", live_page_policy());
  add("X-Content-Type-Options", "nosniff");
  add("X-Frame-Options", "DENY");
  add("Referrer-Policy", "no-referrer");
  add("Cross-Origin-Resource-Policy", "same-origin");
}

}  // namespace

std::string gzip_bytes(const std::string& bytes) {
  z_stream stream = {};
  constexpr int kGzip = 16, kFast = 1;
  const int ready =
      deflateInit2(&stream, kFast, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY);
  CHECK(ready == Z_OK, "deflateInit2: %d", ready);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  // zlib does not write to next_in, although its type lacks const.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = uInt(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = uInt(packed.size());
  const int done = deflate(&stream, Z_FINISH);
  CHECK(done == Z_STREAM_END, "deflate of %zu bytes: %d", bytes.size(), done);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

LiveSite::LiveSite(LiveFeed& feed, std::string title, std::vector<std::string> names)
    : feed_(feed), title_(std::move(title)), names_(std::move(names)) {}

bool LiveSite::is_known_host(const std::string& host) const {
  const std::string name = without_port(host);
  return name == "localhost" || is_address(name) ||
         std::any_of(names_.begin(), names_.end(),
                     [&](const std::string& known) { return name == lower(known); });
}

SiteAnswer LiveSite::packed(Packed& cache, Encoding accepts, const std::string& type) {
  SiteAnswer answer{.status = 200, .type = type, .body = cache.plain, .headers = {}};
  answer.headers.emplace_back("Vary", "Accept-Encoding");
  if (accepts == Encoding::kPlain || cache.plain->size() < kSmallBytes) return answer;
  if (!cache.gzip) cache.gzip = std::make_shared<const std::string>(gzip_bytes(*cache.plain));
  answer.body = cache.gzip;
  answer.headers.emplace_back("Content-Encoding", "gzip");
  return answer;
}

SiteAnswer LiveSite::page(Encoding accepts) {
  const std::shared_ptr<const LiveData> live = feed_.get();
  const std::lock_guard lock(mutex_);
  if (page_.etag != live->etag) {
    page_ = {.etag = live->etag,
             .plain = std::make_shared<const std::string>(live_page(*live, title_)),
             .gzip = nullptr};
  }
  return packed(page_, accepts, "text/html; charset=utf-8");
}

SiteAnswer LiveSite::data(const SiteRequest& request) {
  const std::shared_ptr<const LiveData> live = feed_.get();
  SiteAnswer answer;
  if (request.if_none_match == live->etag) {
    answer = {
        .status = 304, .type = {}, .body = std::make_shared<const std::string>(), .headers = {}};
  } else {
    const std::lock_guard lock(mutex_);
    if (data_.etag != live->etag) {
      data_ = {.etag = live->etag,
               .plain = std::shared_ptr<const std::string>(live, &live->json),
               .gzip = nullptr};
    }
    answer = packed(data_, request.accepts, "application/json");
  }
  answer.headers.emplace_back("ETag", live->etag);
  return answer;
}

SiteAnswer LiveSite::answer(const SiteRequest& request) {
  SiteAnswer answer;
  const bool known = request.path == "/" || request.path == "/data.json";
  if (!is_known_host(request.host)) {
    answer = text_answer(403, "This page answers at localhost and at addresses, not at the name " +
                                  request.host.substr(0, 100) + ".");
  } else if (!known) {
    answer = text_answer(404, "There is nothing here. The page is at /, its data at /data.json.");
  } else if (request.method != "GET" && request.method != "HEAD") {
    answer = text_answer(405, "Only GET and HEAD.");
    answer.headers.emplace_back("Allow", "GET, HEAD");
  } else {
    answer = request.path == "/" ? page(request.accepts) : data(request);
  }
  add_safety(answer);
  return answer;
}

}  // namespace assay
