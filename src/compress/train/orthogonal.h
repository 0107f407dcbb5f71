// Orthogonalised updates of attention matrices (Muon, Jordan 2024, with the scale of Liu et al. 2025): the
// momentum is replaced by the nearest matrix whose singular values are about one, so that rare directions,
// which hold what tells one word from another, are learnt as fast as common ones.
#pragma once

#include <cstdint>
#include <vector>

#include "compress/train/kernels.h"

namespace millrace::train {

/// Work space of one thread.
struct OrthogonalScratch {
  std::vector<float> x, square, polynomial, next, panels, transposed;
};

/// Brings the singular values of matrix [rows][columns] close to one by five Newton-Schulz steps, in place.
/// Rows and columns are multiples of 32. A zero matrix stays zero.
void orthogonalise(const Kernels& kernels, float* matrix, int64_t rows, int64_t columns,
                   OrthogonalScratch& scratch);

}  // namespace millrace::train
