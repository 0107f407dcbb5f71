// What the matrix unit's instructions cost beside a core's other work, on one core in cycles: bare sequences,
// with all they touch in the first cache. The first table sets each instruction beside such as use one port
// of the core; the second moves a product within the vectors' work of a step.
//
//   tile_bench
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "bench.h"
#include "core/cpu.h"
#include "core/error.h"

namespace millrace {
namespace {

using bench::now;

alignas(4096) std::byte memory[64 << 10];

struct alignas(64) Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

using Sequence = void (*)();
struct Case {
  const char* name;
  Sequence run;
};

#define SEQUENCE(...)                                                                                    \
  [] {                                                                                                   \
    __asm__ volatile(__VA_ARGS__                                                                         \
                     :                                                                                   \
                     : "r"(memory), "r"(int64_t{64})                                                     \
                     : "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", \
                       "xmm9", "xmm10", "xmm11", "xmm14", "xmm15");                                      \
  }

// Twelve registers take turns as results, so that nothing waits for what is before it.
#define SHIFT(n) "vpsrlw $4, %%zmm15, %%zmm" #n "\n"
#define SHUFFLE(n) "vpshufb %%zmm14, %%zmm15, %%zmm" #n "\n"
#define LOGIC(n) "vpandd %%zmm14, %%zmm15, %%zmm" #n "\n"
#define MULTIPLY(n) "vpmullw %%zmm14, %%zmm15, %%zmm" #n "\n"
#define LOAD(n) "vmovdqa64 16384+64*" #n "(%0), %%zmm" #n "\n"
#define STORE(n) "vmovdqa64 %%zmm" #n ", 32768+64*" #n "(%0)\n"
#define FOUR(op) op(0) op(1) op(2) op(3)
#define SIXTEEN(op) FOUR(op) FOUR(op) FOUR(op) FOUR(op)
#define NOPS ".rept 64\nnop\n.endr\n"

#define ZERO(s) "tilezero %%tmm" #s "\n"
#define LOADS "tileloadd 0(%0,%1,1), %%tmm4\n tileloadd 1024(%0,%1,1), %%tmm5\n"
#define PRODUCT(s) "tdpbssd %%tmm5, %%tmm4, %%tmm" #s "\n"
#define KEEP(s) "tilestored %%tmm" #s ", 8192+1024*" #s "(%0,%1,1)\n"

// Four rounds, whose sums take turns.
#define ROUNDS(body) body(0, 2) body(1, 3) body(2, 0) body(3, 1)
#define NOTHING_(s, old) ""
#define LOAD_(s, old) "tileloadd 0(%0,%1,1), %%tmm4\n"
#define STORE_(s, old) KEEP(s)
#define PRODUCT_(s, old) LOADS ZERO(s) PRODUCT(s)
#define ALL_(s, old) LOADS ZERO(s) PRODUCT(s) KEEP(old)
#define BESIDE(body, work) SEQUENCE(ROUNDS_BESIDE(body, work))
#define ROUNDS_BESIDE(body, work) body(0, 2) work body(1, 3) work body(2, 0) work body(3, 1) work
#define ROW(name, body)                                                                 \
  {                                                                                     \
    name, {                                                                             \
      BESIDE(body, ""), BESIDE(body, SIXTEEN(SHIFT)), BESIDE(body, SIXTEEN(SHUFFLE)),   \
          BESIDE(body, SIXTEEN(LOGIC) SIXTEEN(LOGIC)), BESIDE(body, SIXTEEN(MULTIPLY)), \
          BESIDE(body, SIXTEEN(LOAD)), BESIDE(body, SIXTEEN(STORE)), BESIDE(body, NOPS) \
    }                                                                                   \
  }

// An eighth of a step's work for the vectors: five shifts, two shuffles, logic, five loads and two stores.
#define MIXED_A SHIFT(0) LOAD(1) SHUFFLE(2) LOAD(3) SHIFT(4) STORE(0) LOAD(5) SHIFT(6)
#define MIXED_B LOGIC(7) LOAD(8) SHIFT(9) SHUFFLE(10) STORE(2) LOAD(11) SHIFT(0) "nop\n"
#define MIXED MIXED_A MIXED_B
#define MIXED2 MIXED MIXED
#define MIXED4 MIXED2 MIXED2
#define VECTORS_(s, old) MIXED4 MIXED4
#define TOGETHER_(s, old) ZERO(s) LOADS PRODUCT(s) KEEP(old) MIXED4 MIXED4
#define BEHIND_LOADS_(s, old) \
  ZERO(s) LOADS PRODUCT(s)    \
  MIXED4 KEEP(old) MIXED4
#define EIGHTH_(s, old)          \
  ZERO(s) LOADS MIXED PRODUCT(s) \
  MIXED MIXED2 KEEP(old) MIXED4
#define QUARTER_(s, old)          \
  ZERO(s) LOADS MIXED2 PRODUCT(s) \
  MIXED2 KEEP(old) MIXED4
#define HALF_(s, old)             \
  ZERO(s) LOADS MIXED4 PRODUCT(s) \
  MIXED2 KEEP(old) MIXED2
#define HALF_AND_STORE_(s, old) ZERO(s) LOADS MIXED4 PRODUCT(s) KEEP(old) MIXED4
#define PLACE(body) SEQUENCE(ROUNDS(body))

void set_shapes(int rows) {
  Shapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.rows[tile] = static_cast<uint8_t>(tile == 5 ? 16 : rows);
    shapes.row_bytes[tile] = 64;
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

/// A round's cycles. A neighbour on the host can only add to them: the first tenth of the samples counts,
/// each set against a chain of additions right before it, one a cycle.
double cycles(Sequence run) {
  constexpr int kAdds = 5'000, kRuns = 100, kRounds = 4;
  std::vector<double> samples;
  for (int sample = 0; sample < 300; ++sample) {
    const double begin = now();
    uint64_t x = 0;
    for (int i = 0; i < kAdds; ++i) __asm__ volatile("add $1, %0" : "+r"(x));
    const double between = now();
    for (int i = 0; i < kRuns; ++i) run();
    samples.push_back((now() - between) / (kRuns * kRounds) / (between - begin) * kAdds);
  }
  std::nth_element(samples.begin(), samples.begin() + 30, samples.end());
  return samples[30];
}

int run(int, char**) {
  require(cpu_features().amx, ErrorCode::kInvalidArgument, "this processor has no matrix unit");
  struct Row {
    const char* name;
    Sequence beside[8];
  };
  const Row rows[] = {ROW("nothing", NOTHING_), ROW("tile load", LOAD_), ROW("tile store", STORE_),
                      ROW("2 loads, zero, product", PRODUCT_), ROW("2 loads, zero, product, store", ALL_)};
  for (int tile_rows : {16, 8}) {
    set_shapes(tile_rows);
    fmt::print("{} rows{:24}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}{:>8}\n", tile_rows, "", "alone", "16 shl",
               "16 shuf", "32 and", "16 mul", "16 load", "16 stor", "64 nop");
    for (const Row& row : rows) {
      fmt::print("{:31}", row.name);
      for (Sequence sequence : row.beside) fmt::print("{:8.1f}", cycles(sequence));
      fmt::print("\n");
    }
  }
  set_shapes(16);
  const Case places[] = {
      {"the vectors' work alone", PLACE(VECTORS_)},
      {"loads, product and store together", PLACE(TOGETHER_)},
      {"loads and product together, store half a step later", PLACE(BEHIND_LOADS_)},
      {"product an eighth of the step behind its loads", PLACE(EIGHTH_)},
      {"a quarter", PLACE(QUARTER_)},
      {"half", PLACE(HALF_)},
      {"half, and the store right behind", PLACE(HALF_AND_STORE_)},
  };
  fmt::print("\ncycles of a step of 40 shifts, 16 shuffles, 8 logic, 40 loads, 16 stores\n");
  for (const Case& place : places) fmt::print("{:55}{:8.1f}\n", place.name, cycles(place.run));
  __asm__ volatile("tilerelease" : : : "memory");
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::bench::guarded("tile_bench", millrace::run, argc, argv); }
