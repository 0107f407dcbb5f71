// Whatever the bytes: a chat template (and, after the first zero byte, its context) renders within its
// limits, or is refused with an Error.
#include <string_view>

#include "core/error.h"
#include "fuzz/fuzz_file.h"
#include "text/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view source = input.substr(0, zero);
  const std::string_view context =
      zero == std::string_view::npos
          ? R"({"s": "text é", "n": 3, "f": 2.5, "l": [3, 1, "x", null], "d": {"a": 1, "b": [true]},
               "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]})"
          : input.substr(zero + 1);
  millrace::text::RenderOptions options;
  options.now = millrace::text::LocalTime{2026, 7, 26, 9, 30, 0};
  options.limits.steps = 200'000;
  options.limits.memory_bytes = 16 << 20;
  try {
    millrace::text::ChatTemplate::parse(source).render(context, options);
  } catch (const millrace::Error& e) {
    if (e.code() == millrace::ErrorCode::kInternal) std::abort();
  }
  return 0;
}
