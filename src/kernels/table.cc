#include "kernels/table.h"

#include "kernels/tables.h"

namespace millrace::kernels {

const Table& table(IsaLevel level) {
  static const Table scalar = scalar_table();
  (void)level;
  return scalar;
}

}  // namespace millrace::kernels
