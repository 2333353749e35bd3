// Adds the gradients of all ranks, and hands the stepped parameters around.
//
// A rank's gradients are those of its parts, added (engine/part_sums.h): a node of the tree over
// all parts. Each rank sends every other one what that one owns (engine/shards.h), bucket after
// bucket, and adds what it received in the rest of the tree. So the sum has the bits of one rank
// that computes all parts. Nothing is averaged: losses are divided by the targets of the whole
// batch before backward.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"
#include "cuda/memory_plan.h"
#include "engine/model.h"
#include "engine/shards.h"

namespace assay {

class RankSums {
 public:
  // ranks: those of the shards; may be null as long as memory is only planned.
  RankSums(const Shards& shards, int rank, Group* ranks)
      : shards_(shards), rank_(size_t(rank)), ranks_(ranks) {}

  // After Model::plan(), with its parameters. name: of the memory in the plan.
  void plan(MemoryPlan& plan, const std::vector<ParameterRef>& parameters,
            const std::string& name = "ranks");
  // After MemoryPlan::allocate() and Model::bind().
  void bind(const std::vector<ParameterRef>& parameters);

  // Collective. Afterwards the gradients of what this rank owns are those of the step; the others
  // are still those of its own parts.
  void add_gradients(Exec on) const;
  // Collective: the masters of everything, from their owners. Working copies are not touched.
  void gather_masters(Exec on) const;

 private:
  const Shards& shards_;
  const size_t rank_;
  Group* ranks_;
  View<float, 1> received_;  // (ranks * owned)   of the largest bucket
  // Of each bucket, what every rank owns, as bytes of two blocks with one layout on all ranks.
  struct Runs {
    std::vector<Group::Run> gradients, masters;
  };
  std::vector<Runs> runs_;
  std::byte *gradients_ = nullptr, *masters_ = nullptr;
};

}  // namespace assay
