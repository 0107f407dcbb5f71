#include "compress/train/trainer.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "core/config.h"
#include "core/error.h"

namespace millrace::train {
namespace {

std::atomic<bool> stop_requested{false};

double wall_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_now() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

constexpr char kMagic[8] = {'M', 'R', 'T', 'R', 'A', 'I', 'N', '1'};

struct CheckpointHeader {
  char magic[8];
  int64_t parameters, step, tokens, position, training_points, validation_points;
  double seconds;
};

void write_bytes(std::ofstream& out, const void* data, size_t bytes) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  require(out.good(), ErrorCode::kIo, "'{}' could not be written", path.string());
}

}  // namespace

double measure_peak(ThreadPool& pool, Arithmetic arithmetic) {
  const auto work = arithmetic == Arithmetic::kBfloat16 ? kernels().peak_bf16 : kernels().peak_f32;
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    std::vector<double> operations(static_cast<size_t>(pool.num_threads()));
    const double start = wall_now();
    pool.run([&](int thread) { operations[static_cast<size_t>(thread)] = work(1 << 20); });
    double total = 0;
    for (const double part : operations) total += part;
    best = std::max(best, total / (wall_now() - start));
  }
  return best;
}

Trainer::Trainer(const TrainConfig& config, ThreadPool& pool, bool resume)
    : config_(config),
      pool_(pool),
      data_(config.data),
      sampler_(data_, config.seed, config.context, config.prompt_weight),
      model_(config.model, config.arithmetic, config.recompute_activations, config.micro_batch_tokens + 16,
             pool),
      optimizer_(config_, model_, pool) {
  require(data_.vocab_size() <= config.model.vocab_size, ErrorCode::kInvalidArgument,
          "token file '{}' has a vocabulary of {}, but the model has only {}", config.data.string(),
          data_.vocab_size(), config.model.vocab_size);
  if (!config.validation.empty()) validation_ = std::make_unique<Dataset>(config.validation);
  std::filesystem::create_directories(config.output);
  if (resume) {
    load(config.output / "checkpoint.bin");
    return;
  }
  model_.initialise(config.seed, config.init_std, config.similar_attention_start);
  if (config.start_from.empty()) return;
  TrainConfig other = load_config(config.start_from);
  other.start_from.clear();
  Trainer source(other, pool, /*resume=*/true);
  model_.start_from(source.model_);
}

void Trainer::request_stop() { stop_requested.store(true); }

double Trainer::train_step() {
  const double wall = wall_now(), cpu = cpu_now(), operations = model_.operations();
  std::vector<MicroBatch> parts(
      static_cast<size_t>(std::max(1, config_.batch_tokens / config_.micro_batch_tokens)));
  double weight = 0;
  int64_t predictions = 0;
  for (MicroBatch& part : parts) {
    sampler_.next(part, config_.micro_batch_tokens);
    weight += part.total_weight;
    predictions += part.predictions;
  }
  model_.clear_gradients();
  double loss = 0;
  for (const MicroBatch& part : parts)
    loss += model_
                .forward_backward(part, static_cast<float>(1.0 / std::max(weight, 1e-9)),
                                  config_.balance / static_cast<float>(parts.size()))
                .loss;
  loss /= std::max(weight, 1e-9);
  require(std::isfinite(loss), ErrorCode::kInvalidArgument,
          "the loss of step {} is not a number: the learning rate {} is too high", step_,
          config_.learning_rate);
  optimizer_.step(step_);
  ++step_;
  tokens_ += predictions;
  run_tokens_ += predictions;
  operations_ += model_.operations() - operations;
  cpu_seconds_ += cpu_now() - cpu;
  const double seconds = wall_now() - wall;
  wall_seconds_ += seconds;
  train_seconds_ += seconds;
  curve_.training.push_back({static_cast<double>(tokens_), loss});
  return loss;
}

double Trainer::validate() {
  if (!validation_) return 0;
  MicroBatch batch;
  double loss = 0, weight = 0;
  int64_t document = 0, seen = 0;
  while (document < validation_->num_documents() && seen < config_.validation_tokens) {
    batch.clear();
    for (; document < validation_->num_documents(); ++document) {
      const int count = std::min(validation_->length(document), config_.context + 1);
      if (batch.rows() > 0 && batch.rows() + count - 1 > config_.micro_batch_tokens) break;
      batch.add(validation_->tokens(document), validation_->answers(document), count, config_.prompt_weight);
    }
    batch.pad();
    const LossSum sum = model_.forward(batch);
    loss += sum.loss;
    weight += sum.weight;
    seen += batch.predictions;
  }
  return loss / std::max(weight, 1e-9);
}

void Trainer::show_progress(double loss, bool last) {
  smoothed_ = smoothed_ < 0 ? loss : 0.95 * smoothed_ + 0.05 * loss;
  const bool terminal = config::interactive_stderr();
  const double now = wall_now();
  if (!last && now - last_shown_ < (terminal ? 0.5 : 10.0)) return;
  last_shown_ = now;
  const double done = static_cast<double>(step_) / config_.steps;
  const auto left =
      static_cast<int64_t>(wall_seconds_ / static_cast<double>(std::max<int64_t>(1, run_tokens_)) *
                           static_cast<double>(tokens_) * (1.0 - done) / std::max(done, 1e-9));
  std::string bar(20, '.');
  std::fill_n(bar.begin(), static_cast<int>(done * 20), '#');
  const char* kind = config_.arithmetic == Arithmetic::kBfloat16 ? "bf16" : "fp32";
  const double per_cpu = operations_ / std::max(cpu_seconds_, 1e-9) * pool_.num_threads() / peak_;
  fmt::print(stderr,
             "{}[{}] step {}/{}  loss {:.4f}  {:.0f} tokens/s  {:.0f} % of {} peak ({:.0f} % by CPU time)  "
             "{}:{:02d}:{:02d} left{}",
             terminal ? "\r" : "", bar, step_, config_.steps, smoothed_,
             static_cast<double>(run_tokens_) / std::max(wall_seconds_, 1e-9),
             100.0 * operations_ / std::max(wall_seconds_, 1e-9) / peak_, kind, 100.0 * per_cpu, left / 3600,
             left / 60 % 60, left % 60, terminal && !last ? " " : "\n");
  std::fflush(stderr);
}

void Trainer::run(int64_t until) {
  stop_requested.store(false);
  peak_ = measure_peak(pool_, config_.arithmetic);
  fmt::print(
      stderr,
      "{} parameters, {} documents of {} tokens in all, {} kernels on {} threads, peak {:.0f} Gflop/s {}\n",
      model_.parameters().size(), data_.num_documents(), data_.num_tokens(), kernels().name,
      pool_.num_threads(), peak_ / 1e9, config_.arithmetic == Arithmetic::kBfloat16 ? "bf16" : "fp32");
  double last_saved = wall_now();
  const auto save_all = [&] {
    save(config_.output / "checkpoint.bin");
    write_text(config_.output / "loss.svg",
               curve_svg(curve_, fmt::format("{} parameters", model_.parameters().size())));
    last_saved = wall_now();
  };
  const int64_t end = std::min<int64_t>(until, config_.steps);
  while (step_ < end && !stop_requested.load()) {
    const double loss = train_step();
    show_progress(loss, step_ == end);
    if (validation_ && config_.validate_every_steps > 0 &&
        (step_ % config_.validate_every_steps == 0 || step_ == config_.steps)) {
      const double held_out = validate();
      curve_.validation.push_back({static_cast<double>(tokens_), held_out});
      fmt::print(stderr, "{}step {}: held-out loss {:.4f}, perplexity {:.3f}\n",
                 config::interactive_stderr() ? "\n" : "", step_, held_out, std::exp(held_out));
    }
    if (wall_now() - last_saved > config_.save_every_minutes * 60) save_all();
  }
  save_all();
}

void Trainer::save(const std::filesystem::path& path) const {
  const std::filesystem::path part = path.string() + ".part";
  CheckpointHeader h{};
  std::memcpy(h.magic, kMagic, 8);
  auto& self = const_cast<Trainer&>(*this);
  h.parameters = static_cast<int64_t>(self.model_.parameters().size());
  h.step = step_;
  h.tokens = tokens_;
  h.position = sampler_.position();
  h.training_points = static_cast<int64_t>(curve_.training.size());
  h.validation_points = static_cast<int64_t>(curve_.validation.size());
  h.seconds = train_seconds_;
  {
    std::ofstream out(part, std::ios::binary);
    const size_t bytes = static_cast<size_t>(h.parameters) * sizeof(float);
    write_bytes(out, &h, sizeof h);
    write_bytes(out, self.model_.parameters().data(), bytes);
    write_bytes(out, self.optimizer_.first_moment().data(), bytes);
    write_bytes(out, self.optimizer_.second_moment().data(), bytes);
    write_bytes(out, curve_.training.data(), curve_.training.size() * sizeof(CurvePoint));
    write_bytes(out, curve_.validation.data(), curve_.validation.size() * sizeof(CurvePoint));
    out.flush();
    require(out.good(), ErrorCode::kIo, "checkpoint '{}' could not be written", part.string());
  }
  std::filesystem::rename(part, path);
}

void Trainer::load(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.good(), ErrorCode::kNotFound, "checkpoint '{}' cannot be opened", path.string());
  CheckpointHeader h{};
  in.read(reinterpret_cast<char*>(&h), sizeof h);
  require(in.good() && std::memcmp(h.magic, kMagic, 8) == 0, ErrorCode::kInvalidFile,
          "'{}' is not a checkpoint", path.string());
  const auto count = static_cast<int64_t>(model_.parameters().size());
  require(h.parameters == count, ErrorCode::kInvalidFile,
          "checkpoint '{}' has {} parameters, but the config describes a model of {}", path.string(),
          h.parameters, count);
  const uint64_t size = std::filesystem::file_size(path);
  const auto points = static_cast<uint64_t>(h.training_points) + static_cast<uint64_t>(h.validation_points);
  require(h.step >= 0 && h.position >= 0 && h.training_points >= 0 && h.validation_points >= 0 &&
              points < (1u << 30) &&
              size == sizeof h + static_cast<uint64_t>(count) * 12 + points * sizeof(CurvePoint),
          ErrorCode::kInvalidFile, "checkpoint '{}' is damaged: its size of {} bytes does not fit its header",
          path.string(), size);
  const auto bytes = static_cast<std::streamsize>(count * 4);
  in.read(reinterpret_cast<char*>(model_.parameters().data()), bytes);
  in.read(reinterpret_cast<char*>(optimizer_.first_moment().data()), bytes);
  in.read(reinterpret_cast<char*>(optimizer_.second_moment().data()), bytes);
  curve_.training.resize(static_cast<size_t>(h.training_points));
  curve_.validation.resize(static_cast<size_t>(h.validation_points));
  in.read(reinterpret_cast<char*>(curve_.training.data()),
          static_cast<std::streamsize>(h.training_points * 16));
  in.read(reinterpret_cast<char*>(curve_.validation.data()),
          static_cast<std::streamsize>(h.validation_points * 16));
  require(in.good(), ErrorCode::kIo, "checkpoint '{}' could not be read to its end", path.string());
  step_ = h.step;
  tokens_ = h.tokens;
  train_seconds_ = h.seconds;
  sampler_.seek(h.position);
  model_.repack();
}

}  // namespace millrace::train
