// Forward pass of one token by one warp, for ops/router.cu: its logits in shared memory, the K
// best, the gates.
#pragma once

#include "ops/gpu/load_batch.h"
#include "ops/router/gpu_room.h"
#include "ops/router/gpu_scores.h"

namespace assay::gpu::router {

// One row of 32-bit words in shared memory, V adjacent experts per vector. Vector v belongs to lane
// v % 32; the vectors of a lane are its group. They are stored rotated, so that 32 lanes read one
// group, or adjacent vectors, without bank conflicts.
template <int V>
struct Row {
  uint32_t* word;
  int experts;  // a multiple of V

  GPU_DEVICE uint32_t* vector(int step, int group) const {
    return word + (step * kWarp + (group + step) % kWarp) * V;
  }
  // Calls f(first expert, vector in shared memory) for each of this lane's vectors.
  template <typename F>
  GPU_DEVICE void for_group(F&& f) const {
#pragma unroll 4
    for (int step = 0; (step * kWarp + lane()) * V < experts; ++step) {
      f((step * kWarp + lane()) * V, vector(step, lane()));
    }
  }
};

// Loads the logits of a token, with `Loads` vectors per lane in flight; returns their softmax if
// logsumexp is requested.
template <int Loads, int V>
GPU_DEVICE Softmax load_logits(const RouterForward& a, int64_t t, const Row<V>& row) {
  const float* logits = a.logits.row(t);
  float largest = -kInfinity;
  const auto use = [&](int e, const Vec<float, V>& z) {
    Vec<uint32_t, V> bits;
    for (int c = 0; c < V; ++c) {
      bits[c] = bits_of(z[c]);
      raise(largest, z[c]);
    }
    store_vec(row.vector(e / (V * kWarp), lane()), bits);
  };
  in_batches<Loads>(
      lane() * V, row.experts, V * kWarp, [&](int e) { return load_vec<V>(logits + e); }, use);
  Softmax softmax;
  if (a.logsumexp.empty()) return softmax;
  softmax.largest = warp_max(largest);
  float sum = 0;
  row.for_group([&](int, const uint32_t* word) {
    const Vec<uint32_t, V> bits = load_vec<V>(word);
    for (int c = 0; c < V; ++c) sum += exp_approx(float_of(bits[c]) - softmax.largest);
  });
  softmax.finish(sum);
  return softmax;
}

// Replaces the row by keys and returns the best of this lane. `score_sum`: this lane's part of the
// sum of the scores.
template <int V>
GPU_DEVICE Candidate make_keys(const RouterForward& a, const Softmax& softmax, const Row<V>& row,
                               float& score_sum) {
  const bool has_bias = !a.bias.empty(), scored = has_bias || !a.score_sum.empty();
  Candidate best;
  row.for_group([&](int e, uint32_t* word) {
    const Vec<uint32_t, V> bits = load_vec<V>(word);
    Vec<float, V> bias{};
    if (has_bias) bias = load_vec<V>(a.bias.data + e);
    Vec<uint32_t, V> key;
    for (int c = 0; c < V; ++c) {
      float value = float_of(bits[c]);
      if (scored) {
        const float s = score_of(a.settings, value, softmax);
        score_sum += s;
        if (has_bias) value = s + bias[c];
      }
      key[c] = order_key(value);
      best.offer(key[c], e + c);
    }
    store_vec(word, key);
  });
  return best;
}

// Selects the K largest keys in descending order. `best`: the best of this lane. Each round takes
// the best of all lanes; then all lanes search for the next best of the group that lost it, one
// vector in 32 each.
template <int V>
GPU_DEVICE void select_best(const Row<V>& row, Candidate best, int k, int32_t* chosen) {
  for (int i = 0; i < k; ++i) {
    const Candidate winner = warp_best(best);
    if (lane() == 0) chosen[i] = winner.expert;
    if (i + 1 == k) return;
    const int group = winner.expert / V % kWarp;
    Candidate next;
    for (int step = lane(); (step * kWarp + group) * V < row.experts; step += kWarp) {
      const int e = (step * kWarp + group) * V;
      uint32_t* word = row.vector(step, group);
      const Vec<uint32_t, V> key = load_vec<V>(word);
      for (int c = 0; c < V; ++c) {
        if (e + c == winner.expert) {
          word[c] = 0;
        } else {
          next.offer(key[c], e + c);
        }
      }
    }
    next = warp_best(next);
    if (lane() == group) best = next;
  }
}

// Writes gates and counts; returns this lane's part of the entropy of the normalised gates.
GPU_DEVICE float write_chosen(const RouterForward& a, int64_t t, const Softmax& softmax,
                              const int32_t* id, int32_t* count, float* ghat) {
  const RouterSettings& s = a.settings;
  const int k = int(a.expert.dim[1]);
  const float* logits = a.logits.row(t);
  const Chosen chosen = chosen_sum(s, logits, id, k);
  float entropy = 0;
  for (int i = lane(); i < k; i += kWarp) {
    const float z = logits[id[i]];
    const float score = chosen.score(s, z), share = score / chosen.sum;
    float gate = share;
    if (s.normalize == NormalizeGates::kNo) {
      gate = score_of(s, z, softmax);
    }
    a.expert.at(t, i) = id[i];
    a.gate.at(t, i) = s.gate_scale * gate;
    atomic_add(count + id[i], 1);
    ghat[i] = share;
    if (share > 0) entropy -= share * std::log(share);
  }
  return entropy;
}

// Replaces the keys of a token by the shares of all experts, expert e in word e.
template <int V>
GPU_DEVICE void write_shares(const RouterForward& a, int64_t t, const Softmax& softmax,
                             float score_sum, uint32_t* word) {
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float* logits = a.logits.row(t);
  const float inverse = is_sigmoid ? 1.0f / score_sum : 1.0f;
  for (int e = lane() * V; e < int(a.logits.dim[1]); e += kWarp * V) {
    const Vec<float, V> z = load_vec<V>(logits + e);
    Vec<uint32_t, V> share;
    for (int c = 0; c < V; ++c) {
      share[c] = bits_of(score_of(a.settings, z[c], softmax) * inverse);
    }
    store_vec(word + e, share);
  }
}

}  // namespace assay::gpu::router
