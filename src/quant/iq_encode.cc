// Encoders of the i-quants. A code book holds only some of the combinations of its values, so for every
// combination that rounding value by value can give, the nearest points of the book are listed once; encoding
// a point is a rounding, a look-up, and a choice among a few. Scales are searched for each group, then all
// share one unit whose odd multiples they become.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/iq_grids.h"
#include "quant/search.h"

namespace millrace::quant {
namespace {

constexpr int kNeighbours = 8;

/// A code book of points with kDim values, each one of kLevels levels.
template <int kDim, int kLevels>
class Book {
 public:
  template <typename Word>
  Book(std::span<const Word> grid, const float (&levels)[kLevels]) {
    std::copy(levels, levels + kLevels, levels_);
    for (int i = 0; i + 1 < kLevels; ++i) midpoints_[i] = (levels[i] + levels[i + 1]) / 2;
    points_.resize(grid.size() * kDim);
    for (size_t p = 0; p < grid.size(); ++p)
      for (int i = 0; i < kDim; ++i) {
        const auto byte = static_cast<uint8_t>(grid[p] >> (8 * i) & 0xff);
        // Only IQ1 has negative levels; its bytes are signed.
        points_[p * kDim + static_cast<size_t>(i)] =
            levels[0] < 0 ? static_cast<float>(static_cast<int8_t>(byte)) : static_cast<float>(byte);
      }
    list_neighbours(grid.size());
  }

  float top() const { return levels_[kLevels - 1]; }
  float middle() const { return levels_[kLevels / 2]; }
  float lowest() const { return levels_[0]; }
  const float* point(size_t index) const { return points_.data() + index * kDim; }

  /// Index of the point that makes sum w (t - scale (point + offset))^2 least, and that error.
  uint16_t nearest(const float* t, const float* w, float scale, float offset, float& error) const {
    const float inverse = inverse_or_zero(scale);
    int combination = 0;
    for (int i = kDim - 1; i >= 0; --i) {
      const float value = t[i] * inverse - offset;
      int level = 0;
      for (float midpoint : midpoints_) level += value > midpoint;
      combination = combination * kLevels + level;
    }
    const uint16_t* candidate = neighbours_.data() + static_cast<size_t>(combination) * kNeighbours;
    uint16_t best = candidate[0];
    error = INFINITY;
    for (int k = 0; k < kNeighbours; ++k) {
      const float* p = point(candidate[k]);
      float sum = 0;
      for (int i = 0; i < kDim; ++i) {
        const float difference = t[i] - scale * (p[i] + offset);
        sum += w[i] * difference * difference;
      }
      if (sum < error) {
        error = sum;
        best = candidate[k];
      }
    }
    return best;
  }

 private:
  void list_neighbours(size_t num_points) {
    int combinations = 1;
    for (int i = 0; i < kDim; ++i) combinations *= kLevels;
    neighbours_.resize(static_cast<size_t>(combinations) * kNeighbours);
    for (int c = 0; c < combinations; ++c) {
      float target[kDim];
      for (int i = 0, rest = c; i < kDim; ++i, rest /= kLevels) target[i] = levels_[rest % kLevels];
      float distance[kNeighbours];
      std::fill(distance, distance + kNeighbours, INFINITY);
      uint16_t* list = neighbours_.data() + static_cast<size_t>(c) * kNeighbours;
      for (size_t p = 0; p < num_points; ++p) {
        float sum = 0;
        for (int i = 0; i < kDim; ++i) sum += (target[i] - point(p)[i]) * (target[i] - point(p)[i]);
        if (sum >= distance[kNeighbours - 1]) continue;
        int at = kNeighbours - 1;
        for (; at > 0 && distance[at - 1] > sum; --at) {
          distance[at] = distance[at - 1];
          list[at] = list[at - 1];
        }
        distance[at] = sum;
        list[at] = static_cast<uint16_t>(p);
      }
    }
  }

  float levels_[kLevels];
  float midpoints_[kLevels - 1];
  std::vector<float> points_;         // [points][kDim]
  std::vector<uint16_t> neighbours_;  // [kLevels^kDim][kNeighbours]
};

using Book2 = Book<8, 3>;
using Book3 = Book<4, 8>;

constexpr float kLevels1[3] = {-1, 0, 1};
constexpr float kLevels2[3] = {8, 25, 43};
constexpr float kLevels3xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kLevels3s[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/// A super-block as its encoder sees it: what the points should be, how much each error counts, the signs
/// apart.
struct Targets {
  float t[kSuperBlock];
  float w[kSuperBlock];
  uint8_t signs[32];

  /// `even`: every 8 values must have an even number of negatives; the element whose error then counts least
  /// is given the wrong sign where needed.
  void set_unsigned(const float* x, const float* importance, bool even) {
    error_weights<kSuperBlock>(x, importance, w);
    for (int p = 0; p < 32; ++p) {
      unsigned bits = 0;
      int least = p * 8;
      for (int i = 0; i < 8; ++i) {
        const int at = p * 8 + i;
        t[at] = std::fabs(x[at]);
        bits |= static_cast<unsigned>(x[at] < 0) << i;
        if (w[at] * t[at] * t[at] < w[least] * t[least] * t[least]) least = at;
      }
      if (even && __builtin_popcount(bits) % 2) {
        bits ^= 1u << (least % 8);
        t[least] = -t[least];
      }
      signs[p] = static_cast<uint8_t>(bits);
    }
  }

  void set_signed(const float* x, const float* importance) {
    error_weights<kSuperBlock>(x, importance, w);
    std::copy(x, x + kSuperBlock, t);
  }
};

/// Points of `n` values under one scale; returns the error and, for refitting the scale, the two sums.
template <typename B>
struct Assignment {
  float error = 0, sum_tg = 0, sum_gg = 0;
  uint16_t index[8];  // at most 32 / 4
};

template <int kDim, int kLevels>
Assignment<Book<kDim, kLevels>> assign(const Book<kDim, kLevels>& book, const float* t, const float* w, int n,
                                       float scale, float offset) {
  Assignment<Book<kDim, kLevels>> a;
  for (int i = 0; i < n; i += kDim) {
    float error;
    const uint16_t index = book.nearest(t + i, w + i, scale, offset, error);
    a.index[i / kDim] = index;
    a.error += error;
    const float* p = book.point(index);
    for (int j = 0; j < kDim; ++j) {
      const float g = p[j] + offset;
      a.sum_tg += w[i + j] * t[i + j] * g;
      a.sum_gg += w[i + j] * g * g;
    }
  }
  return a;
}

/// The scale that serves `n` values best. Most candidates put the largest value at or beyond the top of the
/// book; two are for values of like size, which a book may hold only lower down.
template <typename B>
float fit_group(const B& book, const float* t, const float* w, int n, float offset) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(t[i]));
  if (!(largest > 1e-30f)) return 0;
  float best_scale = 0, best_gain = 0;
  const auto consider = [&](float scale) {
    const auto a = assign(book, t, w, n, scale, offset);
    if (a.sum_tg > 0 && a.sum_tg * a.sum_tg > best_gain * a.sum_gg) {
      best_gain = a.sum_tg * a.sum_tg / a.sum_gg;
      best_scale = a.sum_tg / a.sum_gg;
    }
  };
  for (int step = 0; step < 10; ++step)
    consider(largest / book.top() * (1.1f - 0.07f * static_cast<float>(step)));
  if (book.lowest() > 0) {
    consider(largest / book.middle());
    consider(largest / book.lowest());
  }
  return best_scale;
}

/// Scale code `s` for a group: its scale is unit (2 s + 1).
int scale_code(float scale, float unit, int top) {
  return unit > 0 ? truncate((scale / unit - 1) * 0.5f + 0.5f, 0, top) : 0;
}

/// The code near the fitted scale under which the group's error is least, and its points.
template <typename B>
int choose_scale_code(const B& book, const float* t, const float* w, int n, float fitted, float unit,
                      float offset, int top, Assignment<B>& best) {
  const int middle = scale_code(fitted, unit, top);
  int chosen = middle;
  best.error = INFINITY;
  for (int s = std::max(middle - 1, 0); s <= std::min(middle + 1, top); ++s) {
    const auto a = assign(book, t, w, n, unit * static_cast<float>(2 * s + 1), offset);
    if (a.error < best.error) {
      best = a;
      chosen = s;
    }
  }
  return chosen;
}

/// Groups of kGroup values: fits all scales, sets `d` so that (2 top + 1) d multiplier is the largest, and
/// calls put(group, scale code, assignment) for each.
template <int kGroup, typename B, typename Put>
fp16_t encode_groups(const B& book, const Targets& x, float multiplier, int top, Put put) {
  float fitted[kSuperBlock / kGroup], largest = 0;
  for (int g = 0; g < kSuperBlock / kGroup; ++g) {
    fitted[g] = fit_group(book, x.t + g * kGroup, x.w + g * kGroup, kGroup, 0);
    largest = std::max(largest, fitted[g]);
  }
  const fp16_t d = float_to_fp16(largest / (static_cast<float>(2 * top + 1) * multiplier));
  const float unit = fp16_to_float(d) * multiplier;
  for (int g = 0; g < kSuperBlock / kGroup; ++g) {
    Assignment<B> a;
    const int s =
        choose_scale_code(book, x.t + g * kGroup, x.w + g * kGroup, kGroup, fitted[g], unit, 0, top, a);
    put(g, s, a);
  }
  return d;
}

void encode_iq2_xxs(const float* x, BlockIQ2_XXS& b, const float* importance) {
  static const Book2 book(iq2xxs_grid(), kLevels2);
  Targets targets;
  targets.set_unsigned(x, importance, true);
  b.d = encode_groups<32>(book, targets, 0.125f, 15, [&](int g, int s, const Assignment<Book2>& a) {
    uint32_t words[2] = {0, static_cast<uint32_t>(s) << 28};
    for (int j = 0; j < 4; ++j) {
      words[0] |= static_cast<uint32_t>(a.index[j]) << (8 * j);
      words[1] |= static_cast<uint32_t>(targets.signs[g * 4 + j] & 127) << (7 * j);
    }
    std::memcpy(b.qs + g * 4, words, sizeof words);
  });
}

void encode_iq2_xs(const float* x, BlockIQ2_XS& b, const float* importance) {
  static const Book2 book(iq2xs_grid(), kLevels2);
  Targets targets;
  targets.set_unsigned(x, importance, true);
  std::memset(b.scales, 0, sizeof b.scales);
  b.d = encode_groups<16>(book, targets, 0.125f, 15, [&](int g, int s, const Assignment<Book2>& a) {
    b.scales[g / 2] |= static_cast<uint8_t>(s << (g % 2 * 4));
    for (int j = 0; j < 2; ++j)
      b.qs[g * 2 + j] = static_cast<uint16_t>(a.index[j] | (targets.signs[g * 2 + j] & 127) << 9);
  });
}

void encode_iq2_s(const float* x, BlockIQ2_S& b, const float* importance) {
  static const Book2 book(iq2s_grid(), kLevels2);
  Targets targets;
  targets.set_unsigned(x, importance, false);
  std::memset(b.scales, 0, sizeof b.scales);
  std::memset(b.qh, 0, sizeof b.qh);
  std::memcpy(b.signs, targets.signs, sizeof b.signs);
  b.d = encode_groups<16>(book, targets, 0.125f, 15, [&](int g, int s, const Assignment<Book2>& a) {
    b.scales[g / 2] |= static_cast<uint8_t>(s << (g % 2 * 4));
    for (int j = 0; j < 2; ++j) {
      const int p = g * 2 + j;
      b.qs[p] = static_cast<uint8_t>(a.index[j]);
      b.qh[p / 4] |= static_cast<uint8_t>((a.index[j] >> 8) << (p % 4 * 2));
    }
  });
}

void encode_iq3_xxs(const float* x, BlockIQ3_XXS& b, const float* importance) {
  static const Book3 book(iq3xxs_grid(), kLevels3xxs);
  Targets targets;
  targets.set_unsigned(x, importance, true);
  b.d = encode_groups<32>(book, targets, 0.25f, 15, [&](int g, int s, const Assignment<Book3>& a) {
    uint32_t word = static_cast<uint32_t>(s) << 28;
    for (int j = 0; j < 4; ++j) word |= static_cast<uint32_t>(targets.signs[g * 4 + j] & 127) << (7 * j);
    std::memcpy(b.scales_and_signs + g * 4, &word, 4);
    for (int j = 0; j < 8; ++j) b.qs[g * 8 + j] = static_cast<uint8_t>(a.index[j]);
  });
}

void encode_iq3_s(const float* x, BlockIQ3_S& b, const float* importance) {
  static const Book3 book(iq3s_grid(), kLevels3s);
  Targets targets;
  targets.set_unsigned(x, importance, false);
  std::memset(b.scales, 0, sizeof b.scales);
  std::memset(b.qh, 0, sizeof b.qh);
  std::memcpy(b.signs, targets.signs, sizeof b.signs);
  b.d = encode_groups<32>(book, targets, 1.0f, 15, [&](int g, int s, const Assignment<Book3>& a) {
    b.scales[g / 2] |= static_cast<uint8_t>(s << (g % 2 * 4));
    for (int j = 0; j < 8; ++j) {
      b.qs[g * 8 + j] = static_cast<uint8_t>(a.index[j]);
      b.qh[g] |= static_cast<uint8_t>((a.index[j] >> 8) << j);
    }
  });
}

const Book2& iq1_book() {
  static const Book2 book(iq1s_grid(), kLevels1);
  return book;
}

void encode_iq1_s(const float* x, BlockIQ1_S& b, const float* importance) {
  const Book2& book = iq1_book();
  Targets targets;
  targets.set_signed(x, importance);
  float fitted[8][2], largest = 0;
  for (int g = 0; g < 8; ++g) {
    float error[2];
    for (int side = 0; side < 2; ++side) {
      const float offset = side ? -kIq1Delta : kIq1Delta;
      fitted[g][side] = fit_group(book, targets.t + g * 32, targets.w + g * 32, 32, offset);
      error[side] = assign(book, targets.t + g * 32, targets.w + g * 32, 32, fitted[g][side], offset).error;
    }
    largest = std::max(largest, fitted[g][error[1] < error[0] ? 1 : 0]);
  }
  b.d = float_to_fp16(largest / 15.0f);
  const float unit = fp16_to_float(b.d);
  for (int g = 0; g < 8; ++g) {
    Assignment<Book2> best;
    best.error = INFINITY;
    for (int side = 0; side < 2; ++side) {
      Assignment<Book2> a;
      const int s = choose_scale_code(book, targets.t + g * 32, targets.w + g * 32, 32, fitted[g][side], unit,
                                      side ? -kIq1Delta : kIq1Delta, 7, a);
      if (!(a.error < best.error)) continue;
      best = a;
      b.qh[g] = static_cast<uint16_t>(s << 12 | side << 15);
    }
    for (int j = 0; j < 4; ++j) {
      b.qs[g * 4 + j] = static_cast<uint8_t>(best.index[j]);
      b.qh[g] |= static_cast<uint16_t>((best.index[j] >> 8) << (3 * j));
    }
  }
}

/// IQ1_M: both offsets are open for every point.
struct Iq1mPoint {
  uint16_t index;
  bool negative_offset;
};

/// Points of sixteen values under `scale`; returns the error. `sum_tg` and `sum_gg` refit the scale.
float assign_iq1_m(const float* t, const float* w, float scale, Iq1mPoint (&points)[2], float& sum_tg,
                   float& sum_gg) {
  const Book2& book = iq1_book();
  float total = 0;
  sum_tg = sum_gg = 0;
  for (int j = 0; j < 2; ++j) {
    const float *tj = t + j * 8, *wj = w + j * 8;
    float plus_error, minus_error;
    const uint16_t plus = book.nearest(tj, wj, scale, kIq1Delta, plus_error);
    const uint16_t minus = book.nearest(tj, wj, scale, -kIq1Delta, minus_error);
    const bool negative = minus_error < plus_error;
    points[j] = {negative ? minus : plus, negative};
    total += std::min(plus_error, minus_error);
    const float* p = book.point(points[j].index);
    for (int i = 0; i < 8; ++i) {
      const float g = p[i] + (negative ? -kIq1Delta : kIq1Delta);
      sum_tg += wj[i] * tj[i] * g;
      sum_gg += wj[i] * g * g;
    }
  }
  return total;
}

float fit_iq1_m(const float* t, const float* w) {
  float largest = 0, best_scale = 0, best_gain = 0;
  for (int i = 0; i < 16; ++i) largest = std::max(largest, std::fabs(t[i]));
  for (int step = 0; step < 10; ++step) {
    Iq1mPoint points[2];
    float sum_tg, sum_gg;
    assign_iq1_m(t, w, largest * (1.1f - 0.07f * static_cast<float>(step)), points, sum_tg, sum_gg);
    if (sum_tg > 0 && sum_tg * sum_tg > best_gain * sum_gg) {
      best_gain = sum_tg * sum_tg / sum_gg;
      best_scale = sum_tg / sum_gg;
    }
  }
  return best_scale;
}

void encode_iq1_m(const float* x, BlockIQ1_M& b, const float* importance) {
  Targets targets;
  targets.set_signed(x, importance);
  float fitted[16], largest = 0;
  for (int g = 0; g < 16; ++g) {
    fitted[g] = fit_iq1_m(targets.t + g * 16, targets.w + g * 16);
    largest = std::max(largest, fitted[g]);
  }
  const fp16_t d = float_to_fp16(largest / 15.0f);
  const float unit = fp16_to_float(d);
  uint16_t scales[4];
  for (int i = 0; i < 4; ++i) scales[i] = static_cast<uint16_t>((d >> (4 * i) & 15) << 12);
  for (int g = 0; g < 16; ++g) {
    const int middle = scale_code(fitted[g], unit, 7);
    float best_error = INFINITY;
    int chosen = middle;
    Iq1mPoint best[2] = {};
    for (int s = std::max(middle - 1, 0); s <= std::min(middle + 1, 7); ++s) {
      Iq1mPoint points[2];
      float sum_tg, sum_gg;
      const float error = assign_iq1_m(targets.t + g * 16, targets.w + g * 16,
                                       unit * static_cast<float>(2 * s + 1), points, sum_tg, sum_gg);
      if (error < best_error) {
        best_error = error;
        chosen = s;
        std::copy(points, points + 2, best);
      }
    }
    scales[g / 4] |= static_cast<uint16_t>(chosen << (g % 4 * 3));
    b.qh[g] = 0;
    for (int j = 0; j < 2; ++j) {
      b.qs[g * 2 + j] = static_cast<uint8_t>(best[j].index);
      b.qh[g] |= static_cast<uint8_t>((best[j].index >> 8 | (best[j].negative_offset ? 8 : 0)) << (4 * j));
    }
  }
  std::memcpy(b.scales, scales, sizeof scales);
}

/// Code of the IQ4 value nearest to `x`.
uint8_t nearest_iq4(float x) {
  static const auto table = [] {
    std::array<uint8_t, 256> t{};
    for (int v = -128; v < 128; ++v)
      for (uint8_t code = 1; code < 16; ++code)
        if (std::abs(kIq4Values[code] - v) < std::abs(kIq4Values[t[static_cast<size_t>(v + 128)]] - v))
          t[static_cast<size_t>(v + 128)] = code;
    return t;
  }();
  return table[static_cast<size_t>(truncate(x + 128.5f, 0, 255))];
}

/// Scale of 32 elements for the IQ4 values; either end of their range may take the largest element.
float fit_iq4(const float* x, const float* w) {
  float largest = 0;
  for (int i = 0; i < 32; ++i)
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  if (!(std::fabs(largest) > 1e-30f)) return 0;
  float best_scale = 0, best_gain = 0;
  for (const float end : {-127.0f, 113.0f})
    for (int step = -5; step <= 5; ++step) {
      const float inverse = (end + static_cast<float>(step) * 1.5f) / largest;
      float sum_xl = 0, sum_ll = 0;
      for (int i = 0; i < 32; ++i) {
        const auto l = static_cast<float>(kIq4Values[nearest_iq4(x[i] * inverse)]);
        sum_xl += w[i] * x[i] * l;
        sum_ll += w[i] * l * l;
      }
      if (sum_xl * sum_xl > best_gain * sum_ll) {
        best_gain = sum_xl * sum_xl / sum_ll;
        best_scale = sum_xl / sum_ll;
      }
    }
  return best_scale;
}

void pack_iq4(const float* x, float scale, uint8_t* qs) {
  const float inverse = inverse_or_zero(scale);
  for (int i = 0; i < 16; ++i)
    qs[i] = static_cast<uint8_t>(nearest_iq4(x[i] * inverse) | nearest_iq4(x[i + 16] * inverse) << 4);
}

void encode_iq4_nl(const float* x, BlockIQ4_NL& b, const float* importance) {
  float w[32];
  error_weights<32>(x, importance, w);
  b.d = float_to_fp16(fit_iq4(x, w));
  pack_iq4(x, fp16_to_float(b.d), b.qs);
}

void encode_iq4_xs(const float* x, BlockIQ4_XS& b, const float* importance) {
  float w[kSuperBlock], fitted[8], largest = 0;
  error_weights<kSuperBlock>(x, importance, w);
  for (int g = 0; g < 8; ++g) {
    fitted[g] = fit_iq4(x + g * 32, w + g * 32);
    if (std::fabs(fitted[g]) > std::fabs(largest)) largest = fitted[g];
  }
  b.d = float_to_fp16(largest / -32.0f);
  const float d = fp16_to_float(b.d), inverse = inverse_or_zero(d);
  b.scales_h = 0;
  std::memset(b.scales_l, 0, sizeof b.scales_l);
  for (int g = 0; g < 8; ++g) {
    const int s = truncate(fitted[g] * inverse + 32.5f, 0, 63);
    b.scales_l[g / 2] |= static_cast<uint8_t>((s & 15) << (g % 2 * 4));
    b.scales_h |= static_cast<uint16_t>((s >> 4) << (2 * g));
    pack_iq4(x + g * 32, d * static_cast<float>(s - 32), b.qs + g * 16);
  }
}

}  // namespace

EncodeFunction iq_encoder(DType type) {
  switch (type) {
    case DType::kIQ2_XXS:
      return encode_blocks<BlockIQ2_XXS, kSuperBlock, encode_iq2_xxs>;
    case DType::kIQ2_XS:
      return encode_blocks<BlockIQ2_XS, kSuperBlock, encode_iq2_xs>;
    case DType::kIQ2_S:
      return encode_blocks<BlockIQ2_S, kSuperBlock, encode_iq2_s>;
    case DType::kIQ3_XXS:
      return encode_blocks<BlockIQ3_XXS, kSuperBlock, encode_iq3_xxs>;
    case DType::kIQ3_S:
      return encode_blocks<BlockIQ3_S, kSuperBlock, encode_iq3_s>;
    case DType::kIQ1_S:
      return encode_blocks<BlockIQ1_S, kSuperBlock, encode_iq1_s>;
    case DType::kIQ1_M:
      return encode_blocks<BlockIQ1_M, kSuperBlock, encode_iq1_m>;
    case DType::kIQ4_NL:
      return encode_blocks<BlockIQ4_NL, 32, encode_iq4_nl>;
    case DType::kIQ4_XS:
      return encode_blocks<BlockIQ4_XS, kSuperBlock, encode_iq4_xs>;
    default:
      return nullptr;
  }
}

}  // namespace millrace::quant
