#include "tools/assay/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <httplib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "base/check.h"
#include "tools/assay/http_connection.h"

namespace assay {
namespace {

constexpr int kSendBuffer = 1 << 14;  // bytes of an answer that wait in the kernel for the client
constexpr size_t kPiece = 1 << 16;    // bytes of a body between two looks whether the server stops
constexpr int kThreads = 8;
constexpr int kConnections = 64;  // at a time, served or waiting for a thread

// Not SO_REUSEPORT, the library's default: two servers would share a port without an error.
void set_socket_options(int socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
}

Encoding accepted(const httplib::Request& request) {
  const bool gzip = request.get_header_value("Accept-Encoding").find("gzip") != std::string::npos;
  return gzip ? Encoding::kGzip : Encoding::kPlain;
}

// The library compresses bodies itself, with Brotli at its slowest; content providers it leaves
// alone.
void answer_with(const SiteAnswer& answer, httplib::Response& response) {
  response.status = answer.status;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  if (answer.body->empty()) return;
  response.set_content_provider(
      answer.body->size(), answer.type,
      [body = answer.body](size_t offset, size_t length, httplib::DataSink& sink) {
        return sink.write(body->data() + offset, std::min(length, kPiece));
      });
}

}  // namespace

AddressKind address_kind(const std::string& address) {
  if (address == "localhost") return AddressKind::kLoopback;
  in_addr v4 = {};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    if (v4.s_addr == htonl(INADDR_ANY)) return AddressKind::kEvery;
    return (ntohl(v4.s_addr) >> 24) == 127 ? AddressKind::kLoopback : AddressKind::kPublic;
  }
  in6_addr v6 = {};
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return AddressKind::kOther;
  if (IN6_IS_ADDR_UNSPECIFIED(&v6)) return AddressKind::kEvery;
  return IN6_IS_ADDR_LOOPBACK(&v6) ? AddressKind::kLoopback : AddressKind::kPublic;
}

std::string url_of(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port) + "/";
}

// The library's server, with bounds of its own: how many connections there are, and those of
// HttpConnection for each.
class BoundedServer : public httplib::Server {
 public:
  BoundedServer() {
    new_task_queue = [this] { return queue_ = new Queue; };  // which the library deletes
  }

 private:
  // A task calls process_and_close_socket(), which only hands the socket to a thread.
  struct Queue : public httplib::TaskQueue {
    using Taken = decltype(std::declval<httplib::TaskQueue&>().enqueue({}));  // void, later bool
    Taken enqueue(std::function<void()> task) override {
      task();
      return Taken(true);
    }
    void shutdown() override { threads.shutdown(); }

    httplib::ThreadPool threads{kThreads};
  };

  bool process_and_close_socket(socket_t socket) override {
    if (open_ >= kConnections) {
      close(socket);
      return false;
    }
    ++open_;
    queue_->threads.enqueue([this, socket] {
      serve(socket);
      --open_;
    });
    return true;
  }

  void serve(socket_t socket) {
    HttpConnection connection(socket, [this] { return open_ > kThreads; });
    answer_one(connection);
  }

  // A template, so that only the call is compiled that the version of the library knows.
  template <typename Connection>
  void answer_one(Connection& connection) {
    bool closed = false;
    if constexpr (requires { this->process_request(connection, true, closed, nullptr); }) {
      this->process_request(connection, true, closed, nullptr);
    } else {  // from 0.18 on with both addresses, which nobody asks for
      this->process_request(connection, "", 0, "", 0, true, closed, nullptr);
    }
  }

  Queue* queue_ = nullptr;
  std::atomic<int> open_ = 0;
};

struct HttpServer::Parts {
  BoundedServer server;
  std::thread thread;
  std::promise<void> ended;
};

HttpServer::HttpServer(LiveSite& site, const std::string& address, int port)
    : parts_(std::make_unique<Parts>()) {
  httplib::Server& server = parts_->server;
  server.set_socket_options(set_socket_options);
  server.set_payload_max_length(0);
  // Every request ends here, before the library reads a body or looks for a route.
  server.set_pre_routing_handler(
      [&site](const httplib::Request& request, httplib::Response& response) {
        // The library would cut every answer to a range, under the status and tag of the whole.
        const_cast<httplib::Request&>(request).ranges.clear();
        answer_with(site.answer({.method = request.method,
                                 .path = request.path,
                                 .host = request.get_header_value("Host"),
                                 .if_none_match = request.get_header_value("If-None-Match"),
                                 .accepts = accepted(request)}),
                    response);
        return httplib::Server::HandlerResponse::Handled;
      });
  errno = 0;
  port_ = port == 0                            ? server.bind_to_any_port(address)
          : server.bind_to_port(address, port) ? port
                                               : -1;
  if (port_ > 0) return;
  const int why = errno;
  const std::string where = url_of(address, port);
  if (why == EADDRINUSE) {
    throw UserError(strprintf("port %d of %s is in use", port, address.c_str()),
                    "choose another --port, or --port 0 for a free one");
  }
  throw UserError(
      "cannot serve at " + where + ": " + (why != 0 ? strerror(why) : "no such address"),
      why == EACCES ? "ports below 1024 need root: choose another --port"
                    : "give an address of this machine, or leave --address out");
}

void HttpServer::start() {
  parts_->thread = std::thread([this] {
    parts_->server.listen_after_bind();
    parts_->ended.set_value();
  });
  while (!parts_->server.is_running()) {  // before that, stop() would have no effect
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

bool HttpServer::stop(double seconds) {
  parts_->server.stop();
  const auto ended = parts_->ended.get_future();
  return ended.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

HttpServer::~HttpServer() {
  if (!parts_->thread.joinable()) return;
  parts_->server.stop();
  parts_->thread.join();
}

}  // namespace assay
