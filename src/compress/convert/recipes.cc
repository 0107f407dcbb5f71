#include "compress/convert/recipes.h"

namespace millrace::convert {
namespace {

constexpr auto kUnsigned = Setting::Kind::kUnsigned;
constexpr auto kFloat = Setting::Kind::kFloat;
constexpr auto kBool = Setting::Kind::kBool;
constexpr auto kRms = Recipe::Norm::kRms;
constexpr auto kLayer = Recipe::Norm::kLayer;

const Setting kWindow = {"attention.sliding_window", "sliding_window", kUnsigned};
const Setting kLogitScale = {"logit_scale", "logit_scale", kFloat};
const Setting kParallel = {"use_parallel_residual", "use_parallel_residual", kBool};
const Setting kClip = {"attention.clamp_kqv", "clip_qkv", kFloat};
const Setting kExpertsUsed = {"expert_used_count", "num_experts_per_tok", kUnsigned};
const Setting kExperts = {"expert_count", "num_experts", kUnsigned};
const Setting kExpertWidth = {"expert_feed_forward_length", "moe_intermediate_size", kUnsigned};

Recipe latent_recipe(const char* hf_class) {
  return {hf_class,
          "deepseek2",
          kRms,
          false,
          false,
          {{"expert_count", "n_routed_experts", kUnsigned},
           kExpertsUsed,
           kExpertWidth,
           {"expert_shared_count", "n_shared_experts", kUnsigned},
           {"leading_dense_block_count", "first_k_dense_replace", kUnsigned},
           {"expert_weights_scale", "routed_scaling_factor", kFloat},
           {"expert_weights_norm", "norm_topk_prob", kBool}},
          latent_tensors,
          {"blk.{}.attn_kv_b"},
          latent_settings,
          Recipe::Heads::kLatent};
}

std::vector<Recipe> with_registered(std::vector<Recipe> table) {
  for (const models::Family& family : models::families())
    for (const models::GgufForm& f : family.gguf_forms)
      table.push_back({f.hf_class, f.architecture, f.norm, f.pairs_side_by_side, f.plain_heads, f.settings});
  return table;
}

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> table = with_registered({
      {"LlamaForCausalLM", "llama", kRms, true},
      {"MistralForCausalLM", "llama", kRms, true, false, {kWindow}},
      {"MixtralForCausalLM",
       "llama",
       kRms,
       true,
       false,
       {kWindow, {"expert_count", "num_local_experts", kUnsigned}, kExpertsUsed}},
      {"Qwen2ForCausalLM", "qwen2", kRms},
      {"Qwen3ForCausalLM", "qwen3", kRms},
      {"Qwen2MoeForCausalLM",
       "qwen2moe",
       kRms,
       false,
       false,
       {kExperts,
        kExpertsUsed,
        kExpertWidth,
        {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", kUnsigned}}},
      {"Qwen3MoeForCausalLM", "qwen3moe", kRms, false, false, {kExperts, kExpertsUsed, kExpertWidth}},
      {"OlmoeForCausalLM", "olmoe", kRms, false, false, {kExperts, kExpertsUsed, kClip}},
      {"GemmaForCausalLM", "gemma", kRms},
      {"Gemma2ForCausalLM",
       "gemma2",
       kRms,
       false,
       false,
       {kWindow,
        {"attn_logit_softcapping", "attn_logit_softcapping", kFloat},
        {"final_logit_softcapping", "final_logit_softcapping", kFloat}}},
      {"Gemma3ForCausalLM", "gemma3", kRms, false, false, {kWindow}},
      {"Gemma3ForConditionalGeneration", "gemma3", kRms, false, false, {kWindow}},
      {"Phi3ForCausalLM", "phi3", kRms, false, false, {kWindow}},
      {"PhiForCausalLM", "phi2", kLayer},
      {"GPT2LMHeadModel", "gpt2", kLayer, false, true},
      {"GPTNeoXForCausalLM", "gptneox", kLayer, false, true, {kParallel}},
      {"BloomForCausalLM", "bloom", kLayer, false, true},
      {"MptForCausalLM",
       "mpt",
       kLayer,
       false,
       true,
       {{"attention.max_alibi_bias", "attn_config.alibi_bias_max", kFloat},
        {"attention.clamp_kqv", "attn_config.clip_qkv", kFloat}}},
      {"FalconForCausalLM", "falcon", kLayer},
      {"StableLmForCausalLM", "stablelm", kLayer, false, false, {kParallel}},
      {"Starcoder2ForCausalLM", "starcoder2", kLayer, false, false, {kWindow}},
      {"OlmoForCausalLM", "olmo", kLayer, true, false, {kClip}},
      {"Olmo2ForCausalLM", "olmo2", kRms},
      {"Olmo3ForCausalLM", "olmo2", kRms, false, false, {kWindow}},
      {"CohereForCausalLM", "command-r", kLayer, false, false, {kLogitScale}},
      {"Cohere2ForCausalLM", "cohere2", kLayer, false, false, {kLogitScale, kWindow}},
      {"GraniteForCausalLM",
       "granite",
       kRms,
       true,
       false,
       {{"embedding_scale", "embedding_multiplier", kFloat},
        {"residual_scale", "residual_multiplier", kFloat},
        {"attention.scale", "attention_multiplier", kFloat},
        {"logit_scale", "logits_scaling", kFloat}}},
      {"SmolLM3ForCausalLM", "smollm3", kRms, true},
      {"GlmForCausalLM", "chatglm", kRms},
      {"Glm4ForCausalLM", "glm4", kRms},
      latent_recipe("DeepseekV2ForCausalLM"),
      latent_recipe("DeepseekV3ForCausalLM"),
      {"GptOssForCausalLM",
       "gpt-oss",
       kRms,
       false,
       false,
       {kWindow,
        {"expert_count", "num_local_experts", kUnsigned},
        kExpertsUsed,
        {"expert_feed_forward_length", "intermediate_size", kUnsigned}},
       gpt_oss_tensors,
       {"blk.{}.ffn_gate_up_exps", "blk.{}.ffn_down_exps"}},
      {"MambaForCausalLM",
       "mamba",
       kRms,
       false,
       false,
       {},
       nullptr,
       {},
       mamba_settings,
       Recipe::Heads::kNone},
      {"Mamba2ForCausalLM",
       "mamba2",
       kRms,
       false,
       false,
       {},
       nullptr,
       {},
       mamba2_settings,
       Recipe::Heads::kNone},
      {"JambaForCausalLM",
       "jamba",
       kRms,
       false,
       false,
       {kExperts, kExpertsUsed},
       nullptr,
       {},
       jamba_settings,
       Recipe::Heads::kSome},
      {"Qwen3NextForCausalLM",
       "qwen3next",
       kRms,
       false,
       false,
       {kExperts,
        kExpertsUsed,
        kExpertWidth,
        {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", kUnsigned}},
       nullptr,
       {},
       qwen3_next_settings},
  });
  return table;
}

}  // namespace

const Recipe* find_recipe(std::string_view hf_class) {
  for (const Recipe& recipe : recipes())
    if (hf_class == recipe.hf_class) return &recipe;
  return nullptr;
}

std::vector<std::string_view> recipe_names() {
  std::vector<std::string_view> names;
  for (const Recipe& recipe : recipes()) names.emplace_back(recipe.hf_class);
  return names;
}

}  // namespace millrace::convert
