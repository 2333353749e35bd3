// Whether all ranks were started with the same program, configuration and data.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "session/ranks.h"
#include "session/run_data.h"
#include "session/session.h"
#include "session/training_run.h"

namespace assay {

// Collective. Every rank compares all with the first one; a difference is the same UserError on
// all, which names the rank and both values. What changes no result may differ, as run.threads.
void require_same_run_on_all(Ranks& ranks, const Session& session, const RunData& data,
                             TrainingRunOptions::Start start);

// What a rank has, by what it is called in a message.
using NamedTexts = std::vector<std::pair<std::string, std::string>>;
// The same for any command: `mine`, with equal names on all ranks, and the program.
void require_same_on_all(Ranks& ranks, NamedTexts mine);

}  // namespace assay
