# Shared by the scripts of this folder: paths, progress lines, and one sentence when something is wrong.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"

say() { printf '\n== %s\n' "$*"; }
die() { printf '\n%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# Runs a step; its output goes to a log whose end is shown when it fails.
step() {
  local name=$1; shift
  say "$name"
  mkdir -p build
  local log="build/$(printf '%s' "$name" | tr -c 'A-Za-z0-9' '-').log" begin=$SECONDS
  if "$@" >"$log" 2>&1; then
    printf '   done in %d s\n' $((SECONDS - begin))
  else
    tail -n 40 "$log" >&2
    die "$name failed; the whole log is $log"
  fi
}

# Jobs that fit both cores and memory: a C++ compiler may take over 1 GiB.
jobs_that_fit() {
  local cores mem_gib
  cores=$(nproc)
  mem_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  local by_memory=$((mem_gib > 1 ? mem_gib : 1))
  echo $((cores < by_memory ? cores : by_memory))
}

# build PRESET [TARGET...]: configures and builds, showing ninja's own progress.
build() {
  local preset=$1; shift
  say "building ($preset)"
  mkdir -p build
  cmake --preset "$preset" >"build/configure-$preset.log" 2>&1 ||
    { tail -n 20 "build/configure-$preset.log" >&2; die "configuring failed; the whole log is build/configure-$preset.log"; }
  NINJA_STATUS='   [%f/%t, %e s] ' cmake --build --preset "$preset" -j "$(jobs_that_fit)" ${@:+--target "$@"} ||
    die "the $preset build failed; its errors are above"
}
