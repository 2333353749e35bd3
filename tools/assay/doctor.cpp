#include "tools/assay/doctor.h"

#include <sqlite3.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/build_info.h"
#include "base/check.h"
#include "base/cores.h"
#include "base/cpu_name.h"
#include "base/joined.h"
#include "base/memory_limit.h"
#include "base/memory_units.h"
#include "cuda/device.h"
#include "cuda/gpu_kind_text.h"
#include "cuda/product_library.h"
#include "machine/cpu_energy.h"
#include "machine/gpu_meter.h"
#include "machine/limits.h"
#include "models/decoder/decoder.h"
#include "models/linear/native_products.h"
#include "tools/assay/instruction_facts.h"
#if ASSAY_HAS_CUDA
#include "machine/gpu_timer.h"
#endif

namespace assay {
namespace {

using nlohmann::ordered_json;

ordered_json program_facts() {
  const BuildInfo build = build_info();
  ordered_json j;
  j["version"] = build.version;
  j["commit"] = build.commit;
  j["modified"] = build.dirty;
  j["compiler"] = build.compiler;
  j["flags"] = build.flags;
  return j;
}

ordered_json cpu_facts(std::vector<Advice>& advice) {
  ordered_json j;
  j["model"] = cpu_name();
  j["cores"] = usable_cores();
  add_instruction_sets(instruction_sets(), j, advice);
  j["recipe_of_auto"] = recipe_name(resolve_recipe("auto"));
  if (j["recipe_of_auto"] == "fp32") {
    advice.push_back(
        {"products of bf16 are not faster than fp32 here: precision.recipe auto is fp32",
         "nothing to do: bf16 also works, slower and with less memory"});
  }
  return j;
}

ordered_json memory_facts() {
  const size_t total = machine_memory_bytes(), limit = memory_limit().bytes;
  ordered_json j;
  j["total_gib"] = in_gib(total);
  // Of a container or a batch job.
  if (limit < total) j["limit_gib"] = in_gib(limit);
  j["available_gib"] = in_gib(available_memory_bytes());
  return j;
}

ordered_json cpu_limits(int cores) {
  const Exec on{.threads = cores};
  ordered_json j;
  j["copy_gb_per_s"] = measured_copy_gb_per_s(on);
  j["matmul_fp32_gflop_per_s"] = measured_matmul_limit_gflops(on, LimitType::kFloat);
  j["matmul_bf16_gflop_per_s"] = measured_matmul_limit_gflops(on, LimitType::kBf16);
  return j;
}

std::string cuda_version(int v) {
  return strprintf("%d.%d", v / 1000, v % 1000 / 10);
}

ordered_json image_names() {
  ordered_json names = ordered_json::array();
  for (const std::string& image : gpu::built_images()) names.push_back("sm_" + image);
  return names;
}

// Which recipes have products of a GPU, or why none has. A cuBLASLt is there.
std::string native_products(int capability) {
  const std::string problem = gpu::scaled_products_problem(gpu::product_library());
  if (!problem.empty()) return "none: " + problem;
  const std::string native = joined(native_recipes(capability), "; ");
  return native.empty() ? "none: recipes are simulated in bf16" : native;
}

// Opens the GPU, which may fail, and measures it. Too little free memory for that is no reason not
// to use it.
void measure_gpu(ordered_json& j, std::vector<Advice>& advice) {
#if ASSAY_HAS_CUDA
  const auto device = gpu::open_device();
  try {
    const DeviceTimer timer(*device, kHeatSecondsOfLimits);
    j["copy_tb_per_s"] = copy_limit(*device, timer).p50 * 1e-12;
    j["matmul_bf16_tflop_per_s"] = matmul_limit(*device, timer).p50 * 1e-12;
  } catch (const UserError& error) {
    j["not_measured"] = error.what();
    advice.push_back({std::string("the GPU was not measured: ") + error.what(),
                      "end other programs on it (nvidia-smi), or leave this out with --quick"});
  }
#else
  static_cast<void>(j);
  static_cast<void>(advice);
#endif
}

ordered_json gpu_facts(MachineLimits limits, std::vector<Advice>& advice) {
  ordered_json j;
  j["usable"] = false;
  try {
    const gpu::DeviceFacts facts = gpu::device_facts();
    if (facts.toolkit > 0) j["toolkit"] = cuda_version(facts.toolkit);
    if (facts.driver > 0) j["driver"] = cuda_version(facts.driver);
    if (facts.devices > 0) {
      j["name"] = facts.name;
      j["compute_capability"] = strprintf("%d.%d", facts.capability / 10, facts.capability % 10);
      j["multiprocessors"] = facts.multiprocessors;
      j["memory_gib"] = in_gib(facts.memory_bytes);
      // What the hardware supports; precision.recipe sets what training uses.
      j["has_bf16"] = facts.capability >= 80;
      j["has_fp8"] = facts.capability >= 89;
      j["has_nvfp4"] = facts.capability >= 100;
    }
    if (facts.toolkit > 0) j["images"] = image_names();
    gpu::require_usable(facts);
    j["image"] = "sm_" + gpu::image_for(facts.capability, gpu::built_images());
    const gpu::GpuKind kind = gpu::gpu_kind_by_environment(facts.capability);
    j["kind"] = gpu::kind_text(kind);
    j["native_products"] = native_products(facts.capability);
    for (const gpu::SlowPart& slow : gpu::slow_parts(kind))
      advice.push_back({"slower than this GPU could be: " + slow.what, slow.todo});
    if (limits == MachineLimits::kMeasured) measure_gpu(j, advice);
    j["usable"] = true;
  } catch (const UserError& error) {
    j["problem"] = error.what();
    advice.push_back({std::string("no GPU: ") + error.what(), error.hint()});
  }
  return j;
}

// The counters whose joules a run records.
ordered_json energy_facts(std::vector<Advice>& advice) {
  ordered_json j;
  const CpuEnergy cpu;
  j["cpu"] = cpu.problem().empty() ? cpu.counters() : "not counted";
  if (!cpu.problem().empty()) {
    advice.push_back({"runs do not record the CPU's energy: " + cpu.problem(),
                      "if the files are there, let root make them readable: chmod a+r " +
                          powercap_folder() +
                          "/intel-rapl:*/energy_uj; virtual machines have none"});
  }
  const gpu::DeviceFacts facts = gpu::device_facts();
  if (facts.devices == 0) return j;
  const GpuMeter meter(facts.bus);
  const bool counted = meter.joules().has_value();
  j["gpu"] = counted ? "total of the GPU" : "not counted";
  if (!counted) {
    advice.push_back(
        {"runs do not record the GPU's energy: " +
             (meter.problem().empty() ? std::string("its driver has no total") : meter.problem()),
         "use a GPU of 7.0 or newer that is not divided (MIG), with the driver's "
         "libnvidia-ml.so.1"});
  }
  return j;
}

ordered_json disk_facts(std::vector<Advice>& advice) {
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(".", failed);
  ordered_json j;
  j["folder"] = std::filesystem::current_path(failed).string();
  if (failed) return j;
  j["free_gib"] = in_gib(space.available);
  if (in_gib(space.available) < 1) {
    advice.push_back(
        {strprintf("only %.2f GiB free on the disk of this folder", in_gib(space.available)),
         "a checkpoint takes 12 bytes per parameter (6 with optimizer.state bf16): train on "
         "another disk with --run"});
  }
  return j;
}

std::string value_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return strprintf("%.1f", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const ordered_json& item : value) text += (text.empty() ? "" : " ") + value_text(item);
  return text.empty() ? "none" : text;
}

// The name of a fact for people: "copy_gb_per_s" is "copy, GB/s".
std::string label(const std::string& section, const std::string& name) {
  if (name == "recipe_of_auto") return "recipe \"auto\"";
  if (section == "gpu" && name == "toolkit") return "built with CUDA";
  std::string text = name;
  for (const auto& [end, unit] :
       {std::pair("_tflop_per_s", ", TFLOP/s"), std::pair("_gflop_per_s", ", GFLOP/s"),
        std::pair("_tb_per_s", ", TB/s"), std::pair("_gb_per_s", ", GB/s"),
        std::pair("_gib", ", GiB")}) {
    if (!text.ends_with(end)) continue;
    text.replace(text.size() - std::string(end).size(), std::string::npos, unit);
    break;
  }
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

Examination examine_machine(MachineLimits limits) {
  Examination e;
  e.facts["program"] = program_facts();
  e.facts["cpu"] = cpu_facts(e.advice);
  e.facts["memory"] = memory_facts();
  if (limits == MachineLimits::kMeasured) e.facts["limits"] = cpu_limits(e.facts["cpu"]["cores"]);
  e.facts["gpu"] = gpu_facts(limits, e.advice);
  e.facts["energy"] = energy_facts(e.advice);
  e.facts["libraries"]["sqlite"] = sqlite3_libversion();
  e.facts["libraries"]["zstd"] = ZSTD_versionString();
  e.facts["disk"] = disk_facts(e.advice);
  return e;
}

std::string examination_text(const Examination& examination) {
  std::string text;
  for (const auto& [section, facts] : examination.facts.items()) {
    text += section + "\n";
    for (const auto& [name, value] : facts.items()) {
      text += strprintf("  %-26s %s\n", label(section, name).c_str(), value_text(value).c_str());
    }
  }
  text += "not available on this machine, or slow\n";
  if (examination.advice.empty()) text += "  nothing\n";
  for (const Advice& a : examination.advice) text += "  " + a.what + "\n    -> " + a.todo + "\n";
  return text;
}

}  // namespace assay
