// assay tune: arguments and output; session/tune.h measures.
#include "session/tune.h"

#include <cctype>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/build_info.h"
#include "base/check.h"
#include "base/file.h"
#include "base/utc.h"
#include "cuda/device.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/interrupt.h"
#include "engine/run/progress.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"
#include "tools/assay/training_plan.h"

namespace assay {
namespace {

struct TuneArguments {
  std::string config, out;
  std::vector<std::string> sets;
  std::string device = "cuda";
  int64_t workspace_mib = 128, proposals = 16, rounds = 9;
  double heat_s = 0.3;
  bool json = false, quiet = false;
};

// "tune-moe-64-nvidia-h200.json"
std::string default_file(const TuneArguments& a, const Session& session) {
  std::string name = "tune-" + std::filesystem::path(a.config).stem().string() + "-";
  for (const char c : session.device.gpu ? session.device.gpu->facts().name : "cpu") {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (plain) name += char(std::tolower(static_cast<unsigned char>(c)));
    if (!plain && name.back() != '-') name += '-';
  }
  return name + ".json";
}

void print_progress(const TuneProgress& p) {
  std::string what = "the first proposal stays";
  if (p.kept) {
    const KeptProduct::Timing& t = *p.kept->timing;
    what = strprintf("%.1f us, first proposal %.1f us, %ld timed", t.us, t.first_us,
                     long(t.proposals));
  }
  std::fprintf(stderr, "%zu/%zu %s: %s, eta %s\n", p.done, p.products, text_of(p.key).c_str(),
               what.c_str(), duration_text(p.seconds_left).c_str());
}

int64_t changed(const TuneFile& file) {
  int64_t n = 0;
  for (const KeptProduct& p : file.products) n += p.choice.algorithm != p.timing->first;
  return n;
}

void print_result(const TuneArguments& a, const TuneFile& file, const std::string& path,
                  const std::string& bytes) {
  if (a.json) {
    nlohmann::ordered_json json;
    json["file"] = path;
    json["sha256"] = sha256_hex(bytes);
    json["gpu"] = file.device.gpu;
    json["cublaslt"] = file.device.cublaslt;
    json["products"] = file.products.size();
    json["changed"] = changed(file);
    json["left_out"] = file.left_out;
    json["micro_batch_first_us"] = file.first_us();
    json["micro_batch_us"] = file.chosen_us();
    json["workspace_bytes"] = file.workspace_bytes;
    return print_json(json);
  }
  for (const KeptProduct& p : file.products) {
    const KeptProduct::Timing& t = *p.timing;
    std::cout << strprintf("%4ld x %-46s %9.1f us  %+6.1f%%  %s\n", long(t.calls),
                           text_of(p.key).c_str(), t.us, 100 * (t.us / t.first_us - 1),
                           text_of(p.choice.algorithm).c_str());
  }
  std::cout << "wrote " << path << "; a run takes it with assay train " << a.config << " --tune "
            << path << '\n';
  std::cout << strprintf(
      "dense products of a micro-batch: %.3f ms, by the first proposals %.3f ms (%+.1f%%); %ld of "
      "%zu take another algorithm\n",
      1e-3 * file.chosen_us(), 1e-3 * file.first_us(),
      100 * (file.chosen_us() / file.first_us() - 1), long(changed(file)), file.products.size());
}

// The GPU that other commands use. Their hint says what to do about it, or to use a CPU.
void require_gpu() {
  try {
    gpu::require_usable(gpu::device_facts());
  } catch (const UserError& error) {
    throw UserError(error.what(),
                    "assay tune times the products of a GPU, and runs on a CPU need no file of it; "
                    "the hint of assay train: " +
                        error.hint());
  }
}

int run_tune(const TuneArguments& a) {
  const Config config = load_run_config(a.config, a.sets);
  require_gpu();
  const Session session(config, {.device = a.device});
  const std::string path = a.out.empty() ? default_file(a, session) : a.out;
  AtomicFile out(path);  // now: what cannot be written is said before minutes of measuring
  const Interrupt interrupt(Interrupt::Say::kNothing);
  TuneWatch watch{.on_product = {}, .stop_requested = [&] { return interrupt.requested(); }};
  if (!a.quiet) watch.on_product = print_progress;
  std::optional<TuneFile> file = tune(session,
                                      {.workspace_bytes = a.workspace_mib << 20,
                                       .proposals = int(a.proposals),
                                       .rounds = int(a.rounds),
                                       .heat_s = a.heat_s},
                                      watch);
  if (!file) {
    std::fprintf(stderr, "stopped; nothing was written to %s\n", path.c_str());
    return kExitInterrupted;
  }
  file->date = utc_now().substr(0, 10);  // the day
  file->commit = build_info().commit;
  file->model = std::filesystem::path(a.config).stem();
  const std::string bytes = json_text(tune_json(*file), 1) + "\n";
  out.write(bytes.data(), bytes.size());
  out.commit();
  print_result(a, *file, path, bytes);
  return kExitDone;
}

}  // namespace

void add_tune_command(Commands& commands) {
  auto a = std::make_shared<TuneArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "tune", "time the algorithms of a GPU's dense products, and keep the fastest in a file");
  sub->add_option("CONFIG", a->config, "configuration file")->required();
  add_set_option(sub, a->sets);
  sub->add_option("-o,--out", a->out, "the file to write (default: tune-<CONFIG>-<GPU>.json)");
  sub->add_option("--device", a->device, "cuda (default)")->check(CLI::IsMember({"cuda"}));
  sub->add_option("--workspace", a->workspace_mib,
                  "MiB of workspace that products may use; a run with the file plans as much "
                  "(default: 128; without a file a run has at least 32: assay train --plan)")
      ->check(whole_between(int64_t{32}, int64_t{16384}));
  sub->add_option("--proposals", a->proposals, "algorithms to time for each product (default: 16)")
      ->check(whole_between(int64_t{1}, int64_t{256}));
  sub->add_option(
         "--rounds", a->rounds,
         "rounds in which all of them run in turn; their medians are compared (default: 9)")
      ->check(whole_between(int64_t{1}, int64_t{10000}));
  sub->add_option("--heat", a->heat_s, "seconds of work before each product (default: 0.3)")
      ->check(number_between(0.0, 600.0));
  sub->add_flag("-q,--quiet", a->quiet, "no line for each product while it runs");
  sub->add_flag("--json", a->json, "print one JSON object on stdout at the end");
  sub->footer(
      "cuBLASLt has several algorithms for a product. They add in different orders, so the choice "
      "decides the last bits of a result. A run without a file takes the first that the library "
      "proposes. This command runs two micro-batches of CONFIG, times up to 16 proposals for each "
      "of its products, and writes the fastest: the run itself measures nothing, so that it can be "
      "repeated to the bit. All proposals add partial sums in float and round once.\n"
      "Examples:\n"
      "  assay tune models/presets/speedrun/moe-64.yaml -o moe-64-h200.json\n"
      "  assay train models/presets/speedrun/moe-64.yaml --tune moe-64-h200.json\n"
      "  bench_step --config models/presets/speedrun/moe-64.yaml --device cuda --tune "
      "moe-64-h200.json\n"
      "The file is of one GPU and one version of cuBLASLt; elsewhere it is refused (docs/gpu.md). "
      "Ctrl-C leaves an existing file as it is (exit 130).");
  commands.on_chosen(sub, [a] { return run_tune(*a); });
}

}  // namespace assay
