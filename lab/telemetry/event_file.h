// The event files of TensorBoard, as far as scalars need them.
//
// A file is a sequence of records (TFRecord), each one a protocol buffer `Event`:
//
//   record   uint64 length, uint32 masked CRC of the length, bytes, uint32 masked CRC of the bytes
//   mask     ((crc >> 15) | (crc << 17)) + 0xa282ead8, crc = CRC-32C (Castagnoli)
//   Event    1: double wall_time   2: int64 step   3: string file_version   5: Summary
//   Summary  1: repeated Value     Value  1: string tag   2: float simple_value
//
// All little-endian; the first event has the file_version "brain.Event:2". Sources of the format:
// tensorflow/core/lib/io/record_writer.h, tensorflow/core/lib/hash/crc32c.h,
// tensorboard/compat/proto/event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace assay {

struct TaggedScalar {
  std::string_view tag;
  double value = 0;  // stored as a float, which is what TensorBoard draws
};

class EventFile {
 public:
  // wall_time: seconds since 1970, of the first record.
  EventFile(const std::string& path, double wall_time);
  void add(double wall_time, int64_t step, std::span<const TaggedScalar> scalars);
  void commit() { file_.commit(); }  // without it, there is no file

 private:
  void put_record(const std::string& event);

  AtomicFile file_;
};

uint32_t crc32c(std::string_view bytes);

}  // namespace assay
