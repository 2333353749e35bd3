#include "tools/assay/http_connection.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace assay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kRequestBytes = 1 << 15;
// From when a thread takes the connection:
constexpr seconds kFirstByteTime{1};
constexpr seconds kRequestTime{5};  // until the last byte of the request
// For which an answer may wait for its client: a slow tunnel takes megabytes.
constexpr seconds kAnswerTime{600};
constexpr seconds kWantedAnswerTime{15};  // while others wait for the thread
constexpr seconds kLook{1};               // between two looks whether they do

// Whether the socket is ready for it within the time; it is looked at once in any case.
bool is_ready_for(short what, int socket, milliseconds time) {
  pollfd one = {.fd = socket, .events = what, .revents = 0};
  int ready = 0;
  do {
    ready = poll(&one, 1, int(std::max(time, milliseconds(0)).count()));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

HttpConnection::HttpConnection(int socket, Predicate is_wanted)
    : socket_(socket), is_wanted_(std::move(is_wanted)) {}

HttpConnection::~HttpConnection() {
  shutdown(socket_, SHUT_RDWR);
  close(socket_);
}

bool HttpConnection::fill() {
  const size_t room = std::min(buffer_.size(), kRequestBytes - received_);
  const auto end = begun_ + (received_ == 0 ? kFirstByteTime : kRequestTime);
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  if (room == 0 || !is_ready_for(POLLIN, socket_, left)) return false;
  const ssize_t got = recv(socket_, buffer_.data(), room, MSG_DONTWAIT);
  if (got <= 0) return false;
  next_ = 0;
  held_ = size_t(got);
  received_ += held_;
  return true;
}

ssize_t HttpConnection::read(char* to, size_t size) {
  if (next_ == held_ && !fill()) return -1;
  const size_t some = std::min(size, held_ - next_);
  memcpy(to, buffer_.data() + next_, some);
  next_ += some;
  return ssize_t(some);
}

bool HttpConnection::wait_for_room() {
  while (waited_ < (is_wanted_() ? kWantedAnswerTime : kAnswerTime)) {
    const auto begun = Clock::now();
    const bool ready = is_ready_for(POLLOUT, socket_, kLook);
    waited_ += Clock::now() - begun;
    if (ready) return true;
  }
  return false;
}

ssize_t HttpConnection::write(const char* from, size_t size) {
  size_t sent = 0;
  while (sent < size) {
    if (!wait_for_room()) return -1;
    const ssize_t some = send(socket_, from + sent, size - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (some <= 0) return -1;
    sent += size_t(some);
  }
  return ssize_t(sent);
}

}  // namespace assay
