// Mixtral: Llama's attention, experts in place of the MLP. GGUF files say "llama" with an expert count
// (llama.cc).
#include "models/decoder.h"
#include "models/experts.h"

namespace millrace::models {
namespace {

std::unique_ptr<Model> load(const loaders::Checkpoint& checkpoint, const LoadOptions& options,
                            ThreadPool& pool) {
  static const NameTable names = llama_names().with({
      {"blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
      {"blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1"},
      {"blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3"},
      {"blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2"},
  });
  const Config config(checkpoint);
  Weights weights(checkpoint, names, options, pool);
  DecoderSpec spec = read_common(config, weights);
  spec.ropes = {read_rope(config, weights, spec.blocks[0].key_dim, ops::RopeLayout::kHalf)};
  ExpertSpec experts = read_experts(config, {"expert_count", "num_local_experts"},
                                    {"expert_used_count", "num_experts_per_tok"},
                                    {"feed_forward_length", "intermediate_size"});
  experts.normalize = true;
  const int32_t window = config.find_integer({nullptr, "sliding_window"}).value_or(0);
  const int64_t hidden = spec.hidden_size;
  for (BlockSpec& b : spec.blocks) {
    b.window = window;
    b.make_ffn = [=](Weights& w, int layer) { return make_moe(w, experts, hidden, layer); };
  }
  return make_decoder(config, weights, std::move(spec));
}

const FamilyRegistration registration({{}, {"MixtralForCausalLM"}, load});

}  // namespace
}  // namespace millrace::models
