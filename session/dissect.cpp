#include "session/dissect.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/own_folder.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

// K different experts for a position, the same in every pass.
void draw_experts(uint64_t seed, int64_t experts, int64_t top_k, int32_t* to) {
  for (int64_t k = 0; k < top_k;) {
    seed = hash_mix(seed + 0x9e3779b97f4a7c15u);
    const auto e = int32_t(seed % uint64_t(experts));
    if (std::find(to, to + k, e) == to + k) to[k++] = e;
  }
}

class Change final : public MoeProbe {
 public:
  Change(const HeldOut& text, const Intervention& change, const RoutingRecord& record)
      : change_(change),
        record_(record),
        layer_(size_t(change.layer - text.layers().front())),
        removed_(size_t(text.config().model.moe->experts), 0) {
    for (const int32_t e : change.experts) removed_[size_t(e)] = 1;
  }

  void begin(int64_t first_token, View<const int32_t, 1> token) {
    first_token_ = first_token;
    token_ = token;
  }

  Changed routed(int64_t layer, View<int32_t, 2> expert, View<float, 2> gate) override {
    if (layer != change_.layer) return Changed::kNo;
    const int64_t top_k = expert.dim[1];
    if (change_.what == Intervention::What::kUniform) {
      const std::vector<float>& gates = record_.first_gates[layer_];
      double sum = 0;
      for (const float g : gates) sum += double(g);
      for (int64_t t = 0; t < expert.dim[0]; ++t) {
        draw_experts(uint64_t(first_token_ + t) * 64 + uint64_t(layer), int64_t(removed_.size()),
                     top_k, expert.row(t));
        std::fill_n(gate.row(t), top_k, float(sum / double(top_k)));
      }
      return Changed::kYes;
    }
    if (change_.what == Intervention::What::kTokenTable) {
      const RoutingRecord::TokenTable& table = record_.token_tables[layer_];
      for (int64_t t = 0; t < expert.dim[0]; ++t) {
        std::copy_n(table.expert.data() + token_[t] * top_k, top_k, expert.row(t));
        std::copy_n(table.gate.data() + token_[t] * top_k, top_k, gate.row(t));
      }
      return Changed::kYes;
    }
    return Changed::kNo;
  }

  bool wants_outputs(int64_t layer) const override {
    using What = Intervention::What;
    const bool experts = change_.what == What::kExperts && change_.removal != Removal::kNext;
    return layer == change_.layer && (experts || change_.what == What::kRouted);
  }
  Changed computed(int64_t, View<const int32_t, 2> expert, View<const int32_t, 2> slot,
                   View<float, 2> expert_out) override {
    const int64_t width = expert_out.dim[1];
    if (change_.what == Intervention::What::kRouted) {
      std::fill_n(expert_out.data, expert_out.size(), 0.0f);
      return Changed::kYes;
    }
    Changed changed = Changed::kNo;
    for (int64_t i = 0; i < expert.size(); ++i) {
      const int32_t e = expert.data[i];
      if (removed_[size_t(e)] == 0) continue;
      float* const to = expert_out.row(slot.data[i]);
      if (change_.removal == Removal::kMean) {
        std::copy_n(record_.mean_output[layer_].data() + e * width, width, to);
      } else {
        std::fill_n(to, width, 0.0f);
      }
      changed = Changed::kYes;
    }
    return changed;
  }
  bool keeps_shared(int64_t layer) const override {
    return change_.what != Intervention::What::kShared || layer != change_.layer;
  }

 private:
  const Intervention& change_;
  const RoutingRecord& record_;
  const size_t layer_;         // index among the MoE layers
  std::vector<char> removed_;  // (E)
  int64_t first_token_ = 0;
  View<const int32_t, 1> token_;
};

// The selection bias of a layer without some experts, while it lives. Their scores stay in the sum
// that softmax divides by: it cancels in normalised gates only.
class Excluded {
 public:
  Excluded(HeldOut& text, const Intervention& change)
      : text_(text), layer_(change.layer), before_(text.bias(change.layer)) {
    std::vector<float> bias = before_;
    for (const int32_t e : change.experts)
      bias[size_t(e)] = -std::numeric_limits<float>::infinity();
    text.set_bias(layer_, bias);
  }
  Excluded(const Excluded&) = delete;
  Excluded& operator=(const Excluded&) = delete;
  ~Excluded() {
    try {
      text_.set_bias(layer_, before_);
    } catch (const std::exception&) {
      // A GPU that failed: its next use says so.
    }
  }

 private:
  HeldOut& text_;
  const int64_t layer_;
  const std::vector<float> before_;
};

Damage measure(HeldOut& text, const Intervention& change, const RoutingRecord& record) {
  std::optional<Excluded> excluded;
  const bool next = change.what == Intervention::What::kExperts && change.removal == Removal::kNext;
  if (next) excluded.emplace(text, change);
  Change probe(text, change, record);
  std::vector<SequenceNats> nats;
  int64_t tokens = 0;
  for (int i = 0; i < text.micro_batches(); ++i) {
    const Batch batch = text.micro(i);
    probe.begin(tokens, batch.token);
    add_sequences(text, batch, text.evaluate(i, next ? nullptr : &probe), nats);
    tokens += batch.token.dim[0];
  }
  // A table that was made from the first half is measured on the second.
  const size_t from = change.what == Intervention::What::kTokenTable ? nats.size() / 2 : 0;
  return damage_of(std::span(nats).subspan(from), std::span(record.nats).subspan(from));
}

// Results as they come, one JSON object per line; a line that is no result, because a write was cut
// short, is dropped. A file belongs to a checkpoint, a text and a device, which round differently.
class Results {
 public:
  Results(const std::string& folder, const HeldOut& text,
          const std::function<void(const UserError&)>& not_kept)
      : not_kept_(not_kept) {
    const std::string of = text.checkpoint_sha256() + text.text_sha256() + text.device();
    path_ = folder + strprintf("/damage-step-%08ld-", long(text.source().state.step)) +
            sha256_hex(of).substr(0, 12) + ".jsonl";
    keep([&] {
      require_own_folder(folder);
      make_folders(folder);
    });
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) return;
    std::string whole;
    const std::string there = read_regular_file(path_);
    std::istringstream lines(there);
    for (std::string line; std::getline(lines, line) && !lines.eof();) {
      const Json json = json_of<Json>(line);
      try {
        Damage damage{.nats = json.at("nats"), .se = {}, .targets = json.at("targets")};
        if (json.contains("se")) damage.se = json.at("se").get<double>();
        known_[json.at("change")] = damage;
      } catch (const Json::exception&) {
        continue;
      }
      whole += line + "\n";
    }
    if (whole != there) keep([&] { write_file_atomic(path_, whole); });
  }

  const Damage* find(const std::string& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;
  }
  void add(const std::string& key, const Damage& damage) {
    Json json{{"change", key}, {"nats", damage.nats}};
    if (damage.se) json["se"] = *damage.se;
    json["targets"] = damage.targets;
    keep([&] {
      require_no_link(path_);
      std::ofstream file(path_, std::ios::app);
      file << json.dump() << "\n" << std::flush;
      if (file) return;
      throw UserError("cannot write " + path_, "free some space, or give the folder write access");
    });
  }

 private:
  // Writes, until that fails.
  void keep(const std::function<void()>& write) {
    if (failed_) return;
    try {
      write();
    } catch (const UserError& error) {
      failed_ = true;
      not_kept_(error);
    }
  }

  const std::function<void(const UserError&)>& not_kept_;
  bool failed_ = false;
  std::string path_;
  std::map<std::string, Damage> known_;
};

// Of experts that no token chose: exactly none.
Damage no_damage(const Damage& base) {
  return {.nats = 0,
          .se = base.se ? std::optional<double>(0.0) : std::nullopt,
          .targets = base.targets};
}

// Two changes of one name may have other experts: of other text, or of another number of groups.
// Earlier versions made a part of the table by token from the whole text, under its plain name.
std::string key_of(const Intervention& change) {
  if (change.what == Intervention::What::kTokenTable) return change.key() + ", first half alone";
  std::string ids;
  for (const int32_t e : change.experts) ids += std::to_string(e) + ",";
  return change.key() + (ids.empty() ? "" : ", " + sha256_hex(ids).substr(0, 12));
}

}  // namespace

DamageReport measure_damage(HeldOut& text, const DamagePlan& plan, const std::string& folder,
                            const DissectWatch& watch,
                            const std::function<void(const UserError&)>& not_kept) {
  const MoeConfig& moe = *text.config().model.moe;
  const bool means =
      std::find(plan.removals.begin(), plan.removals.end(), Removal::kMean) != plan.removals.end();
  const RoutingRecord record =
      record_routing(text, means ? RecordOutputs::kYes : RecordOutputs::kNo,
                     plan.routers ? RecordTokens::kYes : RecordTokens::kNo);
  DamageReport report{
      .run = text.run(),
      .checkpoint = text.source().folder,
      .text_sha256 = text.text_sha256(),
      .step = text.source().state.step,
      .experts = moe.experts,
      .top_k = moe.top_k,
      .tokens = text.tokens(),
      .base = loss_of(record.nats),
      .loads = record.loads,
      .done = {},
      .damage = {},
      .next_keeps_sum = moe.router.score == RouterScore::kSoftmax && !moe.router.normalize_gates};
  Results results(folder, text, not_kept);
  const std::vector<Intervention> changes =
      interventions(plan, record.loads, moe.top_k, moe.shared > 0);
  for (const Intervention& change : changes) {
    if (!watch(report.done.size(), changes.size())) return report;
    const std::string key = key_of(change);
    const Damage* known = results.find(key);
    const bool none = change.what == Intervention::What::kExperts && change.share == 0;
    const Damage damage = none    ? no_damage(report.base)
                          : known ? *known
                                  : measure(text, change, record);
    if (!none && !known) results.add(key, damage);
    report.done.push_back(change);
    report.damage.push_back(damage);
  }
  watch(changes.size(), changes.size());
  return report;
}

}  // namespace assay
