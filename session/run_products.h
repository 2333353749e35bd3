// The algorithms of the dense products of a run on a GPU: where they come from, and the record in
// the run's folder (session/product_files.h). A run keeps its choices: it goes on with those that
// it has begun with, and is evaluated with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/product_files.h"
#include "session/session.h"

namespace assay {

// Takes the choices of a tune file. UserError where products are not the GPU's, or if the file is
// of another GPU or library. Before memory is planned: the file sets the size of the workspace.
void use_tuning(Session& session, Tuning tuning);

// The choices of a run that begins in `folder` with the tune file `given` ("" is none), or goes on
// there. Warnings go to session.warnings. UserError as use_tuning(), and where a run that goes on
// is given another file than it began with.
void use_products_for_training(Session& session, const std::string& folder,
                               const std::string& given, bool goes_on);

// The choices of the run in `folder`, to evaluate it, as far as they are of this GPU and library.
void use_products_of_run(Session& session, const std::string& folder);

// Writes RUN/tune.json and RUN/products.json. Of the first rank.
class RunProducts {
 public:
  // Keeps the file that the session was given. Null session.device.gpu: writes nothing.
  RunProducts(const Session& session, const std::string& folder);
  // Writes the record if products have been called for the first time. Cheap otherwise.
  void update();

  std::string library() const;  // "cuBLASLt 13.1.0"; "" without one
  std::string summary() const;  // a line for the log; "" without a library

 private:
  const Session& session_;
  const std::string path_;
  std::optional<ProductsDevice> device_;
  std::vector<ProductsRecord> records_;  // of this device last
  size_t written_ = 0;                   // of the choices' used()
};

}  // namespace assay
