#include "core/error.h"
#include "text/tokenizer.h"

namespace millrace::text {

std::unique_ptr<Tokenizer> open_hugging_face_tokenizer(const std::string& directory) {
  fail(ErrorCode::kUnsupported, "{}: tokenizer.json cannot be read yet", directory);
}

}  // namespace millrace::text
