#include "ops/context.h"

#include <chrono>

namespace millrace::ops {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ProfileScope::ProfileScope(const Context& context, std::string_view name, double bytes, double operations)
    : profiler_(context.profiler), name_(name), bytes_(bytes), operations_(operations) {
  if (profiler_) begin_ns_ = now_ns();
}

ProfileScope::~ProfileScope() {
  if (profiler_) profiler_->record(name_, begin_ns_, now_ns(), bytes_, operations_);
}

}  // namespace millrace::ops
