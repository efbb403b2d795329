// Attention of some rows, queries of one KV head, over the block pool, in float32.
//
// A block's keys lie dim by dim, the block's tokens side by side, so that a vector holds one dim of
// several keys and no score is summed across a vector; its values lie token by token. A tile is a few
// rows that share what is read. Every sum runs over dims or positions in order, and a position that
// a row does not see adds exactly nothing: what a row gets is the same to the bit whatever rows are
// beside it, in one prompt, in parts of it, or token by token.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "product.h"

namespace attention {

#ifdef __AVX512F__
constexpr int64_t kLanes = 16;
constexpr int kMostRows = 12;  // of a tile
constexpr int kSums = 24;      // of 32 registers
#else
constexpr int64_t kLanes = 8;
constexpr int kMostRows = 6;
constexpr int kSums = 12;  // of 16
#endif

typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

// Vectors beside each other in a tile of so many rows: few sums each wait for the one before.
constexpr int vectors_of(int rows) { return 4 * rows <= kSums ? 4 : 2 * rows <= kSums ? 2 : 1; }

// One sequence's part of a forward; window and softcap: 0 for none.
struct Sequence {
  int64_t num_queries, start, window;  // `start`: position of the first query
  int64_t group_size;                  // query heads that share a KV head
  int64_t block_size;
  const int64_t* blocks;
  float scale, softcap;
};

// One KV head's: [blocks, key_dim, block_size] and [blocks, block_size, value_dim].
struct Pool {
  const float *keys, *values;
  int64_t key_dim, value_dim;
};

// Values of some positions, one behind the other, and their weights in the first row.
struct Run {
  const float *value, *weight;
  int64_t count;
};

// What a thread reuses from tile to tile.
struct Scratch {
  std::vector<float> queries;  // [key_dim, rows]
  std::vector<float> weights;  // [groups, rows, kLanes], scores first
  std::vector<float> packed;   // [groups, key_dim, kLanes], for blocks that no vector fits
  std::vector<const float*> panels;
  std::vector<Run> runs;
};

// e^x of x <= 0, to three units in the last place where it is no subnormal number.
inline Vector exponential(Vector x) {
  typedef int32_t Integers __attribute__((vector_size(4 * kLanes)));
  constexpr float kLeast = -87.0f;  // what is smaller gives 0
  const Vector bounded = x < kLeast ? Vector{} + kLeast : x;
  const Integers n = __builtin_convertvector(bounded * 1.44269504f - 0.5f, Integers);
  const Vector r = bounded - __builtin_convertvector(n, Vector) * 0.693147181f;
  // The series up to r^7; |r| <= ln 2 / 2.
  Vector y = 1.0f / 5040 + Vector{};
  for (const float term : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    y = y * r + term;
  const Vector power = reinterpret_cast<Vector>((n + 127) << 23);
  return x < kLeast ? Vector{} : y * power;
}

// scores[g][r] = queries[.][r] . keys of group g
template <int kRows, int kGroups>
void score(const float* queries, const float* const* panels, int64_t line, int64_t dim,
           float* scores) {
  Vector sums[kGroups][kRows] = {};
  for (int64_t d = 0; d < dim; ++d) {
    Vector keys[kGroups];
    for (int g = 0; g < kGroups; ++g)
      keys[g] = *reinterpret_cast<const Vector*>(panels[g] + d * line);
    for (int r = 0; r < kRows; ++r) {
      const float query = queries[d * kRows + r];
      for (int g = 0; g < kGroups; ++g) sums[g][r] += query * keys[g];
    }
  }
  for (int g = 0; g < kGroups; ++g)
    for (int r = 0; r < kRows; ++r)
      *reinterpret_cast<Vector*>(scores + (g * kRows + r) * kLanes) = sums[g][r];
}

// The groups [0, count) of keys from group `first` on: where each one's first dim lies, and how far
// the next is.
inline int64_t find_panels(const Sequence& all, const Pool& pool, int64_t first, int64_t count,
                           Scratch& scratch) {
  scratch.panels.resize(count);
  const int64_t size = all.block_size, dim = pool.key_dim;
  if (size % kLanes == 0) {
    for (int64_t g = 0; g < count; ++g) {
      const int64_t position = (first + g) * kLanes;
      scratch.panels[g] = pool.keys + all.blocks[position / size] * dim * size + position % size;
    }
    return size;
  }
  scratch.packed.assign(count * dim * kLanes, 0.0f);
  const int64_t end = std::min((first + count) * kLanes, all.start + all.num_queries);
  for (int64_t position = first * kLanes; position < end; ++position) {
    const float* key = pool.keys + all.blocks[position / size] * dim * size + position % size;
    const int64_t packed = (position / kLanes - first) * dim * kLanes + position % kLanes;
    float* to = scratch.packed.data() + packed;
    for (int64_t d = 0; d < dim; ++d) to[d * kLanes] = key[d * size];
  }
  for (int64_t g = 0; g < count; ++g)
    scratch.panels[g] = scratch.packed.data() + g * dim * kLanes;
  return kLanes;
}

// Scores of one row, `stride` apart from group to group, to weights of positions [first, last] of
// groups [0, count), whose first position is `begin`. Gives 1 / their sum. One for all tiles, which
// may not sum in different orders.
__attribute__((noinline)) inline float weigh(float* scores, int64_t stride, int64_t count,
                                             int64_t begin, int64_t first, int64_t last,
                                             float softcap) {
  const int64_t from = (first - begin) / kLanes, to = (last - begin) / kLanes;
  const auto is_seen = [&](int64_t group, int64_t lane) {
    const int64_t position = begin + group * kLanes + lane;
    return first <= position && position <= last;
  };
  const auto is_part = [&](int64_t group) {
    return !is_seen(group, 0) || !is_seen(group, kLanes - 1);
  };
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  Vector most = Vector{} + kHidden;
  for (int64_t g = from; g <= to; ++g) {
    float* own = scores + g * stride;
    if (softcap > 0)
      for (int64_t i = 0; i < kLanes; ++i) own[i] = softcap * std::tanh(own[i] / softcap);
    if (is_part(g))
      for (int64_t i = 0; i < kLanes; ++i)
        if (!is_seen(g, i)) own[i] = kHidden;  // what lies there may be no number
    const Vector all = *reinterpret_cast<Vector*>(own);
    most = all > most ? all : most;
  }
  float largest = most[0];
  for (int64_t i = 1; i < kLanes; ++i) largest = std::max(largest, most[i]);
  Vector sums = {};
  for (int64_t g = 0; g < count; ++g) {
    float* own = scores + g * stride;
    if (g < from || g > to) {
      std::fill_n(own, kLanes, 0.0f);
      continue;
    }
    Vector& all = *reinterpret_cast<Vector*>(own);
    all = exponential(all - largest);
    sums += all;
  }
  float sum = 0.0f;
  for (int64_t i = 0; i < kLanes; ++i) sum += sums[i];
  return 1.0f / sum;
}

// The runs of positions [begin, end) that share a group and a block.
inline void find_runs(const Sequence& all, const Pool& pool, int64_t rows, int64_t begin, int64_t end,
                      Scratch& scratch) {
  const int64_t size = all.block_size, origin = begin / kLanes * kLanes;
  scratch.runs.clear();
  for (int64_t position = begin; position < end;) {
    const int64_t in_block = position % size, in_group = position % kLanes;
    const int64_t count = std::min({size - in_block, kLanes - in_group, end - position});
    scratch.runs.push_back(
        {pool.values + (all.blocks[position / size] * size + in_block) * pool.value_dim,
         scratch.weights.data() + (position - in_group - origin) * rows + in_group, count});
    position += count;
  }
}

// out[r][offset + 0..kVectors * kLanes) = sum of weights[r] * values, times shares[r]; kPart: of the
// last vector, which is not full.
template <int kRows, int kVectors, bool kPart = false>
void sum_values(const std::vector<Run>& runs, int64_t dim, int64_t offset, const float* shares,
                float* const* out) {
  Vector sums[kRows][kVectors] = {};
  for (const Run& run : runs) {
    const float* value = run.value + offset;
    for (const float* weight = run.weight; weight < run.weight + run.count; ++weight, value += dim) {
      Vector values[kVectors] = {};
      if constexpr (kPart)
        __builtin_memcpy(values, value, sizeof(float) * (dim - offset));
      else
        for (int v = 0; v < kVectors; ++v)
          values[v] = *reinterpret_cast<const Vector*>(value + v * kLanes);
      for (int r = 0; r < kRows; ++r)
        for (int v = 0; v < kVectors; ++v) sums[r][v] += weight[r * kLanes] * values[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const Vector whole = sums[r][v] * shares[r];
      __builtin_memcpy(out[r] + offset + v * kLanes, &whole,
                       kPart ? sizeof(float) * (dim - offset) : sizeof(whole));
    }
  }
}

// Rows [row, row + kRows) of a sequence's, which are query by query and within one head by head.
// `q` and `out` are theirs.
template <int kRows>
void tile(const Sequence& all, const Pool& pool, int64_t row, const float* const* q,
          float* const* out, Scratch& scratch) {
  constexpr int kVectors = vectors_of(kRows);
  const auto oldest = [&](int64_t position) {
    return all.window > 0 ? std::max<int64_t>(0, position - all.window + 1) : 0;
  };
  const auto position_of = [&](int64_t r) { return all.start + (row + r) / all.group_size; };
  const int64_t end = position_of(kRows - 1) + 1;
  const int64_t group = oldest(position_of(0)) / kLanes, begin = group * kLanes;
  const int64_t count = (end - begin + kLanes - 1) / kLanes;
  scratch.queries.resize(pool.key_dim * kRows);
  for (int r = 0; r < kRows; ++r)
    for (int64_t d = 0; d < pool.key_dim; ++d)
      scratch.queries[d * kRows + r] = q[r][d] * all.scale;
  const int64_t line = find_panels(all, pool, group, count, scratch);
  scratch.weights.resize(count * kRows * kLanes);
  float* weights = scratch.weights.data();
  int64_t g = 0;
  const auto pass = [&](auto groups) {
    for (; g + groups.value <= count; g += groups.value)
      score<kRows, groups.value>(scratch.queries.data(), scratch.panels.data() + g, line,
                                 pool.key_dim, weights + g * kRows * kLanes);
  };
  pass(std::integral_constant<int, kVectors>{});
  pass(std::integral_constant<int, 1>{});
  float shares[kRows];
  for (int r = 0; r < kRows; ++r) {
    const int64_t last = position_of(r);
    shares[r] = weigh(weights + r * kLanes, kRows * kLanes, count, begin, oldest(last), last,
                      all.softcap);
  }
  find_runs(all, pool, kRows, begin, end, scratch);
  int64_t offset = 0;
  const auto add = [&](auto vectors) {
    for (; offset + vectors.value * kLanes <= pool.value_dim; offset += vectors.value * kLanes)
      sum_values<kRows, vectors.value>(scratch.runs, pool.value_dim, offset, shares, out);
  };
  add(std::integral_constant<int, kVectors>{});
  add(std::integral_constant<int, 1>{});
  if (offset < pool.value_dim)
    sum_values<kRows, 1, true>(scratch.runs, pool.value_dim, offset, shares, out);
}

// Calls f with the first row and the height of each tile of so many rows.
template <typename F>
void by_tile(int64_t num_rows, F f) {
  product::by_tile<kMostRows>(0, num_rows, [&](int64_t row, auto rows) { f(row, rows.value); });
}

}  // namespace attention
