// Forward and backward of the decoder, by hand. Parameters and gradients are two flat buffers; a table names
// the tensors in them as GGUF does.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compress/train/config.h"
#include "compress/train/dataset.h"
#include "compress/train/linear.h"

namespace millrace {
class Random;
}

namespace millrace::train {

struct TensorInfo {
  std::string name;            ///< GGUF name: "blk.0.attn_q.weight"
  int64_t offset = 0;          ///< in the flat buffers
  std::vector<int64_t> shape;  ///< outermost first: {outputs, inputs}, {experts, outputs, inputs} or {length}
  int64_t stride = 0;  ///< between experts' matrices, where experts are interleaved with others' tensors

  int64_t size() const;
  bool is_norm() const { return shape.size() == 1; }
};

/// What one pass over a micro batch found, summed over its rows.
struct LossSum {
  double loss = 0;     ///< sum of weight * -log p(target)
  double weight = 0;   ///< sum of weights
  double balance = 0;  ///< load-balancing loss of the experts, summed over layers
};

class Model {
 public:
  Model(const ModelShape& shape, Arithmetic arithmetic, bool recompute_activations, int max_rows,
        ThreadPool& pool, const Kernels& table = kernels());
  ~Model();

  const ModelShape& shape() const { return shape_; }
  std::span<float> parameters() { return {parameters_.data(), static_cast<size_t>(parameters_.size())}; }
  std::span<float> gradients() { return {gradients_.data(), static_cast<size_t>(gradients_.size())}; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  /// Normal weights of the given deviation (residual outputs smaller by sqrt(2 layers)), norms at one.
  /// With `similar_attention`, heads start out looking at rows like their own and passing on what they hold.
  void initialise(uint64_t seed, float deviation, bool similar_attention);
  /// Takes over the weights of `source`: all tensors of equal name and shape, and, where this model has
  /// experts and the source a dense MLP, experts cut from its hidden units. Call after initialise().
  /// Error(kInvalidArgument) when the two have nothing in common.
  void start_from(Model& source);
  /// Must be called after parameters change and before the next pass.
  void repack();
  void clear_gradients();

  /// Loss of the batch.
  LossSum forward(const MicroBatch& batch);
  /// Loss, and gradients of scale * loss + balance * balancing loss added to gradients().
  LossSum forward_backward(const MicroBatch& batch, float scale, float balance);
  /// For every segment the most probable next token after its last row.
  std::vector<int> greedy(const MicroBatch& batch);

  /// Matrix operations of all passes so far.
  double operations() const { return compute_.operations(); }

 private:
  struct Layer;       // where the weights of a block lie
  struct LayerState;  // what the backward pass needs of a block's forward pass
  struct Scratch;
  struct ExpertState;
  friend struct LayoutBuilder;

  void lay_out();
  void cut_experts(Model& source, size_t layer);
  void initialise_attention(const Layer& layer, Random& random);
  void run_layers(const MicroBatch& batch, bool keep);
  void layer_forward(const MicroBatch& batch, const Layer& layer, const float* x, LayerState& state,
                     float* out);
  void layer_backward(const MicroBatch& batch, const Layer& layer, const float* x, LayerState& state,
                      float balance);
  void norm(const float* x, int64_t weight, Word* out, float* rstd, int rows);
  void norm_backward(const float* x, int64_t weight, const float* dy, const float* rstd, int rows);
  void rotate(const MicroBatch& batch, float* qkv, bool backward) const;
  void prepare_attention(const MicroBatch& batch);
  void attention(const MicroBatch& batch, LayerState& state);
  void attention_backward(const MicroBatch& batch, LayerState& state);
  void attention_task(const Segment& segment, int kv_head, LayerState& state, int thread);
  void attention_backward_scores(const Segment& segment, int head, const LayerState& state, int thread);
  void attention_backward_task(const Segment& segment, int kv_head, LayerState& state, int thread);
  void mlp(const Layer& layer, LayerState& state, float* out, int rows);
  void mlp_backward(const Layer& layer, LayerState& state, int rows);
  void route(const Layer& layer, LayerState& state, int rows, int live_rows);
  void experts(const Layer& layer, LayerState& state, float* out, int live_rows);
  void router_backward(LayerState& state, int live_rows, float balance);
  void experts_backward(const Layer& layer, LayerState& state, int rows, int live_rows, float balance);
  void embed(const MicroBatch& batch);
  void embed_backward(const MicroBatch& batch);
  LossSum head(const MicroBatch& batch, const float* x, const float* scale);
  void swiglu_rows(const float* gate_up, Word* activation, int64_t rows, int64_t width) const;
  void swiglu_backward_rows(const float* gate_up, const float* dactivation, Word* dgate_up, int64_t rows,
                            int64_t width) const;

  const Word* packed(const Linear& linear) const { return packed_.data() + linear.packed; }
  float* gradient(const Linear& linear) { return gradients_.data() + linear.offset; }

  ModelShape shape_;
  bool recompute_;
  int max_rows_;
  Compute compute_;
  std::vector<TensorInfo> tensors_;
  std::vector<Layer> layers_;
  Linear embedding_;
  int64_t final_norm_ = 0;
  Buffer<float> parameters_, gradients_;
  Buffer<Word> packed_;
  int64_t packed_words_ = 0;
  std::vector<LayerState> states_;      // one a layer, or a single one that is filled again when recomputing
  std::vector<Buffer<float>> streams_;  // the residual stream before each layer, and after the last
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace millrace::train
