// A LiveSite behind a socket, by cpp-httplib. One request per connection: a browser that stays open
// holds no thread. What clients may hold of memory and time is bounded: see http_connection.h.
#pragma once

#include <memory>
#include <string>

#include "lab/live/site.h"

namespace assay {

class HttpServer {
 public:
  // Takes the port; 0 = a free one. UserError if the address or the port cannot be had.
  HttpServer(LiveSite& site, const std::string& address, int port);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // stops serving, and waits for all clients

  int port() const { return port_; }
  void start();  // serves in threads of its own
  // Stops serving. False if clients that take nothing still hold its threads after so many seconds.
  bool stop(double seconds);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  int port_ = 0;
};

// What an address stands for: kEvery = all addresses of the machine (0.0.0.0, ::); names other than
// localhost are kOther.
enum class AddressKind { kLoopback, kPublic, kEvery, kOther };
AddressKind address_kind(const std::string& address);
// "http://127.0.0.1:7117/"
std::string url_of(const std::string& address, int port);

}  // namespace assay
