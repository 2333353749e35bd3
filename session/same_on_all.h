// Whether all ranks were started with the same program, configuration and data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/cpu_bits.h"
#include "session/ranks.h"
#include "session/resolve_run.h"
#include "session/run_data.h"
#include "session/run_evaluators.h"
#include "session/session.h"

namespace assay {

// Collective. Every rank compares all with the first one; a difference is the same UserError on
// all, which names the rank and both values. What changes no result may differ, as run.threads.
void require_same_run_on_all(Ranks& ranks, const Session& session, const RunData& data,
                             const RunEvaluators& evaluators, TrainingRunOptions::Start start);

// What a rank has, by what it is called in a message.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
// The same for any command: `mine` and the program. The names are equal on all ranks up to the
// first text that differs.
void require_same_on_all(Ranks& ranks, NamedTexts mine);

// SessionDevice::name() with what decides the bits of a CPU, whatever it is called: "cpu with AMX",
// in recipe fp32 "cpu with AVX-512". The recipe is resolved.
std::string device_with_instructions(const std::string& device, const Config& config, CpuWork work);

// The files of a bundle (core_bundle_hashes()) for require_same_on_all().
NamedTexts named_bundle(const std::vector<std::pair<std::string, std::string>>& hashes);

}  // namespace assay
