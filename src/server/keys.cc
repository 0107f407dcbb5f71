#include "server/keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <fstream>

#include "core/error.h"

namespace millrace::server {
namespace {

std::array<uint8_t, 32> digest_of(std::string_view text) {
  std::array<uint8_t, 32> out;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data());
  return out;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

ApiKeys::ApiKeys(const std::string& file) {
  std::ifstream in(file);
  require(in.is_open(), ErrorCode::kNotFound, "the key file {} cannot be opened", file);
  for (std::string line; std::getline(in, line);) {
    line = trimmed(line);
    if (!line.empty() && line[0] != '#') digests_.push_back(digest_of(line));
  }
  require(!digests_.empty(), ErrorCode::kInvalidFile, "the key file {} has no key: one a line was expected",
          file);
}

std::optional<std::string> ApiKeys::tenant_of(const std::string& authorization) const {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view key = authorization;
  if (key.substr(0, kBearer.size()) == kBearer) key.remove_prefix(kBearer.size());
  const auto digest = digest_of(trimmed(std::string(key)));
  // Every key is compared, and whole digests: neither position nor prefix shows in the time.
  int found = -1;
  for (size_t i = 0; i < digests_.size(); ++i)
    if (CRYPTO_memcmp(digest.data(), digests_[i].data(), digest.size()) == 0) found = static_cast<int>(i);
  if (found < 0) return std::nullopt;
  return fmt::format("key{}", found);
}

}  // namespace millrace::server
