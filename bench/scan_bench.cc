// Times the recurrences and the convolution of state-space layers alone, at published widths: tokens a second
// of one layer, and for the recurrences the rate of what every form has to do (read the state, write it) as a
// share of the machine's peak of single precision.
//
//   scan_bench [NAME,...] [SEQUENCESxTOKENS,...] [THREADS] [ISA]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "core/checked.h"
#include "core/cpu.h"
#include "core/error.h"
#include "ops/matmul.h"
#include "ops/ssm.h"

namespace millrace {
namespace {

using bench::now;
using bench::peak;
using bench::split;

/// Where the engine's rows and states lie: aligned, in large pages.
class Floats {
 public:
  explicit Floats(int64_t n, float low = 0, float high = 0)
      : memory_(std::make_shared<AlignedBuffer>(static_cast<size_t>(n) * sizeof(float))) {
    static std::mt19937 random(7);
    std::uniform_real_distribution<float> draw(low, high);
    for (int64_t i = 0; i < n; ++i) data()[i] = low == high ? low : draw(random);
  }
  float* data() const { return memory_->as<float>(); }

 private:
  std::shared_ptr<AlignedBuffer> memory_;
};

/// What is timed: a step over the sequences, and its operations a token.
struct Case {
  int64_t state_floats;
  double operations;
  std::function<void(const ops::Context&, std::span<const ops::StateSequence>)> step;
};

Case head_case(const ops::HeadScanShape& s, int64_t rows) {
  const int64_t inner = int64_t{s.heads} * s.head_dim, bc = int64_t{s.groups} * s.state_size,
                width = inner + 2 * bc;
  const Floats x(rows * width, -1, 1), dt(rows * s.heads, 0.001f, 0.1f), a(s.heads, -16, -1),
      d(s.heads, 0, 1);
  const Floats y(rows * inner);
  const double operations = 4.0 * static_cast<double>(inner * s.state_size);
  return {ops::head_scan_floats(s), operations,
          [=](const ops::Context& context, std::span<const ops::StateSequence> step) {
            const ops::HeadScanInput input{
                x.data(), dt.data(), x.data() + inner, x.data() + inner + bc, width, s.heads, width,
                width,    a.data(),  d.data()};
            ops::head_scan(context, step, s, input, y.data(), inner);
          }};
}

Case delta_case(const ops::DeltaRuleShape& s, int64_t rows) {
  const int64_t keys = int64_t{s.key_heads} * s.key_dim, values = int64_t{s.value_heads} * s.value_dim,
                width = 2 * keys + values;
  const Floats x(rows * width, -1, 1), decay(rows * s.value_heads, -1, 0), beta(rows * s.value_heads, 0, 1);
  const Floats y(rows * values);
  const double operations = 6.0 * static_cast<double>(values * s.key_dim);
  return {ops::delta_rule_floats(s), operations,
          [=](const ops::Context& context, std::span<const ops::StateSequence> step) {
            ops::DeltaRuleInput input{
                x.data(), x.data() + keys, x.data() + 2 * keys, decay.data(), beta.data(), width,
                width,    width,           s.value_heads,       s.value_heads};
            input.scale = 0.088f;
            input.l2_epsilon = 1e-6f;
            ops::gated_delta_rule(context, step, s, input, y.data(), values);
          }};
}

Case conv_case(int32_t channels, int64_t rows) {
  const Floats x(rows * channels, -1, 1), weight(int64_t{channels} * 4, -1, 1), bias(channels, -1, 1);
  const Floats y(rows * channels);
  return {ops::conv_state_floats(channels, 4), 8.0 * channels,
          [=](const ops::Context& context, std::span<const ops::StateSequence> step) {
            ops::causal_conv1d(context, step, x.data(), channels, weight.data(), bias.data(), channels, 4,
                               ops::Activation::kSilu, y.data(), channels);
          }};
}

Case make_case(const std::string& name, int64_t rows) {
  if (name == "mamba2-2.7b") return head_case({80, 64, 128, 1}, rows);
  if (name == "codestral") return head_case({128, 64, 128, 8}, rows);
  if (name == "small-state") return head_case({64, 64, 16, 1}, rows);
  if (name == "qwen3-next") return delta_case({16, 32, 128, 128}, rows);
  if (name == "conv") return conv_case(8192, rows);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("no case '{}'", name));
}

int run(int argc, char** argv) {
  const auto names = split(argc > 1 ? argv[1] : "mamba2-2.7b,codestral,qwen3-next,conv");
  const auto steps = split(argc > 2 ? argv[2] : "1x512,8x1");
  ThreadPool pool(argc > 3 ? std::stoi(argv[3]) : 0);
  const IsaLevel isa = parse_isa(argc > 4 ? argv[4] : "auto");
  Arena arena;
  const ops::Context context{pool, kernels::table(isa), arena};
  const double f32 = peak(pool, kernels::matmul_peaks(isa).f32);
  fmt::print("{} threads, {}: f32 {:.0f} Gop/s\n", pool.num_threads(), isa_name(isa), f32 / 1e9);
  for (const std::string& name : names)
    for (const std::string& step : steps) {
      const auto parts = split(step, 'x');
      const int32_t sequences = std::stoi(parts.at(0)), tokens = std::stoi(parts.at(1));
      Case timed = make_case(name, int64_t{sequences} * tokens);
      const int64_t each = round_up(timed.state_floats, 16);  // whole cache lines, as in the cache
      const Floats states(each * sequences);
      std::vector<ops::StateSequence> batch;
      for (int32_t i = 0; i < sequences; ++i) batch.push_back({i * tokens, tokens, states.data() + each * i});
      std::vector<double> seconds;
      const double end = now() + 1.0;
      while (now() < end || seconds.size() < 5) {
        const double begin = now();
        timed.step(context, batch);
        seconds.push_back(now() - begin);
        arena.reset();
      }
      std::sort(seconds.begin(), seconds.end());
      const double median = seconds[seconds.size() / 2], rows = double{1} * sequences * tokens;
      fmt::print("{:12} {:6}: {:9.2f} us a token, best {:9.2f}, {:5.1f} Gop/s, {:4.1f} % of peak\n", name,
                 step, median / rows * 1e6, seconds.front() / rows * 1e6,
                 timed.operations * rows / median / 1e9, 100 * timed.operations * rows / median / f32);
    }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::bench::guarded("scan_bench", millrace::run, argc, argv); }
