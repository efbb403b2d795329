// What a step on a CPU calls apart from the code compiled for its model: attention over the block
// pool, products with packed weights, and the choice of tokens. Same results as
// attention.py and sampling.py, to rounding.
//
// Shape legend: N packed tokens, H query heads, K KV heads, D and E dims of keys and values.

#include <ATen/Parallel.h>
#include <ATen/ATen.h>
#include <torch/library.h>

#include <atomic>
#include <memory>
#include <vector>

#include "attention.h"
#include "choice.h"
#include "package.h"
#include "pairs.h"
#include "product.h"

namespace {

// Fewer inputs than this are rounded sooner than another thread is woken.
constexpr int64_t kInputsOfThread = 32768;
// Keys or values of so many tokens, in one head, likewise.
constexpr int64_t kTokensOfThread = 256;

// The forward that this thread runs.
struct Forward {
  std::vector<at::Tensor> keys, values;  // a layer: [K, slots, D] and [K, slots, E], blocks of keys
                                         // turned to [D, block_size]
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

// fresh [1, K, N, D] to the pool [K, blocks, block_size, D] as it is, or with each block turned.
void write(const at::Tensor& pool, const at::Tensor& fresh, bool is_turned) {
  const auto source = fresh.select(0, 0).contiguous();
  const int64_t num_tokens = source.size(1), dim = source.size(2), size = current.block_size;
  const int64_t* slot = current.write_slots.const_data_ptr<int64_t>();
  const float* from = source.const_data_ptr<float>();
  float* to = pool.mutable_data_ptr<float>();
  const int64_t pool_size = pool.size(1) * dim;
  at::parallel_for(0, source.size(0) * num_tokens, kTokensOfThread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t own = slot[i % num_tokens];
      const float* line = from + i * dim;
      float* head = to + i / num_tokens * pool_size;
      if (is_turned) {
        float* first = head + own / size * size * dim + own % size;
        for (int64_t d = 0; d < dim; ++d) first[d * size] = line[d];
      } else {
        std::copy_n(line, dim, head + own * dim);
      }
    }
  });
}

// Some rows of one sequence and KV head.
struct Tile {
  int64_t seq, kv_head, row, height;
};

// [1, H, N, D], [1, K, N, D], [1, K, N, E] -> [1, N, H, E], all float32.
at::Tensor attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  int64_t layer, double scale, std::optional<int64_t> window,
                  std::optional<double> softcap) {
  const at::Tensor& keys = current.keys.at(layer);
  const at::Tensor& values = current.values.at(layer);
  const auto q = query.select(0, 0).contiguous();  // [H, N, D]
  const int64_t num_heads = q.size(0), num_tokens = q.size(1), key_dim = q.size(2);
  const int64_t kv_heads = keys.size(0), value_dim = values.size(2), num_slots = keys.size(1);
  auto out = at::empty({1, num_tokens, num_heads, value_dim}, q.options());
  if (num_heads == 0) return out;
  write(keys, key, true);
  write(values, value, false);
  const int64_t group_size = num_heads / kv_heads, num_seqs = current.starts.size(0);
  const int64_t* first_rows = current.first_rows.const_data_ptr<int64_t>();
  const int64_t* starts = current.starts.const_data_ptr<int64_t>();
  const int64_t* blocks = current.blocks.const_data_ptr<int64_t>();
  // Other threads have no `current`.
  const int64_t most_blocks = current.blocks.size(1), block_size = current.block_size;
  std::vector<Tile> tiles;
  for (int64_t seq = 0; seq < num_seqs; ++seq)
    for (int64_t head = 0; head < kv_heads; ++head)
      attention::by_tile((first_rows[seq + 1] - first_rows[seq]) * group_size,
                         [&](int64_t row, int64_t height) {
                           tiles.push_back({seq, head, row, height});
                         });
  const float* q_data = q.const_data_ptr<float>();
  const float* k_data = keys.const_data_ptr<float>();
  const float* v_data = values.const_data_ptr<float>();
  float* out_data = out.mutable_data_ptr<float>();
  const int64_t num_tiles = tiles.size();
  std::atomic<int64_t> taken = 0;  // they take unlike times
  at::parallel_for(0, std::min<int64_t>(num_tiles, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    attention::Scratch scratch;
    const float* q_rows[attention::kMostRows];
    float* out_rows[attention::kMostRows];
    // From the last on, as later queries see more.
    for (int64_t index; (index = num_tiles - 1 - taken++) >= 0;) {
      const Tile& tile = tiles[index];
      const attention::Sequence sequence{first_rows[tile.seq + 1] - first_rows[tile.seq],
                                         starts[tile.seq],
                                         window.value_or(0),
                                         group_size,
                                         block_size,
                                         blocks + tile.seq * most_blocks,
                                         static_cast<float>(scale),
                                         static_cast<float>(softcap.value_or(0.0))};
      for (int64_t r = 0; r < tile.height; ++r) {
        const int64_t token = first_rows[tile.seq] + (tile.row + r) / group_size;
        const int64_t head = tile.kv_head * group_size + (tile.row + r) % group_size;
        q_rows[r] = q_data + (head * num_tokens + token) * key_dim;
        out_rows[r] = out_data + (token * num_heads + head) * value_dim;
      }
      const attention::Pool pool{k_data + tile.kv_head * num_slots * key_dim,
                                 v_data + tile.kv_head * num_slots * value_dim, key_dim, value_dim};
      product::with_constant<attention::kMostRows>(tile.height, [&](auto rows) {
        attention::tile<rows.value>(sequence, pool, tile.row, q_rows, out_rows, scratch);
      });
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
