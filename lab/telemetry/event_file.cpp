#include "lab/telemetry/event_file.h"

#include <array>
#include <cstring>

namespace assay {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = crc;
  }
  return table;
}

uint32_t masked(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Number>
void put_bytes(Number number, std::string& to) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof number);
}

void put_varint(uint64_t value, std::string& to) {
  for (; value >= 128; value >>= 7) to += static_cast<char>((value & 127) | 128);
  to += static_cast<char>(value);
}

// Protocol buffers: the key of a field is its number and the type of what follows.
enum WireType : uint64_t { kVarint = 0, kFixed64 = 1, kLengthAndBytes = 2, kFixed32 = 5 };

void put_key(uint64_t field, WireType type, std::string& to) {
  put_varint(field << 3 | type, to);
}

void put_text(uint64_t field, std::string_view text, std::string& to) {
  put_key(field, kLengthAndBytes, to);
  put_varint(text.size(), to);
  to += text;
}

std::string event_at(double wall_time, int64_t step) {
  std::string event;
  put_key(1, kFixed64, event);
  put_bytes(wall_time, event);
  put_key(2, kVarint, event);
  put_varint(static_cast<uint64_t>(step), event);
  return event;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 255];
  return ~crc;
}

EventFile::EventFile(const std::string& path, double wall_time) : file_(path) {
  std::string event = event_at(wall_time, 0);
  put_text(3, "brain.Event:2", event);
  put_record(event);
}

void EventFile::add(double wall_time, int64_t step, std::span<const TaggedScalar> scalars) {
  if (scalars.empty()) return;
  std::string summary, value;
  for (const TaggedScalar& scalar : scalars) {
    value.clear();
    put_text(1, scalar.tag, value);
    put_key(2, kFixed32, value);
    put_bytes(static_cast<float>(scalar.value), value);
    put_text(1, value, summary);
  }
  std::string event = event_at(wall_time, step);
  put_text(5, summary, event);
  put_record(event);
}

void EventFile::put_record(const std::string& event) {
  std::string record;
  put_bytes(static_cast<uint64_t>(event.size()), record);
  put_bytes(masked(crc32c(record)), record);
  record += event;
  put_bytes(masked(crc32c(event)), record);
  file_.write(record.data(), record.size());
}

}  // namespace assay
