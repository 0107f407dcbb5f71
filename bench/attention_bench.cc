// Times paged attention alone, with no model around it: a step of some sequences, each with some query rows
// over a context of some depth, in the shape of a small Llama (32 query heads, 8 KV heads of 64), beside
// plain reading of the same memory in turn. Caches of `layers` layers are used one after the other, as in a
// model.
//
//   attention_bench [ROWSxSEQUENCESxDEPTH[+ROWSxSEQUENCESxDEPTH...],...] [THREADS] [ISA] [KV] [LAYERS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "core/cpu.h"
#include "core/error.h"
#include "kernels/matmul.h"
#include "ops/attention.h"

namespace millrace {
namespace {

using bench::now;
using bench::split;

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

constexpr int32_t kHeads = 32, kKvHeads = 8, kDim = 64, kBlock = 16;

struct Work {
  std::vector<ops::AttentionSequence> sequences;
  std::vector<std::vector<int32_t>> tables;
  int32_t rows = 0, blocks = 0;
};

Work make_work(const std::string& text) {
  Work w;
  for (const std::string& part : split(text, '+')) {
    const auto n = split(part, 'x');
    require(n.size() == 3, ErrorCode::kInvalidArgument, "'{}' is not ROWSxSEQUENCESxDEPTH", part);
    for (int s = 0; s < std::stoi(n[1]); ++s) {
      const int32_t rows = std::stoi(n[0]), depth = std::stoi(n[2]);
      std::vector<int32_t> table;
      for (int32_t b = 0; b * kBlock < depth + rows; ++b) table.push_back(w.blocks++);
      w.tables.push_back(table);
      w.sequences.push_back({w.rows, rows, depth + rows, {}});
      w.rows += rows;
    }
  }
  for (size_t i = 0; i < w.tables.size(); ++i) w.sequences[i].block_table = w.tables[i];
  return w;
}

int run(int argc, char** argv) {
  const auto shapes = split(argc > 1 ? argv[1] : "1x1x4096,1x8x1024,512x1x0,64x1x4000+1x8x1000", ',');
  ThreadPool pool(argc > 2 ? std::stoi(argv[2]) : 0);
  const IsaLevel isa = parse_isa(argc > 3 ? argv[3] : "auto");
  const auto format = static_cast<ops::KvFormat>(argc > 4 ? std::stoi(argv[4]) : 1);
  const int layers = argc > 5 ? std::stoi(argv[5]) : 16;
  Arena arena;
  const ops::Context context{pool, kernels::table(isa), arena, nullptr};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const int64_t block_bytes = ops::kv_block_bytes(format, kBlock, kKvHeads, kDim, kDim);
  const ops::AttentionShape shape{kHeads, kKvHeads, kDim, kDim, kBlock, format, block_bytes};
  ops::AttentionOptions options;
  options.scale = 0.125f;
  for (const std::string& text : shapes) {
    const Work work = make_work(text);
    const auto rows = static_cast<size_t>(work.rows);
    std::vector<float> q(rows * kHeads * kDim), kv(rows * kKvHeads * kDim), out(q.size());
    for (auto& x : q) x = normal(random);
    for (auto& x : kv) x = normal(random);
    const size_t bytes = static_cast<size_t>(work.blocks) * static_cast<size_t>(block_bytes);
    std::vector<AlignedBuffer> cache;
    for (int l = 0; l < layers; ++l) {
      cache.emplace_back(bytes);
      auto* p = reinterpret_cast<uint16_t*>(cache.back().data());
      // bfloat16 of about one; as other formats some numbers, whatever.
      for (size_t i = 0; i < bytes / 2; ++i) p[i] = static_cast<uint16_t>(0x3f00 + (i * 40503 >> 7 & 0x807f));
    }
    double pairs = 0, read = 0;
    for (const auto& s : work.sequences) {
      pairs += s.query_length * (s.context_length - 0.5 * s.query_length);
      read += static_cast<double>(s.block_table.size()) * static_cast<double>(block_bytes);
    }
    std::vector<double> times, reads;
    const double stop = now() + 1.0;
    do {
      double begin = now();
      for (int l = 0; l < layers; ++l) {
        arena.reset();
        ops::paged_attention(context, shape, options, work.sequences, q.data(), kHeads * kDim, kv.data(),
                             kKvHeads * kDim, kv.data(), kKvHeads * kDim,
                             cache[static_cast<size_t>(l)].data(), out.data(), kHeads * kDim);
      }
      times.push_back((now() - begin) / layers);
      begin = now();
      for (int l = 0; l < layers; ++l)
        pool.run([&](int t) {
          const size_t share = bytes / static_cast<size_t>(pool.num_threads()) / 64 * 64;
          kernels::read_stream(cache[static_cast<size_t>(l)].data() + share * static_cast<size_t>(t), share);
        });
      reads.push_back((now() - begin) / layers);
    } while (now() < stop);
    double sum = 0;
    for (float x : out) sum += std::fabs(x);
    const double t = median(times), r = median(reads), best = *std::min_element(times.begin(), times.end());
    const double work_done = pairs * kHeads * 4 * kDim;
    fmt::print(
        "{:28} {:8.3f} ms (best {:8.3f})  {:6.1f} GB/s {:7.1f} Gop/s   plain reading {:8.3f} ms {:6.1f} GB/s "
        " share {:3.0f}%  sum {:.6g}\n",
        text, t * 1e3, best * 1e3, read / t / 1e9, work_done / t / 1e9, r * 1e3, read / r / 1e9, 100 * r / t,
        sum);
    std::fflush(stdout);
  }
  return 0;
}
}  // namespace
}  // namespace millrace
int main(int argc, char** argv) {
  return millrace::bench::guarded("attention_bench", millrace::run, argc, argv);
}
