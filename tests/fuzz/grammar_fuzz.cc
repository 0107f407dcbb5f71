// Any front end on any text: an Error or a program that can be run. The first byte chooses the front end, a
// zero byte separates the grammar from a text that is then matched with masks along the way.
#include <cstdint>
#include <string>

#include "core/error.h"
#include "grammar/compiler.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace::grammar;
  if (size < 2 || size > 4096) return 0;
  static const auto trie = std::make_shared<const TokenTrie>(byte_vocabulary());
  static constexpr SourceKind kKinds[] = {SourceKind::kJsonSchema, SourceKind::kRegex, SourceKind::kGbnf,
                                          SourceKind::kLark, SourceKind::kChoices};
  Source source;
  source.kind = kKinds[data[0] % 5];
  const std::string all(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t zero = all.find('\0');
  source.text = all.substr(0, zero);
  const std::string text = zero == std::string::npos ? "" : all.substr(zero + 1);
  CompileOptions options;
  options.limits.seconds = 2;
  try {
    Matcher m(compile(source, trie, options));
    std::vector<uint64_t> mask(m.mask_words());
    for (char c : text) {
      m.fill_mask(mask);
      const auto b = static_cast<uint8_t>(c);
      const bool allowed = (mask[b >> 6] >> (b & 63)) & 1;
      if (m.accept(b) != allowed) __builtin_trap();
      if (!allowed) break;
    }
  } catch (const millrace::Error& e) {
    if (e.code() == millrace::ErrorCode::kInternal) __builtin_trap();
  }
  return 0;
}
