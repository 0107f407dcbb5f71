// Whatever the bytes: a GGUF file opens, or is refused with an Error. What opens can be read to its last
// byte.
#include "core/error.h"
#include "fuzz/fuzz_file.h"
#include "loaders/checkpoint.h"
#include "loaders/gguf_writer.h"
#include "quant/traits.h"

namespace millrace {
namespace {

/// A small file with a few metadata kinds and two tensors of `type`.
void write_seed(const std::filesystem::path& path, DType type) {
  loaders::GgufWriter out(path);
  out.set_string("general.architecture", "llama");
  out.set_u32("llama.block_count", 1);
  out.set_f32("llama.rope.freq_base", 10000);
  out.set_strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  out.set_i32s("tokenizer.ggml.token_type", {1, 1, 1});
  const size_t a = out.add_tensor("a.weight", type, {2, 256}), b = out.add_tensor("b.weight", type, {256});
  out.write_header();
  const std::string zeros(out.tensor_bytes(a), '\0');
  out.write(a, 0, zeros.data(), out.tensor_bytes(a));
  out.write(b, 0, zeros.data(), out.tensor_bytes(b));
  out.finish();
}

/// Decodes the start of a tensor, and reads its last byte.
void touch(const loaders::TensorEntry& tensor) {
  volatile std::byte last = tensor.data[tensor.bytes - 1];
  (void)last;
  const quant::Traits& traits = quant::traits(tensor.dtype);
  if (!traits.decode) return;
  float values[256];
  if (tensor.shape.back() >= traits.block_elements) traits.decode(tensor.data, values, traits.block_elements);
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::filesystem::path corpus = millrace::fuzz::corpus_folder(*argc, *argv);
  if (!corpus.empty())
    for (const auto type : {millrace::DType::kF32, millrace::DType::kQ4_K, millrace::DType::kIQ2_S})
      millrace::write_seed(corpus / ("seed-" + std::string(millrace::dtype_name(type))), type);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const millrace::fuzz::MemoryFile file(data, size);
  try {
    const millrace::loaders::Checkpoint checkpoint = millrace::loaders::open_gguf(file.path());
    for (const auto& tensor : checkpoint.tensors) millrace::touch(tensor);
  } catch (const millrace::Error& e) {
    if (e.code() == millrace::ErrorCode::kInternal) std::abort();
  }
  return 0;
}
