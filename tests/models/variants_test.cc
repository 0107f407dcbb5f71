// How checkpoints of the hub differ from the fixtures that today's library writes: older keys, keys left out,
// other prefixes, wrappers around the text model. Each variant is a fixture with its config.json edited and
// its tensors renamed, and must give the very logits of the original, or be refused with a sentence.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "loaders/checkpoint.h"
#include "models/model.h"
#include "models/sequence_runner.h"
#include "testing/testing.h"

namespace millrace {
namespace {

using nlohmann::json;

struct Rename {
  std::string from, to;  ///< at a name's beginning
};

/// A copy of fixture `name` in `folder`: config.json merged with `edit` (null removes a key), tensors
/// renamed, and those left out whose new name begins with `drop`.
void write_variant(const std::string& name, const json& edit, const std::vector<Rename>& renames,
                   const std::string& drop, const std::filesystem::path& folder) {
  const auto from = testing::fixture("models/fixtures") / name;
  json config = json::parse(testing::read_file(from / "config.json"));
  config.merge_patch(edit);
  testing::write_file(folder / "config.json", config.dump());
  const std::string file = testing::read_file(from / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const json header = json::parse(file.substr(8, length));
  json out = json::object();
  std::string data;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    std::string renamed = key;
    for (const Rename& r : renames)
      if (renamed.rfind(r.from, 0) == 0) {
        renamed = r.to + renamed.substr(r.from.size());
        break;
      }
    if (!drop.empty() && renamed.rfind(drop, 0) == 0) continue;
    const auto begin = entry["data_offsets"][0].get<uint64_t>(),
               end = entry["data_offsets"][1].get<uint64_t>();
    json changed = entry;
    changed["data_offsets"] = {data.size(), data.size() + end - begin};
    data += file.substr(8 + length + begin, end - begin);
    out[renamed] = changed;
  }
  const std::string text = out.dump();
  const uint64_t size = text.size();
  testing::write_file(folder / "model.safetensors",
                      std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
}

std::vector<float> last_logits(const std::filesystem::path& folder) {
  ThreadPool pool(1);
  const auto checkpoint = loaders::open_checkpoint(folder);
  const auto model = models::load_model(checkpoint, {}, pool);
  models::SequenceRunner runner(*model, pool, best_isa(), layers::KvType::kF32, 64);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 30; ++i) prompt.push_back(3 + i * i % 80);
  const float* logits = runner.append(prompt);
  return {logits, logits + model->info().vocab_size};
}

std::string complaint(const std::filesystem::path& folder) {
  try {
    last_logits(folder);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

struct Variant {
  std::string name, fixture;
  json edit;
  std::vector<Rename> renames = {};
  std::string drop = {};
};

/// `config` below text_config, with nothing of the text model left above.
json wrapped(const std::string& fixture, const std::string& wrapper, const json& less = json::object()) {
  json text = json::parse(testing::read_file(testing::fixture("models/fixtures") / fixture / "config.json"));
  json edit = json::object();
  for (const auto& [key, value] : text.items()) edit[key] = nullptr;
  text.merge_patch(less);
  text.erase("architectures");
  edit["architectures"] = {wrapper};
  edit["text_config"] = text;
  edit["vision_config"] = {{"hidden_size", 7}, {"num_hidden_layers", 3}};
  return edit;
}

std::vector<Variant> variants() {
  const json none = nullptr;
  const std::vector<Rename> inside = {{"model.", "model.language_model."}},
                            outside = {{"", "language_model."}};
  return {
      {"HeadDimAbsent", "llama", {{"head_dim", none}}},
      {"ThetaAtTheTop", "llama", {{"rope_parameters", none}, {"rope_theta", 10000.0}}},
      {"ThetaAbsent", "llama", {{"rope_parameters", none}}},
      {"OlderDtypeKey", "llama", {{"dtype", none}, {"torch_dtype", "float32"}}},
      {"NoModelPrefix", "llama", json::object(), {{"model.", ""}}},
      {"NoTransformerPrefix", "gpt2", json::object(), {{"transformer.", ""}}},
      {"NoTransformerPrefixBloom", "bloom", json::object(), {{"transformer.", ""}}},
      {"WindowNull",
       "llama",
       {{"architectures", {"MistralForCausalLM"}}, {"model_type", "mistral"}, {"sliding_window", none}}},
      {"WindowSwitchedOff",
       "qwen2",
       {{"use_sliding_window", false}, {"sliding_window", 4}, {"max_window_layers", 0}}},
      {"LinearOldKeys",
       "rope-linear",
       {{"rope_parameters", none},
        {"rope_theta", 10000.0},
        {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}},
      {"YarnOldKeys",
       "rope-yarn",
       {{"rope_parameters", none},
        {"rope_theta", 10000.0},
        {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}}}},
      {"Llama3OldKeys",
       "llama3-rope",
       {{"rope_parameters", none},
        {"rope_theta", 10000.0},
        {"rope_scaling",
         {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 32}}}}},
      {"LongropeOldKeys",
       "phi3-longrope",
       {{"rope_parameters", none},
        {"rope_theta", 10000.0},
        {"original_max_position_embeddings", 64},
        {"rope_scaling",
         {{"type", "su"}, {"short_factor", {1.0, 1.1, 1.2, 1.3}}, {"long_factor", {2.0, 2.5, 3.0, 4.0}}}}}},
      {"Gemma2NoLayerTypes", "gemma2", {{"layer_types", none}}},
      {"Gemma3NoLayerTypes",
       "gemma3",
       {{"layer_types", none},
        {"sliding_window_pattern", 6},
        {"rope_parameters", none},
        {"rope_theta", 1000000.0},
        {"rope_local_base_freq", 10000.0}}},
      {"Cohere2NoLayerTypes", "cohere2", {{"layer_types", none}, {"sliding_window_pattern", 4}}},
      {"Olmo3NoLayerTypes", "olmo3", {{"layer_types", none}}},
      {"Exaone4Pattern", "exaone4", {{"layer_types", none}, {"sliding_window_pattern", "LLLG"}}},
      {"GptOssNoLayerTypes", "gpt_oss", {{"layer_types", none}}},
      {"Qwen3NextNoLayerTypes", "qwen3_next", {{"layer_types", none}}},
      {"SmolLm3NoLayerList", "smollm3", {{"no_rope_layers", none}, {"layer_types", none}}},
      {"TiedHeadStoredToo", "llama3-rope", json::object(), {{"model.embed_tokens", "model.embed_tokens"}}},
      {"Gemma3Wrapped", "gemma3", wrapped("gemma3", "Gemma3ForConditionalGeneration"), inside},
      {"Gemma3WrappedOlder", "gemma3", wrapped("gemma3", "Gemma3ForConditionalGeneration"), outside},
      {"Mistral3Wrapped", "mistral", wrapped("mistral", "Mistral3ForConditionalGeneration"), inside},
      {"Mistral3WrappedOlder", "mistral", wrapped("mistral", "Mistral3ForConditionalGeneration"), outside},
      {"LlavaWrapped", "llama", wrapped("llama", "LlavaForConditionalGeneration"), outside},
      {"InfinityInTheSettings", "mamba2", {{"time_step_limit", none}}},
      {"NullsInTheSettings", "llama", {{"head_dim", none}, {"attention_bias", none}, {"rope_scaling", none}}},
      {"Olmo3SettingsByLayerAlone",
       "olmo3",
       {{"rope_parameters", {{"factor", 4.0}, {"rope_theta", 77.0}, {"rope_type", "yarn"}}}}},
  };
}

class Variants : public ::testing::TestWithParam<Variant> {};

TEST_P(Variants, GiveTheSameLogits) {
  const Variant& v = GetParam();
  testing::TempDir dir;
  write_variant(v.fixture, v.edit, v.renames, v.drop, dir.path());
  // What a merge cannot write.
  const std::map<std::string, std::string> insertions = {
      {"InfinityInTheSettings", R"("time_step_limit":[0.0,Infinity],"note":"Infinity \" NaN",)"},
      {"NullsInTheSettings",
       R"("head_dim":null,"attention_bias":null,"rope_scaling":null,"sliding_window":null,
                                "quantization_config":null,"layer_types":null,)"}};
  if (const auto insertion = insertions.find(v.name); insertion != insertions.end()) {
    std::string config = testing::read_file(dir / "config.json");
    config.insert(1, insertion->second);
    testing::write_file(dir / "config.json", config);
  }
  EXPECT_EQ(last_logits(dir.path()), last_logits(testing::fixture("models/fixtures") / v.fixture));
}

INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

struct Refusal {
  std::string name, fixture;
  json edit;
  std::vector<Rename> renames;
  std::string drop;
  std::vector<std::string> says;  ///< each of these stands in the sentence
};

std::vector<Refusal> refusals() {
  const json none = nullptr;
  const auto config = [&](const std::string& name, json edit, std::vector<std::string> says) {
    return Refusal{name, "llama", std::move(edit), {}, "", std::move(says)};
  };
  return {
      config("NoHiddenSize", {{"hidden_size", none}}, {"config.json", "'hidden_size'", "missing"}),
      config("NoLayers", {{"num_hidden_layers", none}}, {"'num_hidden_layers'", "missing"}),
      config("NoHeads", {{"num_attention_heads", none}}, {"'num_attention_heads'", "missing"}),
      config("HeadsAreText", {{"num_attention_heads", "four"}},
             {"num_attention_heads", "expected an integer"}),
      config("NoHeadsAtAll", {{"num_attention_heads", 0}}, {"'num_attention_heads' is 0: expected 1 to"}),
      config("NegativeWidth", {{"hidden_size", -32}}, {"'hidden_size' is -32: expected 1 to"}),
      config("WidthContradicts", {{"hidden_size", 64}, {"head_dim", none}},
             {"embed_tokens.weight", "expected"}),
      config("KvHeadsDoNotDivide", {{"num_key_value_heads", 3}}, {"'num_key_value_heads' is 3", "divisor"}),
      config("MoreLayersThanWeights", {{"num_hidden_layers", 3}}, {"model.layers.2.", "missing"}),
      config("OtherFfnWidth", {{"intermediate_size", 40}}, {"gate_proj.weight", "expected [40, 32]"}),
      config("KvHeadsAbsent", {{"num_key_value_heads", none}}, {"k_proj.weight", "expected [32, 32]"}),
      config("PartOfTheHeadRotated", {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}},
             {"partial_rotary_factor' is not 1"}),
      config("UnknownActivation", {{"hidden_act", "mish"}}, {"activation 'mish' is unknown"}),
      config("UnknownRope", {{"rope_parameters", {{"rope_type", "spiral"}}}},
             {"rope type 'spiral'", "expected"}),
      config("UnknownClass", {{"architectures", {"FooForCausalLM"}}},
             {"'FooForCausalLM' is not supported", "expected"}),
      config("NoClass", {{"architectures", none}}, {"'architectures' is missing"}),
      config("UntiedWithoutHead", json::object(), {}),
      config("Awq", {{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}}}},
             {"'awq'", "expected FP8"}),
      config("Gptq", {{"quantization_config", {{"quant_method", "gptq"}}}}, {"'gptq'", "expected FP8"}),
      config("BitsAndBytes", {{"quantization_config", {{"load_in_4bit", true}}}},
             {"'bitsandbytes'", "expected FP8"}),
      config(
          "CompressedInts",
          {{"quantization_config", {{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}}},
          {"'compressed-tensors' of format 'pack-quantized'"}),
      {"WeightMissing",
       "llama",
       json::object(),
       {},
       "model.layers.1.mlp.down_proj",
       {"model.layers.1.mlp.down_proj.weight", "missing"}},
      {"NormMissing", "llama", json::object(), {}, "model.norm", {"model.norm.weight", "missing"}},
      {"EmbeddingMissing",
       "llama",
       json::object(),
       {},
       "model.embed_tokens",
       {"embed_tokens.weight", "missing"}},
      {"OneExpertMissing",
       "mixtral",
       json::object(),
       {},
       "model.layers.0.block_sparse_moe.experts.2.w1",
       {"missing"}},
      {"Llama4IsNot",
       "llama",
       wrapped("llama", "Llama4ForConditionalGeneration", {{"model_type", "llama4_text"}}),
       {},
       "",
       {"'Llama4ForConditionalGeneration' is not supported"}},
      {"LayerTypesTooFew",
       "gemma2",
       {{"layer_types", {"sliding_attention"}}},
       {},
       "",
       {"'layer_types' has 1"}},
      {"TopKBeyondExperts", "mixtral", {{"num_experts_per_tok", 9}}, {}, "", {"'num_experts_per_tok' is 9"}},
  };
}

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, SayWhatIsWrong) {
  const Refusal& r = GetParam();
  testing::TempDir dir;
  const bool head = r.name == "UntiedWithoutHead";
  write_variant(r.fixture, r.edit, r.renames, head ? "lm_head" : r.drop, dir.path());
  const std::string sentence = complaint(dir.path());
  EXPECT_THAT(sentence, ::testing::HasSubstr(dir.path().string()));
  EXPECT_THAT(sentence, ::testing::Not(::testing::HasSubstr("\n")));
  if (head) {
    EXPECT_THAT(sentence, ::testing::HasSubstr("expected 'lm_head.weight'"));
  }
  for (const std::string& part : r.says) EXPECT_THAT(sentence, ::testing::HasSubstr(part));
}

INSTANTIATE_TEST_SUITE_P(All, Refusals, ::testing::ValuesIn(refusals()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace millrace
