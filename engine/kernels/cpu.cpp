// What a step on a CPU calls apart from the code compiled for its model: attention over the block
// pool for few queries, products with packed weights, and the choice of tokens. Same results as
// attention.py and sampling.py, to rounding.
//
// Shape legend: N packed tokens, T queries of a sequence, H query heads, K KV heads, G = H / K query
// heads that share one, D and E dims of keys and values.

#include <ATen/Parallel.h>
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "choice.h"
#include "package.h"
#include "pairs.h"
#include "product.h"

namespace {

// More queries of a sequence than this are faster as batched products.
constexpr int64_t kFewQueries = 16;
// Fewer inputs than this are rounded sooner than another thread is woken.
constexpr int64_t kInputsOfThread = 32768;
// Queries of one product: later slots than the last one's are not computed, and scores stay small.
constexpr int64_t kQueriesAtOnce = 128;

// The forward that this thread runs.
struct Forward {
  std::vector<at::Tensor> keys, values;  // a layer: [K, slots, D] and [K, slots, E]
  at::Tensor write_slots;                // [N]
  at::Tensor first_rows;                 // [B + 1], packed row where each sequence's queries begin
  at::Tensor starts;                     // [B], position of its first query
  at::Tensor blocks;                     // [B, most blocks of a sequence]
  int64_t block_size = 0;
};
thread_local Forward current;

void begin(const std::vector<at::Tensor>& keys, const std::vector<at::Tensor>& values,
           const at::Tensor& write_slots, const at::Tensor& first_rows, const at::Tensor& starts,
           const at::Tensor& blocks, int64_t block_size) {
  current = Forward{keys, values, write_slots, first_rows, starts, blocks, block_size};
}

void end() { current = Forward{}; }

#ifdef __AVX512BF16__
bool has_pairs() { return true; }
#else
bool has_pairs() { return false; }
#endif

// float32 [rows, out] from x [rows, in] and what `panels.py` made of the weight.
at::Tensor multiply(const at::Tensor& x, const at::Tensor& panels,
                    const std::optional<at::Tensor>& bias, int64_t out_features, int64_t format) {
  const auto rows = x.contiguous();
  auto y = at::empty({rows.size(0), out_features}, rows.options());
  const product::Operands all{rows.const_data_ptr<float>(),
                              rows.size(0),
                              rows.size(1),
                              out_features,
                              static_cast<const char*>(panels.const_data_ptr()),
                              bias ? bias->const_data_ptr<float>() : nullptr,
                              y.mutable_data_ptr<float>()};
#ifdef __AVX512BF16__
  if (format == 3) {
    const int64_t num_pairs = (all.in + 1) / 2;
    const std::unique_ptr<uint32_t[]> rounded(new uint32_t[all.rows * num_pairs]);  // not zeroed
    const int64_t some_rows = std::max<int64_t>(1, kInputsOfThread / std::max<int64_t>(1, all.in));
    at::parallel_for(0, all.rows, some_rows, [&](int64_t from, int64_t to) {
      pairs::round_rows(all, rounded.get(), from, to);
    });
    at::parallel_for(0, panels.size(0), 1, [&](int64_t from, int64_t to) {
      pairs::multiply(all, rounded.get(), from, to);
    });
    return y;
  }
#endif
  at::parallel_for(0, panels.size(0), 1, [&](int64_t from, int64_t to) {
    if (format == 0) product::multiply<product::Single>(all, from, to);
    if (format == 1) product::multiply<product::Brain>(all, from, to);
#ifdef __F16C__
    if (format == 2) product::multiply<product::Half>(all, from, to);
#endif
  });
  return y;
}

// One sequence's queries of one KV head; window and softcap: 0 for none.
struct Task {
  int64_t num_queries, group_size, start, block_size, window;
  const int64_t* blocks;
  float scale, softcap;
};

// scores[r * stride] = rows[r] . key
template <int kRows>
void dot_rows(const float* const* rows, const float* key, int64_t dim, float* scores,
              int64_t stride) {
  float a = 0, b = 0, c = 0, d = 0;
  const float *row_a = rows[0], *row_b = rows[kRows > 1], *row_c = rows[kRows > 2 ? 2 : 0],
              *row_d = rows[kRows > 3 ? 3 : 0];
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < dim; ++i) {
    a += row_a[i] * key[i];
    if constexpr (kRows > 1) b += row_b[i] * key[i];
    if constexpr (kRows > 2) c += row_c[i] * key[i];
    if constexpr (kRows > 3) d += row_d[i] * key[i];
  }
  scores[0] = a;
  if constexpr (kRows > 1) scores[stride] = b;
  if constexpr (kRows > 2) scores[2 * stride] = c;
  if constexpr (kRows > 3) scores[3 * stride] = d;
}

// out[r][0..kWidth) = sum over positions of weights[r][position] * value[position][0..kWidth), with
// the sums in registers.
template <int kRows, int kWidth>
void sum_values(const float* const* value, int64_t offset, int64_t first, int64_t end,
                const float* weights, int64_t stride, float* const* out) {
  float sum[kRows][kWidth] = {};
  for (int64_t position = first; position < end; ++position) {
    const float* v = value[position] + offset;
    for (int r = 0; r < kRows; ++r) {
      const float weight = weights[r * stride + position];
#pragma omp simd
      for (int i = 0; i < kWidth; ++i) sum[r][i] += weight * v[i];
    }
  }
  for (int r = 0; r < kRows; ++r) std::copy_n(sum[r], kWidth, out[r] + offset);
}

template <int kRows>
struct Rows {
  // What fits the registers of a CPU with 16 of them.
  static constexpr int kWidth = kRows == 1 ? 64 : kRows == 4 ? 16 : 32;

  static void score(const float* const* q, const float* const* keys, int64_t first, int64_t end,
                    int64_t dim, float* scores, int64_t stride) {
    for (int64_t i = first; i < end; ++i)
      dot_rows<kRows>(q, keys[i], dim, scores + i, stride);
  }

  static void sum(const float* const* values, int64_t first, int64_t end, int64_t dim,
                  const float* weights, int64_t stride, float* const* out) {
    int64_t at = 0;
    for (; at + kWidth <= dim; at += kWidth)
      sum_values<kRows, kWidth>(values, at, first, end, weights, stride, out);
    for (; at + 8 <= dim; at += 8)
      sum_values<kRows, 8>(values, at, first, end, weights, stride, out);
    for (; at < dim; ++at) sum_values<kRows, 1>(values, at, first, end, weights, stride, out);
  }
};

// Calls f with Rows<n> and the first of n rows, for all rows.
template <typename F>
void by_rows(int64_t num_rows, F f) {
  int64_t row = 0;
  for (; row + 4 <= num_rows; row += 4) f(Rows<4>{}, row);
  switch (num_rows - row) {
    case 3: return f(Rows<3>{}, row);
    case 2: return f(Rows<2>{}, row);
    case 1: return f(Rows<1>{}, row);
  }
}

// Few queries: rows of q and out are query by query, and within one head by head.
void attend_few(const Task& task, const std::vector<const float*>& q, const float* keys,
                const float* values, const std::vector<float*>& out, int64_t key_dim,
                int64_t value_dim, std::vector<float>& scores, std::vector<const float*>& lines) {
  const int64_t num_slots = task.start + task.num_queries;
  const int64_t num_rows = task.num_queries * task.group_size;
  const int64_t begin =
      task.window > 0 ? std::max<int64_t>(0, task.start - task.window + 1) : 0;
  const auto lines_of = [&](const float* pool, int64_t dim) {
    for (int64_t i = begin; i < num_slots; ++i)
      lines[i] = pool + (task.blocks[i / task.block_size] * task.block_size + i % task.block_size) * dim;
  };
  lines.resize(num_slots);
  scores.resize(num_rows * num_slots);
  lines_of(keys, key_dim);
  float* all = scores.data();
  // What a row must not see is scored too, and left out below.
  by_rows(num_rows, [&](auto rows, int64_t row) {
    rows.score(q.data() + row, lines.data(), begin, num_slots, key_dim, all + row * num_slots,
               num_slots);
  });
  for (int64_t row = 0; row < num_rows; ++row) {
    float* own = all + row * num_slots;
    const int64_t last = task.start + row / task.group_size;
    const int64_t first = task.window > 0 ? std::max<int64_t>(0, last - task.window + 1) : 0;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t i = first; i <= last; ++i) {
      own[i] *= task.scale;
      if (task.softcap > 0) own[i] = task.softcap * std::tanh(own[i] / task.softcap);
      largest = std::max(largest, own[i]);
    }
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = first; i <= last; ++i) {
      own[i] = std::exp(own[i] - largest);
      sum += own[i];
    }
    const float share = 1.0f / sum;
#pragma omp simd
    for (int64_t i = first; i <= last; ++i) own[i] *= share;
    std::fill(own + begin, own + first, 0.0f);
    std::fill(own + last + 1, own + num_slots, 0.0f);
  }
  lines_of(values, value_dim);
  by_rows(num_rows, [&](auto rows, int64_t row) {
    rows.sum(lines.data(), begin, num_slots, value_dim, all + row * num_slots, num_slots,
             out.data() + row);
  });
}

// One sequence's queries as batched products over a copy of its keys and values: for many queries.
// query [H, N, D], out [N, H, E].
void attend_many(const Task& task, int64_t first_row, const at::Tensor& query, const at::Tensor& keys,
                 const at::Tensor& values, const at::Tensor& out) {
  const int64_t kv_heads = keys.size(0), num_slots = task.start + task.num_queries;
  auto slots = at::empty({num_slots}, at::kLong);
  int64_t* slot = slots.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_slots; ++i)
    slot[i] = task.blocks[i / task.block_size] * task.block_size + i % task.block_size;
  const auto k = keys.index_select(1, slots), v = values.index_select(1, slots);
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  const auto later = at::ones({kQueriesAtOnce, kQueriesAtOnce}, at::kBool).triu_(1);
  for (int64_t from = 0; from < task.num_queries; from += kQueriesAtOnce) {
    const int64_t count = std::min(kQueriesAtOnce, task.num_queries - from);
    const int64_t first = task.start + from, end = first + count;
    const int64_t begin = task.window > 0 ? std::max<int64_t>(0, first - task.window + 1) : 0;
    const auto q = query.narrow(1, first_row + from, count)
                       .reshape({kv_heads, task.group_size * count, query.size(2)})
                       .mul(task.scale);
    auto scores = at::bmm(q, k.narrow(1, begin, end - begin).transpose(1, 2));
    if (task.softcap > 0) scores.div_(task.softcap).tanh_().mul_(task.softcap);
    const auto by_query = scores.view({kv_heads, task.group_size, count, end - begin});
    by_query.narrow(3, first - begin, count)
        .masked_fill_(later.narrow(0, 0, count).narrow(1, 0, count), kHidden);
    if (task.window > 0) {
      const auto position = at::arange(begin, end).unsqueeze(0);
      const auto oldest = at::arange(first, end).unsqueeze(1) - task.window;
      by_query.masked_fill_(position <= oldest, kHidden);
    }
    const auto part = at::bmm(at::softmax(scores, -1), v.narrow(1, begin, end - begin));
    out.narrow(0, first_row + from, count)
        .copy_(part.view({kv_heads, task.group_size, count, -1})
                   .permute({2, 0, 1, 3})
                   .reshape({count, query.size(0), -1}));
  }
}

void write(const at::Tensor& pool, const at::Tensor& fresh, const at::Tensor& slots) {
  const auto source = fresh.select(0, 0).contiguous();  // [K, N, D]
  const int64_t num_heads = source.size(0), num_tokens = source.size(1), dim = source.size(2);
  const int64_t* slot = slots.const_data_ptr<int64_t>();
  const float* from = source.const_data_ptr<float>();
  float* to = pool.mutable_data_ptr<float>();
  for (int64_t head = 0; head < num_heads; ++head)
    for (int64_t token = 0; token < num_tokens; ++token)
      std::copy_n(from + (head * num_tokens + token) * dim, dim,
                  to + (head * pool.size(1) + slot[token]) * dim);
}

// [1, H, N, D], [1, K, N, D], [1, K, N, E] -> [1, N, H, E], all float32.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  int64_t layer, double scale, std::optional<int64_t> window,
                  std::optional<double> softcap) {
  const at::Tensor& keys = current.keys.at(layer);
  const at::Tensor& values = current.values.at(layer);
  write(keys, key, current.write_slots);
  write(values, value, current.write_slots);
  const auto q = query.select(0, 0).contiguous();  // [H, N, D]
  const int64_t num_heads = q.size(0), num_tokens = q.size(1), key_dim = q.size(2);
  const int64_t kv_heads = keys.size(0), value_dim = values.size(2), num_slots = keys.size(1);
  auto out = at::empty({1, num_tokens, num_heads, value_dim}, q.options());
  if (num_heads == 0) return out;
  const int64_t num_seqs = current.starts.size(0);
  const int64_t* first_rows = current.first_rows.const_data_ptr<int64_t>();
  const int64_t* starts = current.starts.const_data_ptr<int64_t>();
  const int64_t* blocks = current.blocks.const_data_ptr<int64_t>();
  // Other threads have no `current`.
  const int64_t most_blocks = current.blocks.size(1), block_size = current.block_size;
  const auto task_of = [&](int64_t seq) {
    return Task{first_rows[seq + 1] - first_rows[seq],
                num_heads / kv_heads,
                starts[seq],
                block_size,
                window.value_or(0),
                blocks + seq * most_blocks,
                static_cast<float>(scale),
                static_cast<float>(softcap.value_or(0.0))};
  };
  std::vector<int64_t> few;
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    const Task task = task_of(seq);
    if (task.num_queries <= kFewQueries) {
      few.push_back(seq);
    } else {
      attend_many(task, first_rows[seq], q, keys, values, out.select(0, 0));
    }
  }
  const float* q_data = q.const_data_ptr<float>();
  const float* k_data = keys.const_data_ptr<float>();
  const float* v_data = values.const_data_ptr<float>();
  float* out_data = out.mutable_data_ptr<float>();
  at::parallel_for(0, few.size() * kv_heads, 1, [&](int64_t from, int64_t to) {
    std::vector<float> scores;
    std::vector<const float*> lines;
    std::vector<const float*> q_rows;
    std::vector<float*> out_rows;
    for (int64_t index = from; index < to; ++index) {
      const int64_t seq = few[index / kv_heads], kv_head = index % kv_heads;
      const Task task = task_of(seq);
      q_rows.clear();
      out_rows.clear();
      for (int64_t token = first_rows[seq]; token < first_rows[seq + 1]; ++token) {
        for (int64_t member = 0; member < task.group_size; ++member) {
          const int64_t head = kv_head * task.group_size + member;
          q_rows.push_back(q_data + (head * num_tokens + token) * key_dim);
          out_rows.push_back(out_data + (token * num_heads + head) * value_dim);
        }
      }
      attend_few(task, q_rows, k_data + kv_head * num_slots * key_dim,
                 v_data + kv_head * num_slots * value_dim, out_rows, key_dim, value_dim, scores,
                 lines);
    }
  });
  return out;
}

// Tokens for rows [vocab]; parameters [R, 4] float64: temperature, top_p, min_p, top_k; keys [R, 2].
std::vector<int64_t> choose(const std::vector<at::Tensor>& rows, const at::Tensor& parameters,
                            const at::Tensor& keys) {
  std::vector<at::Tensor> logits;
  for (const auto& row : rows) logits.push_back(row.to(at::kFloat).contiguous());
  const double* parameter = parameters.const_data_ptr<double>();
  const int32_t* key = keys.const_data_ptr<int32_t>();
  std::vector<int64_t> chosen(rows.size());
  at::parallel_for(0, rows.size(), 1, [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const double* own = parameter + 4 * i;
      const choice::Sampling sampling{own[0], own[1], own[2], static_cast<int64_t>(own[3]),
                                      {static_cast<uint32_t>(key[2 * i]),
                                       static_cast<uint32_t>(key[2 * i + 1])}};
      choice::Row row(logits[i].const_data_ptr<float>(), logits[i].size(0));
      chosen[i] = row.choose(sampling);
    }
  });
  return chosen;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(paceline, m) {
  m.class_<Package>("Package")
      .def(torch::init<std::string>())
      .def("constants", &Package::constants)
      .def("bind", &Package::bind)
      .def("run", &Package::run);
  m.def(
      "begin(Tensor[] keys, Tensor[] values, Tensor write_slots, Tensor first_rows, Tensor starts, "
      "Tensor blocks, int block_size) -> ()",
      begin);
  m.def("end() -> ()", end);
  m.def("choose(Tensor[] rows, Tensor parameters, Tensor keys) -> int[]");
  m.def("has_pairs() -> bool", has_pairs);
  m.def("multiply(Tensor x, Tensor panels, Tensor? bias, int out_features, int format) -> Tensor");
  m.def(
      "attend(Tensor query, Tensor key, Tensor value, int layer, float scale, int? window, "
      "float? softcap) -> Tensor");
}

TORCH_LIBRARY_IMPL(paceline, CPU, m) {
  m.impl("choose", choose);
  m.impl("multiply", multiply);
  m.impl("attend", attend);
}
