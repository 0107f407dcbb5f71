// Shapes as the models' published configurations give them.
#include "core/error.h"
#include "loaders/synthetic.h"

namespace millrace::loaders {
namespace {

using Shape = SyntheticShape;

Shape llama(const char* name, int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads,
            int32_t head_dim, int32_t ffn, int32_t vocabulary, int32_t context, float rope_base, bool tied,
            float llama3_factor = 0) {
  return {name,       "llama", layers,    hidden, heads, kv_heads,      head_dim, ffn,
          vocabulary, context, rope_base, 1e-5f,  tied,  llama3_factor, 0,        0};
}

Shape qwen(const char* name, const char* architecture, int32_t layers, int32_t hidden, int32_t heads,
           int32_t kv_heads, int32_t head_dim, int32_t ffn, int32_t vocabulary, bool tied) {
  const int32_t context = std::string_view(architecture) == "qwen2" ? 32768 : 40960;
  return {name, architecture, layers,  hidden, heads, kv_heads, head_dim,
          ffn,  vocabulary,   context, 1e6f,   1e-6f, tied};
}

Shape with_experts(Shape shape, int32_t experts, int32_t used, int32_t expert_ffn) {
  shape.experts = experts;
  shape.experts_used = used;
  shape.expert_ffn = expert_ffn;
  return shape;
}

Shape gemma3(const char* name, int32_t layers, int32_t hidden, int32_t heads, int32_t kv_heads, int32_t ffn,
             int32_t vocabulary, int32_t context, int32_t window, float linear_factor) {
  return {name,       "gemma3", layers, hidden, heads, kv_heads, 256,           ffn,
          vocabulary, context,  1e6f,   1e-6f,  true,  0,        linear_factor, window};
}

const Shape kShapes[] = {
    llama("smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5f, true),
    llama("smollm2-360m", 32, 960, 15, 5, 64, 2560, 49152, 8192, 1e5f, true),
    llama("smollm2-1.7b", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1.3e5f, true),
    llama("tinyllama-1.1b", 22, 2048, 32, 4, 64, 5632, 32000, 2048, 1e4f, false),
    llama("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e4f, false),
    llama("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5f, true, 32),
    llama("llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5f, true, 32),
    llama("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 5e5f, false, 8),
    llama("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 5e5f, false, 8),
    llama("mistral-7b", 32, 4096, 32, 8, 128, 14336, 32768, 32768, 1e6f, false),
    with_experts(llama("mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1e6f, false), 8, 2, 14336),
    qwen("qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, true),
    qwen("qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, true),
    qwen("qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, false),
    qwen("qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, true),
    qwen("qwen3-1.7b", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, true),
    qwen("qwen3-4b", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, true),
    qwen("qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, false),
    qwen("qwen3-14b", "qwen3", 40, 5120, 40, 8, 128, 17408, 151936, false),
    qwen("qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, false),
    with_experts(qwen("qwen3-30b-a3b", "qwen3moe", 48, 2048, 32, 4, 128, 6144, 151936, false), 128, 8, 768),
    gemma3("gemma-3-1b", 26, 1152, 4, 1, 6912, 262144, 32768, 512, 0),
    gemma3("gemma-3-4b", 34, 2560, 8, 4, 10240, 262208, 131072, 1024, 8),
};

}  // namespace

std::span<const SyntheticShape> synthetic_shapes() { return kShapes; }

const SyntheticShape& find_synthetic_shape(std::string_view name) {
  std::vector<const char*> known;
  for (const Shape& shape : kShapes) {
    if (name == shape.name) return shape;
    known.push_back(shape.name);
  }
  fail(ErrorCode::kInvalidArgument, "there is no shape '{}': expected one of {}", name,
       fmt::join(known, ", "));
}

}  // namespace millrace::loaders
