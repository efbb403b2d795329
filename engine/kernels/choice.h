// The rule of engine/sampling.py on one row of logits, where it is explained: same tokens, but for
// ties that rounding makes or breaks.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace choice {

constexpr double kMargin = 1.0 + 1e-5;  // so that rounding takes nothing out
constexpr double kTiny = 1e-12;
constexpr double kOpenDepth = 10.0;
constexpr int64_t kGroup = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sampling {
  double temperature;  // 0: greedy
  double top_p, min_p;
  int64_t top_k;
  uint32_t key[2];  // of the noise at this place
};

inline uint32_t hash(uint32_t token, uint32_t k0, uint32_t k1) {
  uint32_t h = (token * k0) ^ k1;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  h ^= h >> 16;
  return h & 0x7FFFFFFFu;
}

inline float uniform(uint32_t hash) {
  // As a signed number, which the CPU's vectors convert at once.
  const float noise = (static_cast<float>(static_cast<int32_t>(hash)) + 0.5f) * 0x1p-31f;
  return std::min(noise, 1.0f - 0x1p-24f);
}

inline float gumbel(float uniform) { return -std::log(-std::log1p(-uniform)); }

// For one choice.
class Row {
 public:
  Row(const float* logits, int64_t vocab) : logits_(logits), vocab_(vocab) {}

  int64_t choose(const Sampling& sampling) {
    const int64_t favourite = likeliest();
    if (sampling.temperature == 0.0 || !std::isfinite(largest_)) return favourite;
    const float noise = gumbel(uniform(hash(favourite, sampling.key[0], sampling.key[1])));
    const double contending = kMargin * std::exp(-static_cast<double>(noise));
    find_candidates(sampling, contending);
    filter(sampling);
    find_contenders(sampling, static_cast<float>(contending));
    for (const Contender& best : contenders_)
      if (is_left(best, sampling)) return best.token;
    return favourite;
  }

 private:
  struct Contender {
    float raced, scaled;
    int64_t token;
  };

  // Calls f with the first token of each group and its size, a constant where the group is full.
  template <typename F>
  void by_group(F f) const {
    int64_t first = 0;
    for (; first + kGroup <= vocab_; first += kGroup)
      f(first, std::integral_constant<int64_t, kGroup>{});
    if (first < vocab_) f(first, vocab_ - first);
  }

  // The first of the largest logits; a NaN counts as the largest. Leaves each group's largest one.
  int64_t likeliest() {
    tops_.reserve(vocab_ / kGroup + 1);
    largest_ = -kInfinity;
    int not_numbers = 0;
    by_group([&](int64_t first, auto count) {
      const float* x = logits_ + first;
      float top = -kInfinity;
      int nans = 0;
#pragma omp simd reduction(max : top) reduction(+ : nans)
      for (int64_t i = 0; i < count; ++i) {
        top = x[i] > top ? x[i] : top;
        nans += std::isnan(x[i]);
      }
      not_numbers += nans;
      tops_.push_back(top);
      largest_ = std::max(largest_, top);
    });
    if (not_numbers > 0) {
      largest_ = std::numeric_limits<float>::quiet_NaN();
      return std::find_if(logits_, logits_ + vocab_, [](float x) { return std::isnan(x); }) -
             logits_;
    }
    const int64_t group = std::find(tops_.begin(), tops_.end(), largest_) - tops_.begin();
    return std::find(logits_ + group * kGroup, logits_ + vocab_, largest_) - logits_;
  }

  bool is_cut(const Sampling& sampling) const {
    return sampling.min_p > 0.0 || (sampling.top_k > 0 && sampling.top_k < vocab_);
  }

  double floor_at(const Sampling& sampling, double depth) const {
    const double slack = (kMargin - 1.0) * (1.0 + std::abs(largest_));
    return largest_ - sampling.temperature * depth * kMargin - slack;
  }

  void find_candidates(const Sampling& sampling, double contending) {
    float floor = -kInfinity;
    if (sampling.min_p > 0.0) {
      floor = floor_at(sampling, -std::log(sampling.min_p));
    } else if (!is_cut(sampling)) {
      if (sampling.top_p == 1.0) return find_open(sampling, contending);
      floor = floor_at(sampling, std::log(vocab_ / std::max(1.0 - sampling.top_p, kTiny)));
    }
    if (sampling.top_k > 0 && sampling.top_k <= static_cast<int64_t>(tops_.size())) {
      ranked_ = tops_;
      const auto kth = ranked_.begin() + sampling.top_k - 1;
      std::nth_element(ranked_.begin(), kth, ranked_.end(), std::greater<float>());
      floor = std::max(floor, *kth);
    }
    by_group([&](int64_t first, auto count) {
      if (tops_[first / kGroup] >= floor)
        collect(first, count, [floor](float logit, uint32_t) { return logit >= floor; });
    });
  }

  // Without filters: unlikely tokens are known by their hash.
  void find_open(const Sampling& sampling, double contending) {
    const float floor = floor_at(sampling, kOpenDepth);
    const double limit = std::min(contending * std::exp(-kOpenDepth) * 0x1p31, 2147483647.0);
    const uint32_t largest_hash = static_cast<uint32_t>(limit);
    by_group([&](int64_t first, auto count) {
      collect(first, count, [=, k0 = sampling.key[0], k1 = sampling.key[1]](float x, uint32_t i) {
        return static_cast<int>(x >= floor) | static_cast<int>(hash(i, k0, k1) <= largest_hash);
      });
    });
  }

  // Adds the tokens of a group that are wanted.
  template <typename Count, typename F>
  void collect(int64_t first, Count count, F is_wanted) {
    // In simd loops, only what is local: a member's elements would be gathered one by one.
    const float* x = logits_ + first;
    const uint32_t token = static_cast<uint32_t>(first);
    alignas(64) uint8_t wanted[kGroup] = {};
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      wanted[i] = is_wanted(x[i], token + static_cast<uint32_t>(i)) ? 1 : 0;
    for (int64_t at = 0; at < kGroup; at += 8) {
      uint64_t eight;
      std::memcpy(&eight, wanted + at, 8);
      if (eight == 0) continue;
      for (int64_t i = at; i < at + 8; ++i)
        if (wanted[i]) tokens_.push_back(token + static_cast<uint32_t>(i));
    }
  }

  // What min_p and top-k leave of the candidates.
  void filter(const Sampling& sampling) {
    scaled_.resize(tokens_.size());
    for (size_t i = 0; i < tokens_.size(); ++i)
      // Less the largest, before the division: beside large numbers the noise would be rounded.
      scaled_[i] = static_cast<float>((logits_[tokens_[i]] - largest_) / sampling.temperature);
    float floor = -kInfinity;
    if (sampling.min_p > 0.0) floor = static_cast<float>(std::log(sampling.min_p));
    if (sampling.top_k > 0 && sampling.top_k < static_cast<int64_t>(scaled_.size())) {
      ranked_ = scaled_;
      const auto kth = ranked_.begin() + sampling.top_k - 1;
      std::nth_element(ranked_.begin(), kth, ranked_.end(), std::greater<float>());
      floor = std::max(floor, *kth);
    }
    if (floor == -kInfinity) return;
    size_t left = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (scaled_[i] < floor) continue;
      tokens_[left] = tokens_[i];
      scaled_[left++] = scaled_[i];
    }
    tokens_.resize(left);
    scaled_.resize(left);
  }

  // Those that can beat the likeliest token, the best first.
  void find_contenders(const Sampling& sampling, float contending) {
    const int64_t count = tokens_.size();
    weights_.resize(count);
    uniforms_.resize(count);
    const uint32_t k0 = sampling.key[0], k1 = sampling.key[1];
    const uint32_t* tokens = tokens_.data();
    const float* scaled = scaled_.data();
    float *weights = weights_.data(), *uniforms = uniforms_.data();
    double mass = 0.0;
#pragma omp simd reduction(+ : mass)
    for (int64_t i = 0; i < count; ++i) {
      weights[i] = std::exp(scaled[i]);
      mass += weights[i];
      uniforms[i] = uniform(hash(tokens[i], k0, k1));
    }
    mass_ = mass;
    for (int64_t i = 0; i < count; ++i)
      if (uniforms_[i] <= weights_[i] * contending)
        contenders_.push_back({scaled_[i] + gumbel(uniforms_[i]), scaled_[i], tokens_[i]});
    std::stable_sort(contenders_.begin(), contenders_.end(),
                     [](const Contender& a, const Contender& b) { return a.raced > b.raced; });
  }

  // Whether top-p leaves it.
  bool is_left(const Contender& own, const Sampling& sampling) const {
    if (sampling.top_p == 1.0 || own.scaled == 0.0f) return true;
    const float *scaled = scaled_.data(), *weights = weights_.data();
    const int64_t count = scaled_.size();
    double likelier = 0.0;
#pragma omp simd reduction(+ : likelier)
    for (int64_t i = 0; i < count; ++i) likelier += scaled[i] > own.scaled ? weights[i] : 0.0f;
    // The mass is at least that of the candidates; the others' is small.
    if (likelier < sampling.top_p * mass_) return true;
    if (is_cut(sampling)) return false;
    const double outside = std::max(1.0 - sampling.top_p, kTiny);
    const double others = outside * (vocab_ - count) / vocab_;
    if (likelier >= sampling.top_p * (mass_ + others)) return false;
    double exact = 0.0;
    const float rate = static_cast<float>(1.0 / sampling.temperature), largest = largest_;
    const float* logits = logits_;
    const int64_t vocab = vocab_;
#pragma omp simd reduction(+ : exact)
    for (int64_t i = 0; i < vocab; ++i) exact += std::exp((logits[i] - largest) * rate);
    return likelier < sampling.top_p * exact;
  }

  const float* logits_;
  const int64_t vocab_;
  float largest_ = 0.0f;
  double mass_ = 0.0;             // of the candidates that are left
  std::vector<float> tops_;       // each group's largest logit
  std::vector<uint32_t> tokens_;  // candidates, ascending
  std::vector<float> scaled_;     // theirs: logits over the temperature, the largest being 0
  std::vector<float> weights_;    // exp(scaled)
  std::vector<float> uniforms_, ranked_;
  std::vector<Contender> contenders_;
};

}  // namespace choice
