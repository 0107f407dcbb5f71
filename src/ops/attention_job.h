// The engine under paged_attention and latent_attention (internal to ops).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/attention.h"
#include "ops/kv_layout.h"

namespace millrace::ops {

/// A stretch of every query vector: `dim` floats per head, padded with zeros to `stored_dim` as K is.
struct QueryPart {
  const float* data;
  int64_t stride;  ///< between rows
  int64_t head_stride;
  int32_t dim, stored_dim;
};

struct AttentionJob {
  const Context& context;
  const AttentionShape& shape;
  const AttentionOptions& options;
  std::span<const AttentionSequence> sequences;
  KvLayout layout;
  std::byte* blocks;
  QueryPart query[2];  ///< one after the other; the second may have dim 0
  float* out;
  int64_t out_stride;

  // Follow from the above; set by prepare_job.
  const kernels::AttentionKernels* kernels = nullptr;
  int32_t group = 1;
  int32_t unit_rows = 0;      ///< most query rows of a unit of work
  int64_t element_bytes = 4;  ///< of q and of expanded tiles
  bool integer = false;       ///< INT8 tiles are multiplied as integers
  bool expands = false;       ///< stored elements are not what the kernel reads
};

/// Rows of the step to be stored; null k: none.
struct StoreSource {
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
};

void store_tokens(const Context& context, const AttentionShape& shape, const KvLayout& layout,
                  std::span<const AttentionSequence> sequences, const StoreSource& source, std::byte* blocks);

/// Stores, attends, and writes the output.
void run_attention(AttentionJob job, const StoreSource& source, std::string_view profile_name);

}  // namespace millrace::ops
