// millrace tokenize: text to token ids and back.
#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "cli/loaded_model.h"
#include "cli/progress.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "core/utf8.h"
#include "loaders/checkpoint.h"
#include "text/tokenizer.h"

namespace millrace::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  bool ids = false;
  bool no_special = false;
  bool plain = false;
  bool decode = false;
  bool bench = false;
};

std::unique_ptr<text::Tokenizer> open_vocabulary(const std::string& path) {
  // A directory may hold a tokenizer and no weights; a GGUF file may hold a vocabulary alone.
  if (std::filesystem::is_directory(path)) return text::open_hugging_face_tokenizer(path);
  return open_tokenizer(loaders::open_checkpoint(path));
}

std::vector<text::TokenId> parse_ids(const std::string& input, int32_t vocab_size) {
  std::vector<text::TokenId> ids;
  const char* at = input.data();
  const char* end = at + input.size();
  while (at < end) {
    if (std::isspace(static_cast<unsigned char>(*at)) || *at == ',') {
      ++at;
      continue;
    }
    text::TokenId id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    require(error == std::errc() &&
                (next == end || *next == ',' || std::isspace(static_cast<unsigned char>(*next))),
            ErrorCode::kInvalidArgument, "standard input, offset {}: expected token ids, separated by spaces",
            at - input.data());
    require(id >= 0 && id < vocab_size, ErrorCode::kInvalidArgument,
            "token id {} is outside the vocabulary, which has ids 0 to {}", id, vocab_size - 1);
    ids.push_back(id);
    at = next;
  }
  return ids;
}

/// One line for any bytes: control characters, backslashes and ill-formed bytes escaped.
std::string printable(const std::string& bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const uint32_t c = utf8::next(bytes, at);
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\\')
      out += "\\\\";
    else if (c == utf8::kInvalid || c < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(bytes[begin]));
    else
      out.append(bytes, begin, at - begin);
  }
  return out;
}

/// Speed over the given text on one thread: the best of all rounds within two seconds.
void bench(const text::Tokenizer& tokenizer, const std::string& input, const text::EncodeOptions& options) {
  require(!input.empty(), ErrorCode::kInvalidArgument, "--bench needs a text on standard input");
  using Clock = std::chrono::steady_clock;
  double best = 1e300;
  size_t count = 0;
  const auto begin = Clock::now();
  for (int round = 0; round < 3 || Clock::now() - begin < std::chrono::seconds(2); ++round) {
    const auto start = Clock::now();
    count = tokenizer.encode(input, options).size();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  fmt::print("{} bytes, {} tokens ({:.2f} bytes each): {:.1f} MB/s, {:.2f} million tokens/s on one thread\n",
             input.size(), count,
             static_cast<double>(input.size()) / static_cast<double>(std::max<size_t>(count, 1)),
             static_cast<double>(input.size()) / best / 1e6, static_cast<double>(count) / best / 1e6);
}

void print_ids(const std::vector<text::TokenId>& ids) {
  fmt::memory_buffer line;
  for (size_t i = 0; i < ids.size(); ++i)
    fmt::format_to(std::back_inserter(line), "{}{}", i > 0 ? " " : "", ids[i]);
  line.push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stdout);
}

int tokenize(int argc, char** argv) {
  CLI::App app(
      "Turns the text on standard input into token ids, or ids into text.\n"
      "Bytes that are not UTF-8 are kept where the vocabulary has tokens for bytes.",
      "millrace tokenize");
  TokenizeOptions o;
  app.add_option("-m,--model", o.model, "GGUF file (a vocabulary alone will do) or Hugging Face directory")
      ->type_name("PATH");
  app.add_flag("--ids", o.ids, "ids on one line, separated by spaces");
  app.add_flag("--no-special", o.no_special, "leave out BOS and EOS");
  app.add_flag("--plain", o.plain, "special tokens written in the text are text");
  app.add_flag("--decode", o.decode, "read ids, write their text");
  app.add_flag("--bench", o.bench, "measure the speed on the text instead");
  if (parse_arguments(app, argc, argv)) return 0;
  if (o.model.empty()) throw UsageError("no model given: use -m FILE.gguf or -m DIRECTORY");
  if (o.decode && (o.ids || o.bench)) throw UsageError("--decode goes with neither --ids nor --bench");

  const auto tokenizer = open_vocabulary(o.model);
  const std::string input = read_standard_input();
  if (o.decode) {
    const std::string text = tokenizer->decode(parse_ids(input, tokenizer->vocab_size()), !o.no_special);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return 0;
  }
  text::EncodeOptions options;
  options.add_special = !o.no_special;
  options.parse_special = !o.plain;
  if (o.bench) {
    bench(*tokenizer, input, options);
    return 0;
  }
  const std::vector<text::TokenId> ids = tokenizer->encode(input, options);
  if (o.ids) {
    print_ids(ids);
    return 0;
  }
  for (const text::TokenId id : ids) fmt::print("{:>7}  {}\n", id, printable(tokenizer->piece(id, true)));
  return 0;
}

MILLRACE_SUBCOMMAND("tokenize", 30, "turn text into token ids and back", tokenize);

}  // namespace
}  // namespace millrace::cli
