#include "compress/train/kernels.h"

#include <array>

#include "core/cpu.h"

namespace millrace::train {
namespace {

struct Tables {
  std::array<const Kernels*, 4> list{};
  int count = 0;
};

const Tables& tables() {
  static const Tables result = [] {
    Tables t;
    const auto add = [&](bool usable, const Kernels* table) {
      if (usable && table) t.list[static_cast<size_t>(t.count++)] = table;
    };
    const CpuFeatures& cpu = cpu_features();
    add(true, &portable_kernels());
    add(cpu.avx2, avx2_kernels());
    add(cpu.avx512, avx512_kernels());
    add(cpu.avx512 && cpu.avx512_bf16, avx512bf16_kernels());
    return t;
  }();
  return result;
}

}  // namespace

int num_kernel_tables() { return tables().count; }
const Kernels& kernel_table(int index) { return *tables().list.at(static_cast<size_t>(index)); }
const Kernels& kernels() { return kernel_table(num_kernel_tables() - 1); }

}  // namespace millrace::train
