// y = x W^T + bias for float32 rows x, with W in panels of 16 outputs.
//
// A panel holds, for one input after the other, a line of 16 weights. A tile is a few rows times one
// or two panels, with all its sums in registers: one pass over the panel for all of its rows, so that
// few rows cost what reading the weights costs. Every sum runs over the inputs in order, whatever
// rows are beside it.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace product {

constexpr int64_t kColumns = 16;
constexpr int kMostRows = 6;              // of a tile: 12 sums, in a CPU with 16 registers
constexpr int64_t kRowsAtOnce = 48;       // more rows than a core's cache holds are taken in turns
constexpr int64_t kRowsPacked = 24;       // from so many on, laying them out anew pays
constexpr int64_t kPrefetchBytes = 2048;  // ahead of what is read

typedef float Floats __attribute__((vector_size(32), aligned(4), may_alias));
typedef uint32_t Words __attribute__((vector_size(32), aligned(4), may_alias));

// A line of bfloat16: in each 32-bit word, column i below column 8 + i.
struct Brain {
  static constexpr int64_t kLineBytes = 32;
  static void read(const char* line, Floats& first, Floats& second) {
    const Words words = *reinterpret_cast<const Words*>(line);
    first = reinterpret_cast<Floats>(words << 16);
    second = reinterpret_cast<Floats>(words & 0xFFFF0000u);
  }
};

struct Single {
  static constexpr int64_t kLineBytes = 64;
  static void read(const char* line, Floats& first, Floats& second) {
    first = *reinterpret_cast<const Floats*>(line);
    second = *reinterpret_cast<const Floats*>(line + 32);
  }
};

#ifdef __F16C__
struct Half {
  static constexpr int64_t kLineBytes = 32;
  static void read(const char* line, Floats& first, Floats& second) {
    const auto* halves = reinterpret_cast<const __m128i*>(line);
    first = reinterpret_cast<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(halves)));
    second = reinterpret_cast<Floats>(_mm256_cvtph_ps(_mm_loadu_si128(halves + 1)));
  }
};
#endif

// What a range of panels is multiplied with.
struct Operands {
  const float* x;  // [rows, in]
  int64_t rows, in, out;
  const char* panels;
  const float* bias;  // [out], or null
  float* y;           // [rows, out]
};

// Of rows at `x`: one behind the other, or, if packed, their first inputs, their second ones, ...
template <typename Weights, int kRows, int kPanels, bool kPacked = false>
void tile(const Operands& all, const float* x, int64_t row, int64_t panel) {
  const int64_t in = all.in, stride = in * Weights::kLineBytes;
  const char* lines = all.panels + panel * stride;
  Floats sums[kRows][2 * kPanels] = {};
  for (int64_t k = 0; k < in; ++k) {
    Floats weights[2 * kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const char* line = lines + p * stride + k * Weights::kLineBytes;
      __builtin_prefetch(line + kPrefetchBytes);
      Weights::read(line, weights[2 * p], weights[2 * p + 1]);
    }
    for (int r = 0; r < kRows; ++r) {
      const float input = kPacked ? x[k * kRows + r] : x[r * in + k];
      for (int c = 0; c < 2 * kPanels; ++c) sums[r][c] += input * weights[c];
    }
  }
  const int64_t first = panel * kColumns;
  const int64_t count = std::min(kPanels * kColumns, all.out - first);
  for (int r = 0; r < kRows; ++r) {
    const float* sum = reinterpret_cast<const float*>(sums[r]);
    float* y = all.y + (row + r) * all.out + first;
    for (int64_t c = 0; c < count; ++c) y[c] = sum[c] + (all.bias ? all.bias[first + c] : 0.0f);
  }
}

// All panels of one tile's rows.
template <typename Weights, int kRows>
void tiles(const Operands& all, int64_t from, int64_t to) {
  // Few sums each wait for the one before: two panels keep the CPU busy.
  constexpr int kPanels = kRows <= 2 ? 2 : 1;
  int64_t panel = from;
  for (; panel + kPanels <= to; panel += kPanels) tile<Weights, kRows, kPanels>(all, all.x, 0, panel);
  for (; panel < to; ++panel) tile<Weights, kRows, 1>(all, all.x, 0, panel);
}

// Calls f with a constant of `rows`, which are one tile's, from 1 to kMost.
template <int kMost, typename F>
void with_constant(int64_t rows, F f) {
  if constexpr (kMost > 0) {
    if (rows == kMost) return f(std::integral_constant<int, kMost>{});
    with_constant<kMost - 1>(rows, f);
  }
}

// Calls f with the first row of each tile of rows [first, end) and its height, a constant. The last
// two tiles share what is left: a low one costs as much as one twice as high.
template <int kMost, typename F>
void by_tile(int64_t first, int64_t end, F f) {
  for (int64_t row = first; row < end;) {
    const int64_t left = end - row;
    const int64_t height = left >= 2 * kMost ? kMost : left > kMost ? (left + 1) / 2 : left;
    with_constant<kMost>(height, [&](auto rows) { f(row, rows); });
    row += height;
  }
}

template <typename Weights, bool kPacked>
void multiply_some(const Operands& all, const float* x, int64_t first, int64_t end, int64_t panel) {
  by_tile<kMostRows>(first, end, [&](int64_t row, auto rows) {
    tile<Weights, rows.value, 1, kPacked>(all, x + (row - first) * all.in, row, panel);
  });
}

// The outputs of panels [from, to), for all rows.
template <typename Weights>
void multiply(const Operands& all, int64_t from, int64_t to) {
  if (all.rows <= kMostRows)
    return with_constant<kMostRows>(all.rows, [&](auto rows) { tiles<Weights, rows.value>(all, from, to); });
  std::vector<float> packed;
  for (int64_t first = 0; first < all.rows; first += kRowsAtOnce) {
    const int64_t end = std::min(first + kRowsAtOnce, all.rows);
    const float* x = all.x + first * all.in;
    if (end - first < kRowsPacked) {
      for (int64_t panel = from; panel < to; ++panel)
        multiply_some<Weights, false>(all, x, first, end, panel);
      continue;
    }
    packed.resize((end - first) * all.in);
    by_tile<kMostRows>(0, end - first, [&](int64_t row, auto rows) {
      for (int64_t k = 0; k < all.in; ++k)
        for (int64_t r = 0; r < rows.value; ++r)
          packed[row * all.in + k * rows.value + r] = x[(row + r) * all.in + k];
    });
    for (int64_t panel = from; panel < to; ++panel)
      multiply_some<Weights, true>(all, packed.data(), first, end, panel);
  }
}

}  // namespace product
