// One connection to the server of `assay watch`, within bounds that cpp-httplib lacks: the bytes of
// a request, the time in which it arrives, and the time that its answer may wait for the client.
#pragma once

#include <httplib.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>

namespace assay {

// Which of these functions Stream has depends on the version of the library: none says `override`.
class StreamOfAnyVersion : public httplib::Stream {
 public:
  virtual bool is_writable() const { return true; }  // write() waits
  virtual bool wait_writable() const { return true; }
  virtual bool wait_readable() const { return true; }  // as does read()
  virtual time_t duration() const { return 0; }        // nobody asks
};

class HttpConnection : public StreamOfAnyVersion {
 public:
  using Predicate = std::function<bool()>;

  // is_wanted: whether others wait for this thread, so that a slow client must go sooner.
  HttpConnection(int socket, Predicate is_wanted);
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection() override;  // closes the socket

  ssize_t read(char* to, size_t size) override;  // -1: the end, or a request beyond the bounds
  ssize_t write(const char* from, size_t size) override;  // all, or -1
  bool is_readable() const override { return next_ < held_; }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}  // nobody asks
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool fill();
  bool wait_for_room();

  const int socket_;
  const Predicate is_wanted_;
  const Clock::time_point begun_ = Clock::now();
  Clock::duration waited_ = {};  // for the client to take its answer
  std::array<char, 4096> buffer_;
  size_t next_ = 0, held_ = 0;  // in the buffer
  size_t received_ = 0;         // of the request
};

}  // namespace assay
