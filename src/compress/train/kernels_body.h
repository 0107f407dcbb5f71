// The bodies of every table of train/kernels.h, written on vectors of kLanes floats. Each kernels_ISA.cc
// includes this file once, inside its own unnamed namespace, so that nothing compiled for a wide instruction
// set can be linked elsewhere. No include guard and no includes: the including file brings <cstdint>,
// <cstring>, <immintrin.h>.

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kSubRows = 8;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kSubRows = 4;
#else
constexpr int kLanes = 4;
constexpr int kSubRows = 4;
#endif

typedef float Vec __attribute__((vector_size(kLanes * 4)));
typedef float VecMem __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef int32_t IntVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t WordVec __attribute__((vector_size(kLanes * 4)));
typedef uint32_t WordVecMem __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const VecMem*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<VecMem*>(p) = v; }
inline WordVec load_words(const Word* p) { return *reinterpret_cast<const WordVecMem*>(p); }
inline Vec splat(float x) { return Vec{} + x; }
inline Vec as_float(WordVec v) { return reinterpret_cast<Vec>(v); }
inline float word_float(Word w) {
  float f;
  std::memcpy(&f, &w, 4);
  return f;
}

inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline Vec maximum(Vec a, Vec b) { return a > b ? a : b; }
inline Vec minimum(Vec a, Vec b) { return a < b ? a : b; }

inline float sum(Vec v) {
  float parts[kLanes];
  store(parts, v);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) parts[i] += parts[i + width];
  return parts[0];
}

/// e^x by splitting x = n ln 2 + r and a polynomial of degree 6 in r: within 2 units in the last place.
/// Saturates.
inline Vec exponential(Vec x) {
  x = minimum(maximum(x, splat(-87.0f)), splat(88.0f));
  const Vec magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = fma(x, splat(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r = fma(n, splat(-0.693145751953125f), x);
  r = fma(n, splat(-1.42860682030941723e-6f), r);
  Vec p = splat(1.0f / 720);
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  p = fma(p, r, splat(1.0f));
  const IntVec exponent = (reinterpret_cast<IntVec>(shifted) - 0x4b400000) << 23;
  return reinterpret_cast<Vec>(reinterpret_cast<IntVec>(p) + exponent);
}

inline Vec sigmoid(Vec x) { return splat(1.0f) / (splat(1.0f) + exponential(-x)); }

template <bool kAdd, int kRows>
inline void write_tile(const Vec (&sums)[kRows][2], float* c, int64_t ldc) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float* at = c + r * ldc + v * kLanes;
      store(at, kAdd ? load(at) + sums[r][v] : sums[r][v]);
    }
  }
}

template <bool kAdd>
void tile_f32(const Word* a, int64_t a_row, int64_t a_k, const Word* b, int64_t k_words, float* c,
              int64_t ldc) {
  for (int row = 0; row < kTileRows; row += kSubRows) {
    for (int column = 0; column < kPanelColumns; column += 2 * kLanes) {
      Vec sums[kSubRows][2] = {};
      const Word* left = a + row * a_row;
      const Word* right = b + column;
      for (int64_t k = 0; k < k_words; ++k, left += a_k, right += kPanelColumns) {
        const Vec b0 = as_float(load_words(right)), b1 = as_float(load_words(right + kLanes));
#pragma GCC unroll 8
        for (int r = 0; r < kSubRows; ++r) {
          const Vec value = splat(word_float(left[r * a_row]));
          sums[r][0] = fma(value, b0, sums[r][0]);
          sums[r][1] = fma(value, b1, sums[r][1]);
        }
      }
      write_tile<kAdd>(sums, c + row * ldc + column, ldc);
    }
  }
}

void gemm_f32(const Word* a, int64_t a_row, int64_t a_k, const Word* b, int64_t k_words, float* c,
              int64_t ldc, Into into) {
  if (into == Into::kAdd)
    tile_f32<true>(a, a_row, a_k, b, k_words, c, ldc);
  else
    tile_f32<false>(a, a_row, a_k, b, k_words, c, ldc);
}

// bfloat16 without an instruction for it: both halves of a word widen to float by a shift or a mask.
template <bool kAdd>
void tile_bf16(const Word* a, int64_t a_row, int64_t a_k, const Word* b, int64_t k_words, float* c,
               int64_t ldc) {
  for (int row = 0; row < kTileRows; row += kSubRows) {
    for (int column = 0; column < kPanelColumns; column += 2 * kLanes) {
      Vec sums[kSubRows][2] = {};
      const Word* left = a + row * a_row;
      const Word* right = b + column;
      for (int64_t k = 0; k < k_words; ++k, left += a_k, right += kPanelColumns) {
        const WordVec w0 = load_words(right), w1 = load_words(right + kLanes);
        const Vec even0 = as_float(w0 << 16), odd0 = as_float(w0 & 0xffff0000u);
        const Vec even1 = as_float(w1 << 16), odd1 = as_float(w1 & 0xffff0000u);
#pragma GCC unroll 8
        for (int r = 0; r < kSubRows; ++r) {
          const Word word = left[r * a_row];
          const Vec even = splat(word_float(word << 16)), odd = splat(word_float(word & 0xffff0000u));
          sums[r][0] = fma(odd, odd0, fma(even, even0, sums[r][0]));
          sums[r][1] = fma(odd, odd1, fma(even, even1, sums[r][1]));
        }
      }
      write_tile<kAdd>(sums, c + row * ldc + column, ldc);
    }
  }
}

[[maybe_unused]] void gemm_bf16(const Word* a, int64_t a_row, int64_t a_k, const Word* b, int64_t k_words,
                                float* c, int64_t ldc, Into into) {
  if (into == Into::kAdd)
    tile_bf16<true>(a, a_row, a_k, b, k_words, c, ldc);
  else
    tile_bf16<false>(a, a_row, a_k, b, k_words, c, ldc);
}

void to_bf16(const float* from, uint16_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    to[i] = static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
}

void pack_f32(const float* from, int64_t rows, int64_t columns, int64_t row_stride, Word* to) {
  for (int64_t column = 0; column < columns; column += kPanelColumns)
    for (int64_t row = 0; row < rows; ++row, to += kPanelColumns)
      std::memcpy(to, from + row * row_stride + column, kPanelColumns * 4);
}

void pack_bf16(const uint16_t* from, int64_t rows, int64_t columns, int64_t row_stride, Word* to) {
  for (int64_t column = 0; column < columns; column += kPanelColumns) {
    for (int64_t row = 0; row < rows; row += 2, to += kPanelColumns) {
      const uint16_t* even = from + row * row_stride + column;
      const uint16_t* odd = even + row_stride;
      for (int i = 0; i < kPanelColumns; ++i)
        to[i] = static_cast<Word>(even[i]) | (static_cast<Word>(odd[i]) << 16);
    }
  }
}

float rms_norm(const float* x, const float* weight, float* y, int64_t count, float epsilon) {
  Vec squares = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec v = load(x + i);
    squares = fma(v, v, squares);
  }
  const float rstd = 1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(count) + epsilon);
  for (int64_t i = 0; i < count; i += kLanes) store(y + i, load(x + i) * rstd * load(weight + i));
  return rstd;
}

void rms_norm_backward(const float* x, const float* weight, const float* dy, float rstd, float* dx,
                       float* dweight, int64_t count) {
  Vec dots = {};
  for (int64_t i = 0; i < count; i += kLanes) dots = fma(load(dy + i) * load(weight + i), load(x + i), dots);
  const float shared = sum(dots) * rstd * rstd * rstd / static_cast<float>(count);
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec gradient = load(dy + i), value = load(x + i);
    store(dx + i, load(dx + i) + gradient * load(weight + i) * rstd - value * shared);
    store(dweight + i, fma(gradient, value * rstd, load(dweight + i)));
  }
}

void swiglu(const float* gate, const float* up, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec g = load(gate + i);
    store(y + i, g * sigmoid(g) * load(up + i));
  }
}

void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const Vec g = load(gate + i), u = load(up + i), d = load(dy + i);
    const Vec s = sigmoid(g);
    store(dgate + i, d * u * s * fma(g, splat(1.0f) - s, splat(1.0f)));
    store(dup + i, d * g * s);
  }
}

float exp_sum(float* x, float scale, float shift, int64_t count) {
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const Vec e = exponential(load(x + i) * scale - shift);
    store(x + i, e);
    total += e;
  }
  float result = sum(total);
  if (i < count) {
    float tail[kLanes] = {};
    std::memcpy(tail, x + i, static_cast<size_t>(count - i) * 4);
    store(tail, exponential(load(tail) * scale - shift));
    for (int64_t j = i; j < count; ++j) result += tail[j - i];
    std::memcpy(x + i, tail, static_cast<size_t>(count - i) * 4);
  }
  return result;
}

float largest(const float* x, int64_t count) {
  float result = x[0];
  int64_t i = 0;
  if (count >= kLanes) {
    Vec best = load(x);
    for (i = kLanes; i + kLanes <= count; i += kLanes) best = maximum(best, load(x + i));
    float parts[kLanes];
    store(parts, best);
    for (float part : parts) result = part > result ? part : result;
  }
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

void scale_by(float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

void add_to(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}

void add_scaled(const float* x, float factor, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

float dot(const float* x, const float* y, int64_t count) {
  Vec total = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) total = fma(load(x + i), load(y + i), total);
  float result = sum(total);
  for (; i < count; ++i) result += x[i] * y[i];
  return result;
}

void softmax_backward(const float* p, float* dp, float delta, float scale, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dp[i] = p[i] * (dp[i] - delta) * scale;
}

void rope(float* x, const float* cosine, const float* sine, int64_t count) {
  for (int64_t i = 0; i < count; i += 2) {
    const float a = x[i], b = x[i + 1];
    x[i] = a * cosine[i] + b * sine[i];
    x[i + 1] = b * cosine[i + 1] + a * sine[i + 1];
  }
}

void adam(float* weight, const float* gradient, float* first, float* second, int64_t count,
          const AdamStep& step) {
  const float keep1 = step.beta1, keep2 = step.beta2, new1 = 1.0f - keep1, new2 = 1.0f - keep2;
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * step.gradient_scale;
    const float m = keep1 * first[i] + new1 * g, v = keep2 * second[i] + new2 * g * g;
    first[i] = m;
    second[i] = v;
    const float update = m * step.correction1 / (__builtin_sqrtf(v * step.correction2) + step.epsilon);
    weight[i] -= step.learning_rate * (update + step.weight_decay * weight[i]);
  }
}

// The empty asm keeps the sums in registers without letting the compiler fold the loop.
double peak_f32(int64_t rounds) {
  Vec sums[12];
  for (int i = 0; i < 12; ++i) sums[i] = splat(static_cast<float>(i));
  Vec a = splat(0.5f), b = splat(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i) sums[i] = fma(a, sums[i], b);
    __asm__ volatile("" : "+x"(a), "+x"(b));
  }
  Vec total = {};
  for (const Vec& part : sums) total += part;
  const float keep = sum(total);
  __asm__ volatile("" : : "m"(keep));
  return static_cast<double>(rounds) * 12 * kLanes * 2;
}
