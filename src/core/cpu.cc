#include "core/cpu.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/error.h"

namespace millrace {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

#if defined(__x86_64__)
uint64_t xgetbv0() {
  uint32_t lo, hi;
  asm volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (static_cast<uint64_t>(hi) << 32) | lo;
}

/// Tile registers are 8 KiB of state that Linux saves only for processes that asked (arch_prctl(2),
/// ARCH_REQ_XCOMP_PERM). Threads inherit the permission.
bool request_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

CpuFeatures detect() {
  CpuFeatures f;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const bool osxsave = c & (1u << 27), fma = c & (1u << 12), f16c = c & (1u << 29), avx = c & (1u << 28);
  if (!osxsave || !avx) return f;
  const uint64_t xcr0 = xgetbv0();
  const bool ymm = (xcr0 & 0x6) == 0x6, zmm = (xcr0 & 0xe6) == 0xe6, tiles = (xcr0 & 0x60000) == 0x60000;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  const uint32_t b7 = b, c7 = c, d7 = d;
  uint32_t a71 = 0;
  if (a >= 1) {
    __get_cpuid_count(7, 1, &a, &b, &c, &d);
    a71 = a;
  }
  auto bit = [](uint32_t word, int n) { return (word >> n) & 1u; };
  f.avx2 = ymm && fma && f16c && bit(b7, 5) && bit(b7, 8);
  f.avx_vnni = f.avx2 && bit(a71, 4);
  f.avx512 = f.avx2 && zmm && bit(b7, 16) && bit(b7, 17) && bit(b7, 30) && bit(b7, 31) && bit(c7, 11);
  f.avx512_bf16 = f.avx512 && bit(a71, 5);
  const bool bytes = bit(c7, 1) && bit(c7, 8);  // AVX-512 VBMI and GFNI, which every processor with tiles has
  f.amx = tiles && f.avx512_bf16 && bytes && bit(d7, 22) && bit(d7, 24) && bit(d7, 25) && request_tiles();
  f.amx_fp16 = f.amx && bit(d7, 23) && bit(a71, 21);
  return f;
}
#else
CpuFeatures detect() { return {}; }
#endif

/// This process's cgroup v2 path below /sys/fs/cgroup ("" for the root).
std::string cgroup_path() {
  std::istringstream in(slurp("/proc/self/cgroup"));
  std::string line;
  while (std::getline(in, line))
    if (line.rfind("0::", 0) == 0) return line.substr(3) == "/" ? "" : line.substr(3);
  return "";
}

/// Calls visit(folder) for this process's cgroup and each of its parents: a limit of any of them binds.
template <typename Visit>
void for_each_cgroup(Visit visit) {
  std::string path = cgroup_path();
  while (true) {
    visit("/sys/fs/cgroup" + path);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) break;
    path.resize(slash);
  }
}

std::optional<uint64_t> parse_u64(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  uint64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Value in kB of a "Name:   123 kB" line of a /proc file.
uint64_t proc_kb(const std::string& text, std::string_view name) {
  const size_t at = text.find(name);
  if (at == std::string::npos) return 0;
  return std::strtoull(text.c_str() + at + name.size(), nullptr, 10);
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

IsaLevel best_isa() {
  const CpuFeatures& f = cpu_features();
  return f.amx      ? IsaLevel::kAmxInt8
         : f.avx512 ? IsaLevel::kAvx512
         : f.avx2   ? IsaLevel::kAvx2
                    : IsaLevel::kScalar;
}

IsaLevel fastest_isa() {
  const CpuFeatures& f = cpu_features();
  return f.amx_fp16 ? IsaLevel::kAmxFp16 : f.amx ? IsaLevel::kAmx : best_isa();
}

IsaLevel parse_isa(std::string_view name) {
  if (name == "auto") return fastest_isa();
  if (name == "exact") return best_isa();
  for (IsaLevel level : {IsaLevel::kScalar, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAmxInt8,
                         IsaLevel::kAmx, IsaLevel::kAmxFp16}) {
    if (name != isa_name(level)) continue;
    require(level <= fastest_isa(), ErrorCode::kUnsupported, "this CPU has no {} (its best level is {})",
            name, isa_name(fastest_isa()));
    return level;
  }
  fail(ErrorCode::kInvalidArgument,
       "unknown instruction set '{}': expected auto, exact, amx-fp16, amx, amx-int8, avx512, avx2 or scalar",
       name);
}

std::string_view isa_name(IsaLevel level) {
  switch (level) {
    case IsaLevel::kScalar:
      return "scalar";
    case IsaLevel::kAvx2:
      return "avx2";
    case IsaLevel::kAvx512:
      return "avx512";
    case IsaLevel::kAmxInt8:
      return "amx-int8";
    case IsaLevel::kAmx:
      return "amx";
    case IsaLevel::kAmxFp16:
      return "amx-fp16";
  }
  return "unknown";
}

std::optional<double> parse_cpu_max(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const auto quota = parse_u64(text.substr(0, space)), period = parse_u64(text.substr(space + 1));
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int usable_cpus() {
  int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  // A mask for more CPUs than a fixed cpu_set_t holds, so that the largest machines answer too.
  for (int capacity = 1024; capacity <= 65536; capacity *= 4) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (ok) {
      cpus = std::min(cpus, count);
      break;
    }
  }
  auto apply = [&](std::optional<double> quota) {
    if (quota) cpus = std::min(cpus, std::max(1, static_cast<int>(std::ceil(*quota))));
  };
  for_each_cgroup([&](const std::string& folder) { apply(parse_cpu_max(slurp(folder + "/cpu.max"))); });
  // cgroup v1, as older container hosts still mount it
  const auto v1_quota = parse_u64(slurp("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
  const auto v1_period = parse_u64(slurp("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
  if (v1_quota && v1_period && *v1_period)
    apply(static_cast<double>(*v1_quota) / static_cast<double>(*v1_period));
  return std::max(1, cpus);
}

uint64_t available_memory_bytes() {
  uint64_t available = proc_kb(slurp("/proc/meminfo"), "MemAvailable:") * 1024;
  for_each_cgroup([&](const std::string& folder) {
    const auto limit = parse_u64(slurp(folder + "/memory.max"));
    const auto used = parse_u64(slurp(folder + "/memory.current"));
    if (!limit || !used) return;
    // Page cache counts as used by the cgroup but is given back under pressure.
    const std::string stat = slurp(folder + "/memory.stat");
    const size_t at = stat.find("inactive_file ");
    const uint64_t reclaimable =
        at == std::string::npos ? 0 : std::strtoull(stat.c_str() + at + 14, nullptr, 10);
    const uint64_t held = *used > reclaimable ? *used - reclaimable : 0;
    available = std::min(available, *limit > held ? *limit - held : 0);
  });
  return available;
}

uint64_t peak_resident_bytes() { return proc_kb(slurp("/proc/self/status"), "VmHWM:") * 1024; }
uint64_t resident_bytes() { return proc_kb(slurp("/proc/self/status"), "VmRSS:") * 1024; }

std::string cpu_model_name() {
  const std::string info = slurp("/proc/cpuinfo");
  const size_t at = info.find("model name");
  if (at == std::string::npos) return "unknown CPU";
  const size_t colon = info.find(':', at), end = info.find('\n', at);
  return colon == std::string::npos || colon + 2 > end ? "unknown CPU"
                                                       : info.substr(colon + 2, end - colon - 2);
}

}  // namespace millrace
