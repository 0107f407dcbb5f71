// The training loop: steps, validation, checkpoints, progress and the loss curve.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compress/train/config.h"
#include "compress/train/dataset.h"
#include "compress/train/model.h"
#include "compress/train/optimizer.h"

namespace millrace::train {

struct CurvePoint {
  double tokens;  ///< seen when it was measured
  double loss;    ///< mean per weighted token, natural logarithm
};

struct Curve {
  std::vector<CurvePoint> training, validation;
};

/// A picture of the curve, training grey and validation dark; axes are tokens and loss.
std::string curve_svg(const Curve& curve, const std::string& title);

/// Floating-point operations a second that all threads of the pool reach in register-only multiply-adds: the
/// best of a few short runs.
double measure_peak(ThreadPool& pool, Arithmetic arithmetic);

class Trainer {
 public:
  /// Opens the data and makes or, with `resume`, reads the state of `config.output`/checkpoint.bin.
  Trainer(const TrainConfig& config, ThreadPool& pool, bool resume);

  /// Runs until config.steps (or `until`, if that is less), or until request_stop(). Shows progress on
  /// standard error.
  void run(int64_t until = INT64_MAX);
  /// Asks the loop to save and return after the current step; may be called from a signal handler.
  static void request_stop();

  int64_t step() const { return step_; }
  Model& model() { return model_; }
  const Curve& curve() const { return curve_; }

  /// One optimiser step; returns the mean loss of its batch.
  double train_step();
  /// Mean loss over validation documents in their order, up to config.validation_tokens.
  double validate();

  /// Written to a temporary name and renamed, so that a crash leaves the old one.
  void save(const std::filesystem::path& path) const;
  void load(const std::filesystem::path& path);

 private:
  void show_progress(double loss, bool last);

  TrainConfig config_;
  ThreadPool& pool_;
  Dataset data_;
  std::unique_ptr<Dataset> validation_;
  Sampler sampler_;
  Model model_;
  Optimizer optimizer_;
  int64_t step_ = 0;
  int64_t tokens_ = 0;        // predictions trained on
  double train_seconds_ = 0;  // of earlier runs and this one
  Curve curve_;

  // Of this run only.
  double peak_ = 0, operations_ = 0, wall_seconds_ = 0, cpu_seconds_ = 0;
  int64_t run_tokens_ = 0;
  double last_shown_ = -1e9;
  double smoothed_ = -1;
};

}  // namespace millrace::train
