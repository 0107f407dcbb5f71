#include "kernels/table.h"

#include "kernels/tables.h"

namespace millrace::kernels {
namespace {

Table make_table(IsaLevel level) {
  Table t = scalar_table();
  t.isa = level;
#if defined(__x86_64__)
  if (level >= IsaLevel::kAvx2) fill_avx2(t);
  if (level >= IsaLevel::kAvx512) fill_avx512(t);
  if (level >= IsaLevel::kAvx512 && cpu_features().avx512_bf16) fill_avx512bf16(t);
  if (level >= IsaLevel::kAmxInt8) fill_amx(t);
#endif
  return t;
}

}  // namespace

const Table& table(IsaLevel level) {
  static const Table scalar = make_table(IsaLevel::kScalar);
  static const Table avx2 = make_table(IsaLevel::kAvx2);
  static const Table avx512 = make_table(IsaLevel::kAvx512);
  static const Table amx_int8 = make_table(IsaLevel::kAmxInt8);
  static const Table amx = make_table(IsaLevel::kAmx);
  static const Table amx_fp16 = make_table(IsaLevel::kAmxFp16);
  switch (level) {
    case IsaLevel::kAmxFp16:
      return amx_fp16;
    case IsaLevel::kAmx:
      return amx;
    case IsaLevel::kAmxInt8:
      return amx_int8;
    case IsaLevel::kAvx512:
      return avx512;
    case IsaLevel::kAvx2:
      return avx2;
    case IsaLevel::kScalar:
      break;
  }
  return scalar;
}

}  // namespace millrace::kernels
