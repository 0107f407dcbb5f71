// Matrices of the trainer: operands in the chosen arithmetic, packed weights, and the three products that a
// linear layer needs (forward, gradient of the input, gradient of the weight), each split over the pool.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "compress/train/kernels.h"
#include "core/thread_pool.h"

namespace millrace::train {

/// Uninitialised-on-purpose storage would hide mistakes: it starts as zeros, on a cache line.
template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) { allocate(count); }
  void allocate(int64_t count) {
    count_ = count;
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
    void* memory = std::aligned_alloc(64, bytes);
    if (!memory) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    data_.reset(static_cast<T*>(memory));
  }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  T& operator[](int64_t i) { return data_.get()[i]; }
  const T& operator[](int64_t i) const { return data_.get()[i]; }
  int64_t size() const { return count_; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t count_ = 0;
};

/// A weight of the flat parameter buffer: [outputs][inputs] at `offset`, and where its two packed forms lie.
struct Linear {
  int64_t offset = 0;
  int64_t outputs = 0, inputs = 0;
  int64_t packed = 0;  ///< words; the form for inputs' gradient follows that for the forward product

  int64_t size() const { return outputs * inputs; }
};

class Compute {
 public:
  Compute(Arithmetic arithmetic, ThreadPool& pool, const Kernels& table);

  const Kernels& kernel() const { return kernels_; }
  ThreadPool& pool() const { return pool_; }
  Arithmetic arithmetic() const { return arithmetic_; }

  /// Words that `elements` neighbours along the summed dimension take.
  int64_t words(int64_t elements) const {
    return arithmetic_ == Arithmetic::kBfloat16 ? elements / 2 : elements;
  }
  /// Converts `count` floats (even) to operand words.
  void to_operand(const float* from, Word* to, int64_t count) const;
  /// The same over many rows, in parallel.
  void to_operand_rows(const float* from, Word* to, int64_t rows, int64_t columns) const;

  /// Packs a weight for both directions; `packed` has 2 * words(size) words.
  void pack_weight(const float* weight, int64_t outputs, int64_t inputs, Word* packed) const;

  /// y[rows][outputs] (=, +=) x * W^T. x: operand rows of `inputs`; rows is a multiple of 8.
  void forward(const Word* x, const Linear& linear, const Word* packed, int64_t rows, float* y,
               Into into) const;
  /// dx[rows][inputs] (=, +=) dy * W.
  void backward_input(const Word* dy, const Linear& linear, const Word* packed, int64_t rows, float* dx,
                      Into into) const;
  /// dW[outputs][inputs] += dy^T * x. dy, x: operand rows; rows is a multiple of 16.
  void backward_weight(const Word* dy, const Word* x, const Linear& linear, int64_t rows, float* gradient);

  /// Floating-point operations of all products so far.
  double operations() const { return operations_; }
  void count_operations(double count) const { operations_ += count; }

 private:
  void multiply(const Word* a, int64_t a_row_stride, int64_t k_words, const Word* panels, int64_t rows,
                int64_t columns, float* c, Into into) const;
  void pack_operand(const Word* from, int64_t rows, int64_t columns, Word* to) const;

  Arithmetic arithmetic_;
  ThreadPool& pool_;
  const Kernels& kernels_;
  GemmTile gemm_;
  Buffer<Word> left_, right_;  // panels of backward_weight
  mutable double operations_ = 0;
};

}  // namespace millrace::train
