// What the reader of telemetry says of a folder that `assay dissect used --export` wrote.
#include "base/check.h"
#include "base/file.h"
#include "engine/telemetry/reader.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"

namespace assay::test_exported {

TEST_CASE("an export of dissect used is named as such, with the run that it was made from") {
  const TempFolder folder;
  const std::string run = folder / "export";
  make_folders(run + "/checkpoints/step-00000010");
  const auto said = [&](const std::string& command) {
    write_file_atomic(run + "/meta.json", "{\"command\": [\"assay\", " + command + "]}");
    try {
      TelemetryReader reader(run + "/telemetry.db");
    } catch (const UserError& error) {
      return std::string(error.what()) + "; " + error.hint();
    }
    return std::string();
  };
  const std::string is_one = run + " is an export of `assay dissect used`: it has no telemetry; ";
  const std::string from = "give the run that it was made from";
  for (const char* of : {R"("runs/a")", R"("runs/a/checkpoints/step-00000010")",
                         R"("runs/a/checkpoints/step-00000010/")"}) {
    REQUIRE(said(R"("dissect", "used", )" + std::string(of) + R"(, "--export", "b")") ==
            is_one + from + ": runs/a");
  }
  REQUIRE(said(R"("dissect", "used", "--export=b", "runs/a")") == is_one + from);
  for (const char* other : {R"("train", "c.yaml", "--run", "b")", R"("dissect", "used", "runs/a")",
                            R"("dissect", "used", 5)", R"([])"}) {
    CAPTURE(other);
    REQUIRE(said(other).find("though the run has trained") != std::string::npos);
  }
}

}  // namespace assay::test_exported
