// Elementary functions over vectors; include after vector_*.h.
#pragma once

namespace millrace::kernels {
namespace {

/// e^x to 1.5 ulp (measured over all floats of [-87, 88] by tests/kernels): x = n ln 2 + r, a polynomial of
/// degree 6 for e^r on |r| <= ln 2 / 2, times 2^n. Exactly 0 below -104, infinity above 88.73; e^0 is
/// exactly 1.
inline F exponential(F x) {
  x = smaller(set(89.0f), larger(set(-105.0f), x));
  const F n = round_even(mul(x, set(1.44269504088896341f)));
  // ln 2 in two parts, the first with few bits so that n times it is exact.
  const F r = fnma(n, set(-2.12194440e-4f), fnma(n, set(0.693359375f), x));
  F p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = add(fma(mul(r, r), p, r), set(1.0f));
  return scale_by_power(p, n);
}

/// 2^x as `exponential` has e^x: exact 1 at 0, exactly 0 below -151, not a number stays.
inline F exponential2(F x) {
  x = larger(set(-152.0f), x);
  const F n = round_even(x), r = sub(x, n);
  F p = set(1.536121e-4f);
  p = fma(p, r, set(1.339887441e-3f));
  p = fma(p, r, set(9.618437358e-3f));
  p = fma(p, r, set(5.550332471e-2f));
  p = fma(p, r, set(2.402264791e-1f));
  p = fma(p, r, set(6.931472029e-1f));
  p = fma(p, r, set(1.0f));
  return scale_by_power(p, n);
}

/// 1 / (1 + e^-x)
inline F sigmoid(F x) { return div(set(1.0f), add(set(1.0f), exponential(sub(set(0.0f), x)))); }

/// log(1 + e^x): max(x, 0) + log1p(u) with u = e^-|x|, and log1p(u) = 2 atanh(u / (2 + u)) as an odd series.
inline F soft_plus(F x) {
  const F u = exponential(sub(set(0.0f), absolute(x)));
  const F s = div(u, add(set(2.0f), u));
  const F s2 = mul(s, s);
  F p = set(2.0f / 15);
  p = fma(p, s2, set(2.0f / 13));
  p = fma(p, s2, set(2.0f / 11));
  p = fma(p, s2, set(2.0f / 9));
  p = fma(p, s2, set(2.0f / 7));
  p = fma(p, s2, set(2.0f / 5));
  p = fma(p, s2, set(2.0f / 3));
  p = fma(p, s2, set(2.0f));
  return fma(p, s, larger(set(0.0f), x));
}

/// tanh to about 2 ulp: an odd polynomial near zero, 1 - 2 / (e^2x + 1) elsewhere.
inline F hyperbolic_tangent(F x) {
  const F magnitude = absolute(x);
  const F s = mul(x, x);
  F p = set(-5.70498872745e-3f);
  p = fma(p, s, set(2.06390887954e-2f));
  p = fma(p, s, set(-5.37397155531e-2f));
  p = fma(p, s, set(1.33314422036e-1f));
  p = fma(p, s, set(-3.33332819422e-1f));
  const F near = fma(mul(p, s), x, x);
  const F far = sub(set(1.0f), div(set(2.0f), add(exponential(add(magnitude, magnitude)), set(1.0f))));
  return where_less(magnitude, set(0.625f), near, copy_sign(far, x));
}

/// erf to 3e-7 absolute (Abramowitz and Stegun 7.1.26).
inline F error_function(F x) {
  const F magnitude = absolute(x);
  const F t = div(set(1.0f), fma(set(0.3275911f), magnitude, set(1.0f)));
  F p = set(1.061405429f);
  p = fma(p, t, set(-1.453152027f));
  p = fma(p, t, set(1.421413741f));
  p = fma(p, t, set(-0.284496736f));
  p = fma(p, t, set(0.254829592f));
  const F rest = mul(mul(p, t), exponential(sub(set(0.0f), mul(x, x))));
  return copy_sign(sub(set(1.0f), rest), x);
}

}  // namespace
}  // namespace millrace::kernels
