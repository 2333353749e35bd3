#include <string>
#include <vector>

#include "lab/compare/anchor_log.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"
#include "tests/data/test_data.h"

namespace assay::test_anchor_log {
namespace {

const std::string kNanogpt =
    "s:0 tel:10.968871\ns:0 trl:10.965596\ns:1 trl:10.814037\ns:128 tel:6.034447\n"
    "s:128 trl:6.01\ns:256 tel:5.231128\n";
const std::string kLlmC =
    "s:0 eval:0.2461\ns:0 tel:11.0093\ns:0 trl:11.0082 lr:0.000001 norm:15.2753\n"
    "s:1 trl:10.9 lr:0.000002 norm:14.92\ns:250 tel:6.5\ns:250 eval:0.25\n";

AnchorLog parse(const std::string& text) {
  return parse_anchor_log(text, "some.log");
}

}  // namespace

TEST_CASE("the two formats are distinguished") {
  const AnchorLog nanogpt = parse(kNanogpt);
  REQUIRE(nanogpt.format == AnchorFormat::kModdedNanogpt);
  REQUIRE(nanogpt.val_loss_nats.size() == 3);
  REQUIRE(nanogpt.train_lines == 3);
  REQUIRE(nanogpt.last().step == 256);
  REQUIRE(nanogpt.last().value == 5.231128);
  REQUIRE(nanogpt.warning() == "");

  const AnchorLog llm_c = parse(kLlmC);
  REQUIRE(llm_c.format == AnchorFormat::kLlmC);
  REQUIRE(llm_c.train_lines == 2);
  REQUIRE(llm_c.accuracy_lines == 2);
  REQUIRE(llm_c.at(250)->value == 6.5);

  // Logs with validations only: four decimals mean llm.c.
  REQUIRE(parse("s:0 tel:11.0093\ns:250 tel:6.5000\n").format == AnchorFormat::kLlmC);
  REQUIRE(parse("s:0 tel:10.968871\ns:128 tel:6.034447").format == AnchorFormat::kModdedNanogpt);
}

TEST_CASE("the last, best, first-below and exact losses of a log") {
  const AnchorLog log = parse("s:0 tel:10\r\ns:10 tel:4\r\ns:20 tel:3\r\n\r\ns:30 tel:3.5\r\n");
  REQUIRE(log.last().value == 3.5);
  REQUIRE(log.best().step == 20);
  REQUIRE(log.first_at_or_below(4)->step == 10);
  REQUIRE(log.first_at_or_below(3.999)->step == 20);
  REQUIRE(!log.first_at_or_below(2.9));
  REQUIRE(log.at(20)->value == 3);
  REQUIRE(!log.at(15));
}

TEST_CASE("unknown lines are counted, and the first is shown") {
  const struct {
    const char* line;
    int64_t unknown;
  } rows[] = {
      {"s:128 trl:6.01 lr:0.1 norm:2", 0},
      {"s:128 trl:6.01 lr:0.1", 0},
      {"s:128 trl:nan", 0},
      {"", 0},
      {"s:128 tel:", 1},
      {"s:128 tel:6.0x", 1},
      {"s:128 tel:6.0 more", 1},
      {"s:-1 tel:6.0", 1},
      {"s:1.5 tel:6.0", 1},
      {"s:99999999999999999999 tel:6.0", 1},
      {"tel:6.0 s:128", 1},
      {"s:128 trl:6.01 norm:2", 1},
      {"s:128 trl:6.01 lr:0.1 norm:2 more", 1},
      {"s:128", 1},
      {"step:128/9536 val_loss:6.03", 1},
      {"\xff\xfe\x01", 1},
  };
  for (const auto& row : rows) {
    INFO(row.line);
    const AnchorLog log = parse(kNanogpt + row.line + "\n");
    REQUIRE(log.unknown_lines == row.unknown);
    REQUIRE(log.val_loss_nats.size() == 3);
    if (row.unknown > 0) REQUIRE(log.first_unknown_line == 7);
  }
  REQUIRE(parse(kNanogpt + "hello\n\x01\n").warning() ==
          "2 lines are not understood, the first is line 7: hello");
  REQUIRE(parse("what\n" + kNanogpt).warning() ==
          "1 line is not understood, the first is line 1: what");
  const std::string shown = parse(kNanogpt + std::string(5000, 'x')).first_unknown_text;
  REQUIRE(shown == std::string(60, 'x') + "...");
  REQUIRE(parse(kNanogpt + "\x1b[31m").first_unknown_text == "?[31m");
}

TEST_CASE("files that are not logs are refused") {
  const TempFolder folder;
  const struct {
    std::string text;
    const char* says;
  } rows[] = {
      {"", "some.log is empty"},
      {"\n\n\n", "some.log is empty"},
      {"hello\n", "of 1 lines, 0 are validations; 1 line is not understood, the first is line 1"},
      {"s:0 trl:3.5\n", "of 1 lines, 0 are validations"},
      {"s:0 tel:3\na\nb\n", "2 lines are not understood, the first is line 2: a"},
      {"s:0 tel:3\ns:9 tel:nan\n", "some.log:2: the loss at step 9 is nan"},
      {"s:0 tel:3\ns:9 tel:inf\n", "some.log:2: the loss at step 9 is inf"},
      {"s:0 tel:3\ns:9 tel:2\n\ns:0 tel:3\n", "some.log:4: step 0 comes after step 9"},
      {"s:9 tel:3\ns:9 tel:3\n", "some.log:2: step 9 comes after step 9"},
  };
  for (const auto& row : rows) expect_error([&] { parse(row.text); }, row.says);
  expect_error([&] { read_anchor_log(folder / "absent.log"); }, "absent.log");
  expect_error([&] { read_anchor_log(folder.path()); }, folder.path());
}

TEST_CASE("the public AdamW run of June 2024") {
  const std::string path = test_data("anchor/f66d43d7-e449-4029-8adf-e8537bab49ea.log");
  if (path.empty()) return;
  const AnchorLog log = read_anchor_log(path);
  REQUIRE(log.format == AnchorFormat::kModdedNanogpt);
  REQUIRE(log.sha256 == "541df2a28d04d71321c16866224a6743fd60c0cc76ea6cde4b9c26d108707de0");
  REQUIRE(log.val_loss_nats.size() == 76);
  REQUIRE(log.train_lines == 9536);
  REQUIRE(log.unknown_lines == 0);
  REQUIRE(log.last().step == 9536);
  REQUIRE(log.last().value == 3.275959);
  REQUIRE(log.best().step == 9536);
  const struct {
    double loss;
    int64_t step;
  } first[] = {{4.0, 896},   {3.8, 1408}, {3.7, 1920},  {3.6, 2944}, {3.5, 4864},
               {3.45, 6912}, {3.4, 8064}, {3.35, 8576}, {3.3, 9216}, {3.28, 9472}};
  for (const auto& row : first) REQUIRE(log.first_at_or_below(row.loss)->step == row.step);
  REQUIRE(log.at(4864)->value == 3.495787);
}

}  // namespace assay::test_anchor_log
