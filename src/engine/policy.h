// How the scheduler ranks requests.
#pragma once

#include <cstdint>
#include <string>

namespace millrace::engine {

enum class Policy : uint8_t {
  kFcfs,      ///< first come, first served
  kSjf,       ///< shortest job (prompt and max_tokens) first
  kPriority,  ///< the request's priority, smaller first
  kDeadline,  ///< earliest deadline first
  kMaxBatch,  ///< as many sequences together as fit: the smallest first, the large ones passed over
  kStatic,    ///< baseline: a full batch runs to its end before the next begins
  kDynamic,   ///< baseline: the same, but a batch waits only briefly to fill up
  kOneByOne,  ///< baseline
};

/// "fcfs", "sjf", "priority", "deadline", "max-batch", "static", "dynamic", "one-by-one";
/// Error(kInvalidArgument) with the list for another word.
Policy parse_policy(const std::string& name);
const char* policy_name(Policy policy);

}  // namespace millrace::engine
