// Whatever the bytes: a safetensors file opens, or is refused with an Error. What opens can be read to its
// last byte.
#include <fstream>

#include "core/error.h"
#include "fuzz/fuzz_file.h"
#include "loaders/safetensors.h"
#include "loaders/safetensors_bytes.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::filesystem::path corpus = millrace::fuzz::corpus_folder(*argc, *argv);
  if (corpus.empty()) return 0;
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[8,12]}}";
  std::ofstream(corpus / "seed", std::ios::binary)
      << millrace::testing::safetensors(header, std::string(12, '\1'));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const millrace::fuzz::MemoryFile file(data, size);
  try {
    std::vector<millrace::loaders::TensorEntry> tensors;
    millrace::loaders::read_safetensors(file.path(), tensors);
    for (const auto& tensor : tensors) {
      if (tensor.bytes == 0) continue;
      volatile std::byte last = tensor.data[tensor.bytes - 1];
      (void)last;
    }
  } catch (const millrace::Error& e) {
    if (e.code() == millrace::ErrorCode::kInternal) std::abort();
  }
  return 0;
}
