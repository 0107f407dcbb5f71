// Work split and epilogues of the matrix multiplications.
#include "ops/matmul.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/checked.h"
#include "core/error.h"
#include "ops/lookahead.h"

namespace millrace::ops {
namespace {

using kernels::kMatmulRows;

/// Tokens that a unit of work takes at a time: their activations (two bytes a column and token) stay in the
/// second cache while the panels of the unit pass. Tiles take the columns a stretch at a time, which leaves
/// room for more tokens, and they need them: what they decode is decoded once for all.
constexpr int64_t kTokenChunk = 96, kVectorTile = 4;
constexpr int64_t kTileTokenChunk = 512;
constexpr int64_t kUnitPanels = 4;
constexpr int64_t kTileUnitPanels = 8;
/// Up to this many tokens tiles pass over the weights once, as fast as memory brings them.
constexpr int64_t kFewTileTokens = 64;
/// For few tokens a unit is a stretch of memory, long enough for prefetching to run.
constexpr int64_t kUnitBytes = 192 * 1024;
/// Up to this many tokens the results of a whole unit are finished together.
constexpr int64_t kFewTokens = 8;

uint64_t next_call() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool is_gated(const Epilogue& e) {
  return e.kind == Epilogue::Kind::kSwiGlu || e.kind == Epilogue::Kind::kGeGluTanh;
}

/// A thread's memory: unpacked weights for the kernels, and results before their epilogue.
struct Scratch {
  AlignedBuffer kernel{kernels::kMatmulScratchBytes};
  AlignedBuffer results[2];

  float* result(int which, int64_t floats) {
    AlignedBuffer& buffer = results[which];
    const auto bytes = static_cast<size_t>(floats) * sizeof(float);
    if (buffer.size() < bytes) buffer = AlignedBuffer(bytes);
    return buffer.as<float>();
  }
};

Scratch& thread_scratch() {
  thread_local Scratch scratch;
  return scratch;
}

/// What threads take of a call's work at a time.
struct Portions {
  int64_t count;        ///< of panels, or whatever they are
  int64_t most = 1;     ///< taken at once
  int64_t granule = 1;  ///< what is taken is a multiple of it, and so are `most` and `count`

  /// Where the share begins that a thread starts with; that of the thread behind the last: at `count`.
  int64_t share_begin(int thread, int threads) const {
    return std::min(ceil_div(count, most) * thread / threads * most, count);
  }
  /// What is taken of a share with `left`. Towards its end it gets less, so that threads end together: cores
  /// are not equally fast at every moment, and half of a unit is 6 % of what each of two threads does in a
  /// product of sixteen.
  int64_t take(int64_t left) const {
    return std::min(std::clamp(round_up(ceil_div(left, 3), granule), granule, most), left);
  }
};

/// Calls body(begin, end) on the threads until all is done: each begins with a contiguous share, so that
/// memory is read in long stretches, and one that has finished takes from the others' shares.
void for_portions(ThreadPool& pool, const Portions& portions, FunctionRef<void(int64_t, int64_t)> body) {
  const int threads = pool.num_threads();
  if (threads == 1 || portions.count <= portions.granule) {
    for (int64_t i = 0; i < portions.count; i += portions.most)
      body(i, std::min(i + portions.most, portions.count));
    return;
  }
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  thread_local std::vector<Share> shares;
  if (shares.size() < static_cast<size_t>(threads)) shares = std::vector<Share>(static_cast<size_t>(threads));
  for (int t = 0; t < threads; ++t) {
    shares[static_cast<size_t>(t)].next.store(portions.share_begin(t, threads), std::memory_order_relaxed);
    shares[static_cast<size_t>(t)].end = portions.share_begin(t + 1, threads);
  }
  Share* const all = shares.data();
  pool.run([&](int thread) {
    for (int i = 0; i < threads; ++i) {
      Share& share = all[(thread + i) % threads];
      int64_t begin = share.next.load(std::memory_order_relaxed);
      while (begin < share.end) {
        const int64_t end = begin + portions.take(share.end - begin);
        if (!share.next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
        body(begin, end);
        begin = share.next.load(std::memory_order_relaxed);
      }
    }
  });
}

/// One matrix, the rows of an input it meets, and where the results go.
struct Job {
  const PackedMatrix& w;
  const kernels::MatmulKernel& kernel;
  const std::byte* input;  ///< prepared form, first token
  int64_t input_stride;    ///< bytes
  int64_t begin;           ///< index of the first token in the whole input
  int64_t tokens;
  float* y;
  int64_t y_stride;
  const Epilogue& epilogue;
  uint64_t call;  ///< its name for the kernels

  int64_t out_rows() const { return is_gated(epilogue) ? w.rows_ / 2 : w.rows_; }
  int64_t out_panels() const { return (out_rows() + kMatmulRows - 1) / kMatmulRows; }
  bool tiles() const { return &kernel != &w.layout_->few; }
  /// Nothing is to be done to what the kernel puts to y, where its rows do not fall into the same few sets of
  /// the first cache: logits, whose copying is a hundredth of a step with sixteen answers.
  bool stores_directly() const {
    return epilogue.kind == Epilogue::Kind::kStore && !epilogue.bias && epilogue.scale == 1.0f &&
           y_stride % 1024 != 0;
  }
  /// One pass over the weights, bound by memory.
  bool streams() const { return tokens <= (tiles() ? kFewTileTokens : kFewTokens); }
};

void add_bias(float* values, const Epilogue& e, int64_t first_row, int64_t rows) {
  if (e.scale != 1.0f)
    for (int64_t i = 0; i < rows; ++i) values[i] *= e.scale;
  if (e.bias)
    for (int64_t i = 0; i < rows; ++i) values[i] += e.bias[first_row + i];
}

/// Results [tokens, stride] of rows from first_row on, to y.
void finish(const Context& context, const Job& job, int64_t first_row, int64_t rows, int64_t first_token,
            int64_t tokens, float* results, float* up, int64_t stride) {
  const Epilogue& e = job.epilogue;
  const bool plain = e.scale == 1.0f && !e.bias;
  for (int64_t t = 0; t < tokens; ++t, results += stride, up += stride) {
    float* y = e.input ? results : job.y + (first_token + t) * job.y_stride + first_row;
    if (!plain) add_bias(results, e, first_row, rows);
    switch (e.kind) {
      case Epilogue::Kind::kStore:
        std::memcpy(y, results, static_cast<size_t>(rows) * sizeof(float));
        break;
      case Epilogue::Kind::kAdd:
        context.kernels.add(y, results, rows);
        break;
      case Epilogue::Kind::kSwiGlu:
      case Epilogue::Kind::kGeGluTanh:
        if (!plain) add_bias(up, e, first_row + job.out_rows(), rows);
        if (e.kind == Epilogue::Kind::kSwiGlu)
          context.kernels.silu_mul(y, results, up, rows);
        else
          context.kernels.gelu_tanh_mul(y, results, up, rows);
        if (e.input) put_columns(context, *e.input, e.form, job.begin + first_token + t, first_row, y, rows);
        break;
    }
  }
}

/// The panels [begin, end) of the outputs for all of the job's tokens.
void run_unit(const Context& context, const Job& job, int64_t begin, int64_t end) {
  const PackedMatrix& w = job.w;
  Scratch& scratch = thread_scratch();
  // Chunks of nearly equal size, since a short one is not worth its decoding, and of whole tiles of vectors.
  const int64_t most = job.tiles() ? kTileTokenChunk : kTokenChunk;
  const int64_t chunk = round_up(ceil_div(job.tokens, ceil_div(job.tokens, most)), kVectorTile);
  const int64_t rows = (end - begin) * kMatmulRows;
  const bool gated = is_gated(job.epilogue), direct = job.stores_directly() && end * kMatmulRows <= w.rows_;
  const int64_t stride = direct ? job.y_stride : rows;
  float* results = direct ? nullptr : scratch.result(0, chunk * stride);
  float* up = gated ? scratch.result(1, chunk * stride) : nullptr;
  kernels::MatmulTask task{};
  task.panel_bytes = w.panel_bytes_;
  task.cols = w.cols_;
  task.input_stride = job.input_stride;
  task.out_stride = stride;
  task.scratch = scratch.kernel.data();
  task.call = job.call;
  for (int64_t first = 0; first < job.tokens; first += chunk) {
    task.tokens = std::min(chunk, job.tokens - first);
    task.input = job.input + first * job.input_stride;
    task.num_panels = end - begin;
    task.panels = w.data_.data() + begin * w.panel_bytes_;
    task.out = direct ? job.y + first * stride + begin * kMatmulRows : results;
    job.kernel.run(task);
    if (direct) continue;
    if (gated) {
      task.panels += job.out_rows() / kMatmulRows * w.panel_bytes_;
      task.out = up;
      job.kernel.run(task);
    }
    const int64_t row = begin * kMatmulRows;
    finish(context, job, row, std::min(job.out_rows() - row, stride), first, task.tokens, results, up,
           stride);
  }
}

/// A matrix times the rows [begin, end) of an input, in the form that the kernel reads.
Job make_job(const Context& context, const PackedMatrix& w, bool rounded, MatmulInput& x, int64_t begin,
             int64_t end, float* y, int64_t y_stride, const Epilogue& epilogue, uint64_t call) {
  const kernels::MatmulKernel& kernel =
      rounded ? w.layout_->rounded : w.layout_->kernel(end - begin, w.cols_);
  const auto form = static_cast<InputForm>(kernel.input);
  prepare_rows(context, x, form, begin, end);
  const std::byte* rows = form == InputForm::kF32 ? reinterpret_cast<const std::byte*>(x.f32)
                                                  : x.prepared[static_cast<size_t>(form)].rows;
  const int64_t stride = prepared_stride(form, x);
  return {w,
          kernel,
          rows + begin * stride,
          stride,
          begin,
          end - begin,
          y ? y + begin * y_stride : nullptr,
          y_stride,
          epilogue,
          call};
}

/// One matrix and all rows that it meets: rounded ones, others, or both, for which the weights of a unit of
/// work come from memory once.
struct Product {
  std::optional<Job> rounded, exact;

  Product(const Context& context, const PackedMatrix& w, MatmulInput& x, int64_t begin, int64_t border,
          int64_t end, float* y, int64_t y_stride, const Epilogue& epilogue, uint64_t call) {
    if (!w.layout_->rounded.run) border = begin;
    if (begin < border)
      rounded.emplace(make_job(context, w, true, x, begin, border, y, y_stride, epilogue, call));
    if (border < end) exact.emplace(make_job(context, w, false, x, border, end, y, y_stride, epilogue, call));
  }

  int64_t out_panels() const { return (rounded ? *rounded : *exact).out_panels(); }

  /// Panels in a unit, so that there are a few units for each thread and none is too small to be worth it.
  int64_t unit_panels(int threads, int64_t experts) const {
    int64_t wanted = out_panels();
    for (const auto* job : {&rounded, &exact}) {
      if (!*job) continue;
      // Of gated ones a unit has twice as many, of either half.
      const int64_t unit_bytes = is_gated((*job)->epilogue) ? kUnitBytes / 2 : kUnitBytes;
      wanted = std::min(wanted, (*job)->streams() ? std::max<int64_t>(1, unit_bytes / (*job)->w.panel_bytes_)
                                : (*job)->tiles() ? kTileUnitPanels
                                                  : kUnitPanels);
    }
    const int64_t fair = out_panels() * experts / (threads * 4);
    return round_up(std::max<int64_t>(1, std::min(wanted, fair)), granule());
  }
  /// Panels that stay together: what makes super-blocks makes whole ones.
  int64_t granule() const {
    const Epilogue& epilogue = (rounded ? *rounded : *exact).epilogue;
    return epilogue.input && epilogue.form == InputForm::kInt8Super ? kernels::kSuperCols / kMatmulRows : 1;
  }

  /// What a thread reads first whose share is the panels [first, last): all of it, which lies in one piece;
  /// of a pair of gates the `taken` rows of the gate that it takes first, then those of the other.
  Lookahead::Beginning beginning(int64_t first, int64_t last, int64_t taken) const {
    const Job& job = rounded ? *rounded : *exact;
    const auto stretch = [&](int64_t panel, int64_t panels) {
      return Lookahead::Beginning::Stretch{job.w.data_.data() + panel * job.w.panel_bytes_,
                                           panels * job.w.panel_bytes_};
    };
    if (!is_gated(job.epilogue)) return {{stretch(first, last - first), {}}};
    return {{stretch(first, taken), stretch(first + out_panels(), taken)}};
  }
  bool streams() const { return (!rounded || rounded->streams()) && (!exact || exact->streams()); }

  void run(const Context& context, int64_t begin, int64_t end) const {
    if (rounded) run_unit(context, *rounded, begin, end);
    if (exact) run_unit(context, *exact, begin, end);
  }
};

void check_shapes(const PackedMatrix& w, const MatmulInput& x, const Epilogue& epilogue) {
  check(w.layout_ != nullptr && w.cols_ == x.cols, "a matrix of {} columns meets activations of {}", w.cols_,
        x.cols);
  check(!is_gated(epilogue) || w.rows_ % 2 == 0, "a gated matrix has {} rows, expected an even number",
        w.rows_);
  check(!epilogue.input ||
            (is_gated(epilogue) && epilogue.input->cols == w.rows_ / 2 && epilogue.input->tokens == x.tokens),
        "an epilogue makes an input of {} rows of {} columns", x.tokens, w.rows_ / 2);
}

std::string_view profile_name(DType type, bool experts) {
  static const auto names = [] {
    std::array<std::array<std::string, 2>, static_cast<size_t>(DType::kCount)> list;
    for (size_t i = 0; i < list.size(); ++i) {
      list[i][0] = fmt::format("matmul {}", dtype_name(static_cast<DType>(i)));
      list[i][1] = fmt::format("experts {}", dtype_name(static_cast<DType>(i)));
    }
    return list;
  }();
  return names[static_cast<size_t>(type)][experts];
}

/// Gate and up rows that do not begin at a panel's edge: all rows are computed first (`product` stores
/// [tokens, rows] with a plain epilogue), then paired.
void gated_by_parts(const Context& context, int64_t tokens, int64_t rows, float* y, int64_t y_stride,
                    const Epilogue& epilogue, FunctionRef<void(float*, const Epilogue&)> product) {
  const Arena::Mark mark = context.arena.mark();
  float* both = context.arena.allocate<float>(tokens * rows);
  product(both, {Epilogue::Kind::kStore, epilogue.bias, epilogue.scale});
  const int64_t half = rows / 2;
  const int64_t grain = std::max<int64_t>(1, 16384 / rows);
  context.pool.parallel_for(tokens, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      const float* gate = both + t * rows;
      if (epilogue.kind == Epilogue::Kind::kSwiGlu)
        context.kernels.silu_mul(y + t * y_stride, gate, gate + half, half);
      else
        context.kernels.gelu_tanh_mul(y + t * y_stride, gate, gate + half, half);
    }
  });
  context.arena.release(mark);
}

/// Makes what the experts read of their rows in as few passes as there are forms.
void prepare_grouped(const Context& context, std::span<const PackedMatrix> experts, MatmulInput& x,
                     std::span<const int32_t> row_offsets, std::span<const int32_t> rounded) {
  for (size_t e = 0; e < experts.size(); ++e) {
    const bool has_rounded = experts[e].layout_->rounded.run != nullptr;
    const int32_t rows = row_offsets[e + 1] - row_offsets[e];
    const int32_t first = rounded.empty() || !has_rounded ? 0 : rounded[e];
    if (first > 0)
      prepare_rows(context, x, static_cast<InputForm>(experts[e].layout_->rounded.input), 0, x.tokens);
    if (first < rows) prepare_rows(context, x, experts[e].input_form(), 0, x.tokens);
  }
}

/// Says what a product reads first, if memory is what it waits for.
void announce(const Context& context, const Product* product, const Portions& portions) {
  if (!context.lookahead) return;
  thread_local std::vector<Lookahead::Beginning> beginnings;
  beginnings.clear();
  const int threads = context.pool.num_threads();
  if (product && product->streams() && portions.count > portions.most && threads > 1) {
    for (int t = 0; t < threads; ++t) {
      const int64_t first = portions.share_begin(t, threads), last = portions.share_begin(t + 1, threads);
      beginnings.push_back(first < last ? product->beginning(first, last, portions.take(last - first))
                                        : Lookahead::Beginning());
    }
  }
  context.lookahead->product(beginnings);
}

bool needs_parts(const PackedMatrix& w, const Epilogue& epilogue) {
  return is_gated(epilogue) && w.rows_ / 2 % kMatmulRows != 0;
}

}  // namespace

void matmul(const Context& context, const PackedMatrix& w, MatmulInput& x, float* y, int64_t y_stride,
            const Epilogue& epilogue) {
  check_shapes(w, x, epilogue);
  if (x.tokens == 0) return;
  prepare_input(context, x, w.input_form());
  if (needs_parts(w, epilogue)) {
    return gated_by_parts(
        context, x.tokens, w.rows_, y, y_stride, epilogue,
        [&](float* both, const Epilogue& plain) { matmul(context, w, x, both, w.rows_, plain); });
  }
  const auto work =
      static_cast<double>(w.rows_) * static_cast<double>(w.cols_) * static_cast<double>(x.tokens);
  const ProfileScope scope(context, profile_name(w.source_type_, false), static_cast<double>(w.bytes()),
                           2 * work);
  const Product product(context, w, x, 0, std::min(x.rounded, x.tokens), x.tokens, y, y_stride, epilogue,
                        next_call());
  const int64_t panels = product.out_panels();
  const bool small = work < 1 << 16;  // for one thread
  const Portions portions{panels, small ? panels : product.unit_panels(context.pool.num_threads(), 1),
                          small ? panels : product.granule()};
  announce(context, &product, portions);
  for_portions(context.pool, portions, [&](int64_t begin, int64_t end) { product.run(context, begin, end); });
}

void grouped_matmul(const Context& context, std::span<const PackedMatrix> experts, MatmulInput& x,
                    std::span<const int32_t> row_offsets, std::span<const int32_t> rounded, float* y,
                    int64_t y_stride, const Epilogue& epilogue) {
  check(row_offsets.size() == experts.size() + 1, "{} experts with {} offsets", experts.size(),
        row_offsets.size());
  check(rounded.empty() || rounded.size() == experts.size(), "{} experts with {} counts of rounded rows",
        experts.size(), rounded.size());
  if (experts.empty() || row_offsets.back() == row_offsets.front()) return;
  prepare_grouped(context, experts, x, row_offsets, rounded);
  if (needs_parts(experts[0], epilogue)) {
    const int64_t rows = experts[0].rows_;
    return gated_by_parts(context, x.tokens, rows, y, y_stride, epilogue,
                          [&](float* both, const Epilogue& plain) {
                            grouped_matmul(context, experts, x, row_offsets, rounded, both, rows, plain);
                          });
  }
  // Products and where their units begin live in the arena: nothing is allocated in a step.
  const Arena::Mark mark = context.arena.mark();
  auto* products =
      static_cast<Product*>(context.arena.allocate_bytes(sizeof(Product) * (experts.size() + 1)));
  int64_t* first_unit = context.arena.allocate<int64_t>(static_cast<int64_t>(experts.size()) + 1);
  const uint64_t call = next_call();
  int64_t used = 0;
  double bytes = 0, work = 0;
  for (const int32_t begin : row_offsets.first(experts.size())) used += begin < row_offsets.back();
  const int64_t sharers = std::max<int64_t>(1, used);
  used = 0;
  for (size_t e = 0; e < experts.size(); ++e) {
    const PackedMatrix& w = experts[e];
    check_shapes(w, x, epilogue);
    if (row_offsets[e] >= row_offsets[e + 1]) continue;
    const int32_t begin = row_offsets[e], border = begin + (rounded.empty() ? 0 : rounded[e]);
    new (products + used++)
        Product(context, w, x, begin, border, row_offsets[e + 1], y, y_stride, epilogue, call);
    bytes += static_cast<double>(w.bytes());
    work +=
        static_cast<double>(w.rows_) * static_cast<double>(w.cols_) * (row_offsets[e + 1] - row_offsets[e]);
  }
  const ProfileScope scope(context, profile_name(experts[0].source_type_, true), bytes, 2 * work);
  first_unit[0] = 0;
  const int threads = context.pool.num_threads();
  for (int64_t i = 0; i < used; ++i) {
    const int64_t per_unit = products[i].unit_panels(threads, sharers);
    first_unit[i + 1] = first_unit[i] + ceil_div(products[i].out_panels(), per_unit);
  }
  const Portions portions{first_unit[used]};
  announce(context, nullptr, portions);  // which experts come next nobody knows
  for_portions(context.pool, portions, [&](int64_t unit, int64_t) {
    const int64_t i = std::upper_bound(first_unit, first_unit + used + 1, unit) - first_unit - 1;
    const int64_t per_unit = products[i].unit_panels(threads, sharers);
    const int64_t begin = (unit - first_unit[i]) * per_unit;
    products[i].run(context, begin, std::min(begin + per_unit, products[i].out_panels()));
  });
  context.arena.release(mark);
}

}  // namespace millrace::ops
