// y = x W^T + bias by the bfloat16 dot products of a CPU that has them: rows rounded to bfloat16,
// sums in float32, twice as many products an instruction and half the bytes of `product.h`.
//
// A panel of 16 outputs holds, for one pair of inputs after the other, a line of 16 pairs of weights.
// Every sum runs over the pairs in order, whatever rows are beside it.

#pragma once

#include "product.h"

#ifdef __AVX512BF16__
#include <immintrin.h>

namespace pairs {

using product::kColumns;
using product::Operands;

constexpr int kMostRows = 12;            // of a tile: 24 sums with two panels, in 32 registers
constexpr int64_t kRowsAtOnce = 96;      // more rows than a core's cache holds are taken in turns
constexpr int64_t kLineBytes = 64;
constexpr int64_t kPrefetchBytes = 4096;  // ahead of what is read

// Rows [from, to) as pairs, into rounded [rows, pairs of inputs]; a last odd input is beside a zero.
inline void round_rows(const Operands& all, uint32_t* rounded, int64_t from, int64_t to) {
  const int64_t num_pairs = (all.in + 1) / 2;
  for (int64_t row = from; row < to; ++row) {
    const float* x = all.x + row * all.in;
    auto* y = reinterpret_cast<char*>(rounded + row * num_pairs);
    for (int64_t k = 0; k < all.in; k += 16) {
      const auto mask = static_cast<__mmask16>(all.in - k >= 16 ? 0xFFFF : (1 << (all.in - k)) - 1);
      const __m256bh some = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + k));
      const int64_t bytes = std::min<int64_t>(32, 4 * num_pairs - 2 * k);
      if (bytes == 32)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(y + 2 * k), (__m256i)some);
      else
        __builtin_memcpy(y + 2 * k, &some, bytes);
    }
  }
}

template <int kRows, int kPanels>
void tile(const Operands& all, const uint32_t* x, int64_t row, int64_t panel) {
  const int64_t num_pairs = (all.in + 1) / 2, stride = num_pairs * kLineBytes;
  const char* lines = all.panels + panel * stride;
  x += row * num_pairs;
  __m512 sums[kRows][kPanels];
  for (auto& of_row : sums)
    for (auto& sum : of_row) sum = _mm512_setzero_ps();
  for (int64_t k = 0; k < num_pairs; ++k) {
    __m512i weights[kPanels];
    for (int p = 0; p < kPanels; ++p) {
      const char* line = lines + p * stride + k * kLineBytes;
      __builtin_prefetch(line + kPrefetchBytes);
      weights[p] = _mm512_loadu_si512(line);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512i inputs = _mm512_set1_epi32(static_cast<int>(x[r * num_pairs + k]));
      for (int p = 0; p < kPanels; ++p)
        sums[r][p] = _mm512_dpbf16_ps(sums[r][p], (__m512bh)inputs, (__m512bh)weights[p]);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    const int64_t first = (panel + p) * kColumns, count = std::min(kColumns, all.out - first);
    const auto mask = static_cast<__mmask16>((1 << count) - 1);
    const __m512 bias =
        all.bias ? _mm512_maskz_loadu_ps(mask, all.bias + first) : _mm512_setzero_ps();
    for (int r = 0; r < kRows; ++r)
      _mm512_mask_storeu_ps(all.y + (row + r) * all.out + first, mask,
                            _mm512_add_ps(sums[r][p], bias));
  }
}

// The outputs of panels [from, to), for all rows of `x` (from `round_rows`).
inline void multiply(const Operands& all, const uint32_t* x, int64_t from, int64_t to) {
  for (int64_t first = 0; first < all.rows; first += kRowsAtOnce) {
    const int64_t end = std::min(first + kRowsAtOnce, all.rows);
    int64_t panel = from;
    const auto pass = [&](auto panels) {
      for (; panel + panels.value <= to; panel += panels.value)
        product::by_tile<kMostRows>(first, end, [&](int64_t row, auto rows) {
          tile<rows.value, panels.value>(all, x, row, panel);
        });
    };
    // Few sums each wait for the one before: four panels keep the CPU busy.
    if (all.rows <= kMostRows / 2) pass(std::integral_constant<int, 4>{});
    pass(std::integral_constant<int, 2>{});
    pass(std::integral_constant<int, 1>{});
  }
}

}  // namespace pairs
#endif
