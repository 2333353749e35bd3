// Files that keep the algorithms of a GPU's dense products (cuda/product_choice.h): what `assay
// tune` writes, and the record in the folder of a run.
//
//   FILE of assay tune     the fastest of the library's proposals for each product of a model
//   RUN/tune.json          the file that the run was given, byte for byte
//   RUN/products.json      what the products of its steps took, by device; also without a tune file
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cuda/product_choice.h"
#include "session/session_device.h"

namespace assay {

// What an algorithm belongs to: its numbers mean nothing to another library.
struct ProductsDevice {
  std::string gpu;
  int capability = 0;    // 90 is 9.0
  int64_t cublaslt = 0;  // 130100 is 13.1.0
  int driver = 0;        // recorded; choices are not tied to it
  bool same(const ProductsDevice& other) const;
  std::string text() const;          // "NVIDIA H200 (9.0), cuBLASLt 13.1.0"
  std::string library_text() const;  // "cuBLASLt 13.1.0"
};
// Nothing for a CPU, and for a GPU whose products have one way only (the SIMT emulator).
std::optional<ProductsDevice> products_device(const SessionDevice& device);

struct KeptProduct {
  gpu::ProductKey key;
  gpu::ProductChoice choice;
  int64_t workspace_bytes = 0;  // that the algorithm needs
  // Measured, in tune files only.
  struct Timing {
    int64_t calls = 0;            // of a usual micro-batch; 0: elsewhere
    int64_t proposals = 0;        // that were timed beside the first itself
    double us = 0;                // median
    gpu::ProductAlgorithm first;  // what the library proposes first, in the usual workspace
    double first_us = 0;
  };
  std::optional<Timing> timing = {};
};

struct TuneFile {
  ProductsDevice device;
  int64_t workspace_bytes = 0;  // that a run with this file plans
  std::string date, commit, model;
  int64_t rounds = 0;
  int64_t left_out = 0;  // products whose first proposal is the fastest, but cannot be made anew
  std::vector<KeptProduct> products;

  // Of the products of a micro-batch, in microseconds: by the first proposals, and by the chosen.
  double first_us() const;
  double chosen_us() const;
};
nlohmann::ordered_json tune_json(const TuneFile& file);

// A tune file as it was read.
struct Tuning {
  std::string path, bytes, sha256;
  TuneFile file;
};
// UserError if it cannot be read or is damaged.
Tuning read_tuning(const std::string& path);

// The products of a run on one device.
struct ProductsRecord {
  ProductsDevice device;
  std::string tune_sha256;  // of the file that it was given; "" without
  std::vector<KeptProduct> products;
};
// Of RUN/products.json, the latest device last; none if there is no such file. UserError if it is
// damaged.
std::vector<ProductsRecord> read_products(const std::string& path);
nlohmann::ordered_json products_json(const std::vector<ProductsRecord>& records);

}  // namespace assay
