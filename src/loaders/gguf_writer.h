// Writer of GGUF v3. Metadata and tensor shapes come first, then tensor data in any order and in pieces of
// any size, so that a file of any size needs no more memory than one piece. The file appears under its name
// only when it is complete; until then it is NAME.partial, which the writer removes when it is given up.
//
//   GgufWriter out("model.gguf");
//   out.set_string("general.architecture", "llama");
//   out.set_u32("llama.block_count", 5);
//   const size_t embedding = out.add_tensor("token_embd.weight", DType::kQ8_0, {512, 64});
//   out.write_header();
//   out.write(embedding, 0, bytes, size);
//   out.finish();
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "loaders/metadata.h"

namespace millrace::loaders {

class GgufWriter {
 public:
  /// Error(kIo) when the file cannot be made; `alignment` is a power of two from 8 up.
  explicit GgufWriter(const std::filesystem::path& path, uint64_t alignment = 32);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  // Metadata, in the order of the calls; a key set twice is Error(kInvalidArgument). The types matter to
  // readers: llama.cpp wants counts as u32, epsilons and scores as f32, token types as i32.
  void set_u32(const std::string& key, uint32_t value);
  void set_i32(const std::string& key, int32_t value);
  void set_u64(const std::string& key, uint64_t value);
  void set_f32(const std::string& key, float value);
  void set_bool(const std::string& key, bool value);
  void set_string(const std::string& key, std::string_view value);
  void set_strings(const std::string& key, const std::vector<std::string>& values);
  void set_i32s(const std::string& key, const std::vector<int32_t>& values);
  void set_u32s(const std::string& key, const std::vector<uint32_t>& values);
  void set_f32s(const std::string& key, const std::vector<float>& values);
  /// A value as readers hold it, in the narrowest usual type: integers in 32 bits when they fit, numbers as
  /// f32.
  void set(const std::string& key, const Value& value);

  /// Declares a tensor, shape outermost first, and returns its number. Error(kInvalidArgument) for a name
  /// used twice, a type GGUF has no number for, or rows that are no whole number of blocks.
  size_t add_tensor(const std::string& name, DType type, const Shape& shape);
  uint64_t tensor_bytes(size_t tensor) const { return tensors_[tensor].bytes; }
  /// Bytes of the whole file, known once all is declared.
  uint64_t file_bytes() const;

  /// Writes everything declared so far; nothing can be declared afterwards.
  void write_header();

  /// Writes part of a tensor's data. Safe to call from several threads.
  void write(size_t tensor, uint64_t offset, const void* data, uint64_t bytes);

  /// Checks that every byte of every tensor was written and gives the file its name.
  void finish();

 private:
  struct Tensor {
    std::string name;
    uint32_t ggml_type = 0;
    Shape shape;
    uint64_t bytes = 0;
    uint64_t offset = 0;  ///< in the data section
    std::atomic<uint64_t> written{0};
  };

  template <typename T>
  void put(T value);
  void put_string(std::string_view text);
  void begin_value(const std::string& key, uint32_t type);
  template <typename T>
  void put_array(const std::string& key, uint32_t type, const std::vector<T>& values);
  void write_at(uint64_t position, const void* data, uint64_t bytes);

  std::filesystem::path path_, partial_;
  uint64_t alignment_;
  int file_ = -1;
  std::string metadata_;  ///< the encoded key-value pairs
  std::vector<std::string> keys_;
  std::deque<Tensor> tensors_;  ///< a deque: atomics do not move
  std::vector<std::string> names_;
  uint64_t data_start_ = 0;  ///< 0 until the header is written
  uint64_t data_bytes_ = 0;
};

}  // namespace millrace::loaders
