// What this process may use of the machine: instruction sets, cores, memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

/// Levels a user can force with --isa. kAvx2 needs AVX2, FMA, F16C and BMI2; kAvx512 needs F, BW, VL, DQ and
/// VNNI; kAmxInt8 and kAmx need besides the tiles of AMX with int8 and bfloat16, AVX-512 BF16, and the
/// kernel's permission. kAmxInt8 uses the tiles only where they give what vectors give; kAmx multiplies
/// prompts' rows with quantised weights as BF16, kAmxFp16, which needs tiles and vectors of half precision,
/// as those.
enum class IsaLevel { kScalar, kAvx2, kAvx512, kAmxInt8, kAmx, kAmxFp16 };

struct CpuFeatures {
  bool avx2 = false;      ///< AVX2 + FMA + F16C + BMI2, and the OS saves YMM
  bool avx_vnni = false;  ///< VEX-coded VNNI beside avx2
  bool avx512 = false;    ///< F, BW, VL, DQ, VNNI, and the OS saves ZMM
  bool avx512_bf16 = false;
  bool amx = false;       ///< tiles, int8, bfloat16; the kernel has let this process use them
  bool amx_fp16 = false;  ///< tiles of half precision besides, and AVX-512 FP16
};

const CpuFeatures& cpu_features();

/// The highest level at which a token's results do not depend on whether it was part of a prompt or of an
/// answer: below kAmx.
IsaLevel best_isa();
/// The highest level this CPU has, which "auto" means.
IsaLevel fastest_isa();

/// "auto" (fastest_isa), "exact" (best_isa) or a level's name to a level; Error(kInvalidArgument) for another
/// word, Error(kUnsupported) for a level this CPU does not have.
IsaLevel parse_isa(std::string_view name);
std::string_view isa_name(IsaLevel level);

/// Threads worth starting: the least of the online cores in this process's affinity mask (cpuset) and the
/// cgroup's CPU quota rounded up; at least 1.
int usable_cpus();

/// The quota of a cgroup v2 "cpu.max" text ("max 100000", "200000 100000") in cores; nullopt for none or
/// nonsense.
std::optional<double> parse_cpu_max(std::string_view text);

/// Bytes this process may still take: the least of the machine's available memory and what the cgroup leaves.
uint64_t available_memory_bytes();

/// Highest resident set of this process so far, in bytes.
uint64_t peak_resident_bytes();
/// Resident set now, in bytes.
uint64_t resident_bytes();

/// "AMD EPYC ..." as the CPU names itself.
std::string cpu_model_name();

}  // namespace millrace
