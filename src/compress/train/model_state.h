// The insides of train::Model that its source files share.
#pragma once

#include "compress/train/model.h"

namespace millrace::train {

struct Model::Layer {
  int64_t attention_norm = 0, mlp_norm = 0;  // offsets
  Linear qkv, output;                        // q | k | v in one matrix
  Linear gate_up, down;                      // dense MLP
  int64_t router = 0;                        // [experts][dim], float
  std::vector<Linear> expert_gate_up, expert_down;
};

struct Model::ExpertState {
  Buffer<float> probability;  // [rows][experts]
  Buffer<int> chosen;         // [rows][k]
  Buffer<float> share;        // [rows][k], sums to one
  Buffer<int> place;          // [rows][k]: row of the grouped buffers
  Buffer<int> source;         // grouped row -> row, -1 for padding
  std::vector<int> begin;     // [experts + 1], multiples of 16
  Buffer<Word> input;         // [grouped][dim]
  Buffer<float> gate_up;      // [grouped][2 ff]
  Buffer<Word> activation;    // [grouped][ff]
  Buffer<float> result;       // [grouped][dim]
};

struct Model::LayerState {
  Buffer<float> rstd_attention, rstd_mlp;
  Buffer<Word> attention_input, attention_result;  // operands of qkv and output
  Buffer<float> qkv;                               // rotated
  Buffer<float> log_sum;                           // [rows][heads]
  Buffer<float> middle;                            // the stream after attention
  Buffer<Word> mlp_input, activation;
  Buffer<float> gate_up;
  std::unique_ptr<ExpertState> moe;
  std::unique_ptr<Buffer<float>> mlp_input_float;  // the router works in float
};

struct Model::Scratch {
  /// Work space of one thread in attention; L is the longest segment, a multiple of 32.
  struct Attention {
    Buffer<float> scores, dscores;               // [L][L]
    Buffer<float> keys_t, values_t;              // panels [L / 32][head_dim][32]
    Buffer<float> keys, values, queries, douts;  // panels [head_dim / 32][L][32]
    Buffer<float> dkeys, dvalues;                // [L][head_dim]
    Buffer<float> tile;                          // [8][head_dim]
  };
  int longest = 0;
  std::vector<Attention> attention;
  std::vector<Buffer<float>> rows;  // a few rows for each thread

  Buffer<float> dstream;  // gradient of the residual stream
  Buffer<Word> dstream_operand;
  Buffer<float> wide;  // [rows][max(qkv, 2 ff, ff)]
  Buffer<Word> wide_operand;
  Buffer<float> narrow;      // [rows][max(dim, query_dim)]
  Buffer<float> norm_parts;  // [rows / 64 + 1][dim]
  Buffer<Word> final_input;
  Buffer<float> final_rstd;
  Buffer<float> logits;
  Buffer<Word> dlogits;
  Buffer<double> row_loss;
  Buffer<float> cosine, sine, sine_back;  // [longest][head_dim]
  Buffer<float> grouped;                  // experts: [grouped][2 ff or dim]
  Buffer<Word> grouped_operand;
  Buffer<float> dgrouped;
  Buffer<float> dscore;  // [rows][experts]
};

/// Longest chunk of rows whose norm gradients are summed together, so that the order of sums never changes.
inline constexpr int kNormChunk = 64;

}  // namespace millrace::train
