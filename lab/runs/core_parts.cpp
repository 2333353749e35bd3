#include "lab/runs/core_parts.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "data/json_text.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostParts = 1 << 20;
constexpr int64_t kLongestBlock = 1 << 20;
constexpr const char* kWriteAgain = "write it again: assay eval RUN --tasks core --part I/N";

struct PartFile {
  std::string file;
  CorePart part;
  ordered_json json;
};

[[noreturn]] void damaged(const std::string& file, const std::string& what) {
  throw UserError(file + " is damaged: " + what, kWriteAgain);
}

PartFile read_part(const std::string& file) {
  ordered_json json = json_of<ordered_json>(read_regular_file(file));
  if (!json.is_object() || !json.contains("core_part")) {
    throw UserError(file + " is not a part of a CORE evaluation",
                    "assay eval RUN --tasks core --part I/N writes one");
  }
  const ordered_json& part = json["core_part"];
  if (!part.is_string()) damaged(file, "core_part is " + part.dump());
  CorePart share;
  const auto problem = problem_of([&] { share = parse_core_part(part.get<std::string>()); });
  if (problem) damaged(file, problem->what());
  return {file, share, std::move(json)};
}

template <typename V>
V field(const PartFile& part, const ordered_json& json, const char* key) {
  try {
    return json.at(key).get<V>();
  } catch (const ordered_json::exception&) {
    damaged(part.file, std::string("'") + key + "' is missing or of another type");
  }
}

// Fields that are equal in all parts of one evaluation.
constexpr const char* kSame[] = {"step", "max_tokens", "max_rows", "missing", "origin"};

void require_same(const PartFile& first, const PartFile& other) {
  const auto differ = [&](const std::string& what, const ordered_json& a, const ordered_json& b) {
    throw UserError(
        strprintf("%s is not of the same evaluation as %s: %s is %s, not %s", other.file.c_str(),
                  first.file.c_str(), what.c_str(), b.dump().c_str(), a.dump().c_str()),
        "merge parts of one checkpoint, bundle and settings");
  };
  for (const char* key : kSame) {
    const auto a = field<ordered_json>(first, first.json, key);
    const auto b = field<ordered_json>(other, other.json, key);
    if (a == b) continue;
    if (!a.is_object() || !b.is_object()) differ(key, a, b);
    for (const ordered_json* names : {&a, &b}) {
      for (const auto& [name, value] : names->items()) {
        const ordered_json here = a.contains(name) ? a[name] : ordered_json();
        const ordered_json there = b.contains(name) ? b[name] : ordered_json();
        if (here != there) differ(name, here, there);
      }
    }
    differ(key, a, b);
  }
}

// Sorts the parts. UserError if one is missing or given twice.
std::vector<PartFile> complete(std::vector<PartFile> parts) {
  std::sort(parts.begin(), parts.end(),
            [](const PartFile& a, const PartFile& b) { return a.part.index < b.part.index; });
  const int64_t count = parts[0].part.count;
  for (size_t i = 1; i < parts.size(); ++i) {
    const PartFile &a = parts[i - 1], &b = parts[i];
    if (b.part.count != count) {
      throw UserError(strprintf("%s is part %s, %s is part %s", a.file.c_str(),
                                a.json["core_part"].get<std::string>().c_str(), b.file.c_str(),
                                b.json["core_part"].get<std::string>().c_str()),
                      "merge parts I/N of the same N");
    }
    if (b.part.index == a.part.index) {
      throw UserError(strprintf("%s and %s are both part %ld of %ld", a.file.c_str(),
                                b.file.c_str(), long(a.part.index + 1), long(count)),
                      "give each part once");
    }
  }
  if (int64_t(parts.size()) == count) return parts;
  std::string missing;
  size_t at = 0;
  int64_t named = 0;
  for (int64_t i = 0; i < count && named < 10; ++i) {
    if (at < parts.size() && parts[at].part.index == i) {
      ++at;
    } else {
      missing += (named++ == 0 ? "" : ", ") + std::to_string(i + 1);
    }
  }
  const int64_t absent = count - int64_t(parts.size());
  throw UserError(
      strprintf("part%s %s%s of %ld %s missing", absent == 1 ? "" : "s", missing.c_str(),
                absent > named ? ", ..." : "", long(count), absent == 1 ? "is" : "are"),
      "give all parts; assay eval RUN --tasks core --part I/N makes a missing one");
}

CoreKind kind_of(const PartFile& part, const std::string& name) {
  for (const CoreKind kind :
       {CoreKind::kMultipleChoice, CoreKind::kSchema, CoreKind::kLanguageModeling}) {
    if (name == core_kind_name(kind)) return kind;
  }
  damaged(part.file, "'" + name + "' is not a kind of task");
}

// The rows that a part scores together; 1 in parts of recipes whose rows have their own scales, and
// of earlier versions.
int64_t block_of(const PartFile& part) {
  const auto origin = field<ordered_json>(part, part.json, "origin");
  if (!origin.contains("block")) return 1;
  const auto block = field<int64_t>(part, origin, "block");
  if (block < 1 || block > kLongestBlock) damaged(part.file, "block is " + std::to_string(block));
  return block;
}

int64_t rows_of_part(const CorePart& part, int64_t rows) {
  const int64_t round = part.block * part.count;
  return rows / round * part.block +
         std::clamp<int64_t>(rows % round - part.index * part.block, 0, part.block);
}

// One task of one part; merging takes its answers and unscored rows in order.
struct TaskPart {
  const PartFile* from;
  std::string answers;
  std::vector<std::pair<int64_t, std::string>> not_scored;
  size_t taken = 0, skipped = 0;  // of answers, of not_scored
};

TaskPart task_part(const PartFile& part, const ordered_json& task, int64_t rows) {
  TaskPart out{&part, field<std::string>(part, task, "answers"), {}};
  const auto label = field<std::string>(part, task, "label");
  const int64_t want = rows_of_part(part.part, rows);
  if (int64_t(out.answers.size()) != want) {
    damaged(part.file, strprintf("%s has %zu answers, its part of %ld rows has %ld", label.c_str(),
                                 out.answers.size(), long(rows), long(want)));
  }
  for (const ordered_json& one : field<ordered_json>(part, task, "not_scored")) {
    out.not_scored.emplace_back(field<int64_t>(part, one, "line") - 1,
                                field<std::string>(part, one, "why"));
  }
  const auto skipped =
      std::count(out.answers.begin(), out.answers.end(), CoreTaskResult::kNotScored);
  if (size_t(skipped) != out.not_scored.size() ||
      out.answers.find_first_not_of("01-") != std::string::npos) {
    damaged(part.file, "answers of " + label + " do not agree with its unscored rows");
  }
  return out;
}

// Parts of earlier versions have none.
std::optional<int64_t> cut_prompts_of(const PartFile& part, const ordered_json& task) {
  if (!task.contains("cut_prompts")) return std::nullopt;
  return field<int64_t>(part, task, "cut_prompts");
}

// As in a bundle: nothing is above guessing that is always right.
double baseline_of(const PartFile& part, const ordered_json& task) {
  const auto percent = field<double>(part, task, "baseline_percent");
  if (percent >= 0 && percent < 100) return percent;
  damaged(part.file, strprintf("baseline_percent is %g", percent));
}

// As in a bundle: answers and scores are kept by label.
void require_other_labels(const PartFile& part, const std::vector<CoreTaskResult>& tasks,
                          const std::string& label) {
  const auto same = [&](const CoreTaskResult& task) { return task.label == label; };
  if (std::none_of(tasks.begin(), tasks.end(), same)) return;
  damaged(part.file, "two tasks have the label " + label);
}

CoreTaskResult merged_task(const std::vector<PartFile>& parts, size_t index) {
  std::vector<TaskPart> pieces;
  CoreTaskResult result;
  for (const PartFile& part : parts) {
    const auto tasks = field<ordered_json>(part, part.json, "tasks");
    if (!tasks.is_array() || index >= tasks.size())
      damaged(part.file, "it has fewer tasks than the first part");
    const ordered_json& task = tasks[index];
    CoreTaskResult here;
    here.label = field<std::string>(part, task, "label");
    here.kind = kind_of(part, field<std::string>(part, task, "kind"));
    here.shots = field<int64_t>(part, task, "shots");
    here.rows = field<int64_t>(part, task, "rows");
    here.baseline_percent = baseline_of(part, task);
    if (pieces.empty()) result = here;
    if (here.label != result.label || here.kind != result.kind || here.shots != result.shots ||
        here.rows != result.rows || here.baseline_percent != result.baseline_percent) {
      throw UserError(strprintf("%s is not of the same evaluation as %s: its task %s differs",
                                part.file.c_str(), parts[0].file.c_str(), here.label.c_str()),
                      "merge parts of one checkpoint, bundle and settings");
    }
    result.add_cut_prompts(cut_prompts_of(part, task));
    pieces.push_back(task_part(part, task, here.rows));
  }
  for (int64_t i = 0; i < result.rows; ++i) {
    TaskPart& piece = pieces[size_t(i / parts[0].part.block) % pieces.size()];
    const char answer = piece.answers[piece.taken++];
    if (answer == CoreTaskResult::kNotScored) {
      const auto& [line, why] = piece.not_scored[piece.skipped++];
      result.add_not_scored(line, why);
    } else {
      result.add_answer(answer == CoreTaskResult::kRight);
    }
  }
  return result;
}

// 0 if it is no number without a sign.
int64_t digits_value(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end ? value : 0;
}

}  // namespace

CorePart parse_core_part(const std::string& text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const int64_t number = digits_value(std::string_view(text).substr(0, slash));
  const int64_t count =
      digits_value(std::string_view(text).substr(std::min(slash + 1, text.size())));
  if (number < 1 || number > count || count > kMostParts) {
    throw UserError("'" + text + "' is not a part I/N",
                    "I/N with I from 1 to N: 2/4 is the second of four");
  }
  return {.index = number - 1, .count = count};
}

ordered_json core_part_json(const CoreReport& report, const CorePart& part) {
  ordered_json j;
  j["core_part"] = strprintf("%ld/%ld", long(part.index + 1), long(part.count));
  j["checkpoint"] = report.checkpoint;
  j["bundle"] = report.bundle;
  j["step"] = report.step;
  j["max_tokens"] = report.max_tokens;
  j["max_rows"] = report.max_rows;
  j["missing"] = report.missing;
  j["origin"] = report.origin;
  j["tasks"] = ordered_json::array();
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    ordered_json t = core_task_json(report, i);
    t["answers"] = report.tasks[i].answers;
    j["tasks"].push_back(t);
  }
  j["prompts"] = report.work.prompts;
  j["prompt_tokens"] = report.work.prompt_tokens;
  j["rows_computed"] = report.rows_computed;
  return j;
}

CoreReport merge_core_parts(const std::vector<std::string>& files) {
  std::vector<PartFile> parts;
  for (const std::string& file : files) parts.push_back(read_part(file));
  for (const PartFile& part : parts) require_same(parts[0], part);
  parts = complete(std::move(parts));
  for (PartFile& part : parts) part.part.block = block_of(part);
  const PartFile& first = parts[0];
  CoreReport report;
  report.checkpoint = field<std::string>(first, first.json, "checkpoint");
  report.bundle = field<std::string>(first, first.json, "bundle");
  report.step = field<int64_t>(first, first.json, "step");
  report.max_tokens = field<int64_t>(first, first.json, "max_tokens");
  report.max_rows = field<int64_t>(first, first.json, "max_rows");
  report.missing = field<std::vector<std::string>>(first, first.json, "missing");
  report.origin = field<ordered_json>(first, first.json, "origin");
  const auto tasks = field<ordered_json>(first, first.json, "tasks");
  if (!tasks.is_array() || tasks.empty()) damaged(first.file, "it has no tasks");
  for (size_t i = 0; i < tasks.size(); ++i) {
    CoreTaskResult merged = merged_task(parts, i);
    require_other_labels(first, report.tasks, merged.label);
    report.tasks.push_back(std::move(merged));
    const auto rows = report.origin.find("rows of " + report.tasks.back().label);
    if (rows != report.origin.end() && rows->is_string()) {
      report.rows_sha256.push_back(rows->get<std::string>());
    }
    double seconds = 0;
    for (const PartFile& part : parts)
      seconds += field<double>(part, part.json["tasks"][i], "seconds");
    report.seconds.push_back(seconds);
  }
  if (report.rows_sha256.size() < report.tasks.size()) report.rows_sha256.clear();
  for (const PartFile& part : parts) {
    report.work.prompts += field<int64_t>(part, part.json, "prompts");
    report.work.prompt_tokens += field<int64_t>(part, part.json, "prompt_tokens");
    report.rows_computed += field<int64_t>(part, part.json, "rows_computed");
  }
  return report;
}

}  // namespace assay
