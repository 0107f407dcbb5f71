// Decoders of tokenizer.json: token texts back into a text. Bytes are kept as they are; the reference
// replaces what is not UTF-8, which a stream must not do before it is over.
#include "core/utf8.h"
#include "text/byte_alphabet.h"
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"
#include "text/hugging_face/patterns.h"

namespace millrace::text {
namespace {

void replace_text(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// Spaces that tokenising English put in.
void clean_up(std::string& text) {
  static constexpr std::pair<std::string_view, std::string_view> kPairs[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kPairs) replace_text(text, from, to);
}

/// A decoder that treats each token alike wherever it stands.
class PerToken : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) rewrite(token);
  }
  void apply_inside(std::string& token, bool&) const override { rewrite(token); }
  virtual void rewrite(std::string& token) const = 0;
};

/// Bytes of all tokens joined: what follows in a sequence sees one text.
class ByteLevelDecoder final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (std::string& token : tokens) {
      rewrite(token);
      all += token;
    }
    tokens.assign(1, all);
  }
  void apply_inside(std::string& token, bool& fused) const override {
    if (!fused) rewrite(token);
    fused = true;
  }
  bool strips_leading_space(bool& fused) const override {
    fused = true;
    return false;
  }

 private:
  static void rewrite(std::string& token) {
    if (std::optional<std::string> bytes = from_byte_alphabet(token)) token = std::move(*bytes);
  }
};

/// Bytes that follow each other become one token, for the decoders behind.
class ByteFallback final : public PerToken {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    bool open = false;
    for (std::string& token : tokens) {
      const size_t size = token.size();
      rewrite(token);
      const bool byte = size == 6 && token.size() == 1;
      if (byte && open)
        out.back() += token;
      else
        out.push_back(std::move(token));
      open = byte;
    }
    tokens.swap(out);
  }
  void rewrite(std::string& token) const override {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return;
    const int high = digit(token[3]), low = digit(token[4]);
    if (high >= 0 && low >= 0) token.assign(1, static_cast<char>(high * 16 + low));
  }
};

class ReplaceDecoder final : public PerToken {
 public:
  explicit ReplaceDecoder(const JsonNode& node)
      : pattern_(Pattern::from_json(node.at("pattern"))), content_(node.at("content").string()) {}
  void rewrite(std::string& token) const override { token = pattern_.replace_all(token, content_); }

 private:
  Pattern pattern_;
  std::string content_;
};

class MetaspaceDecoder final : public TokenDecoder {
 public:
  explicit MetaspaceDecoder(const JsonNode& node) : mark_(node.text("replacement", "\xe2\x96\x81")) {
    const std::string legacy = node.flag("add_prefix_space", true) ? "always" : "never";
    strip_ = node.text("prepend_scheme", legacy) != "never";
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_text(tokens[i], mark_, i == 0 && strip_ ? "" : " ");
  }
  void apply_inside(std::string& token, bool&) const override { replace_text(token, mark_, " "); }
  bool strips_leading_space(bool&) const override { return strip_; }

 private:
  std::string mark_;
  bool strip_;
};

class WordPiece final : public TokenDecoder {
 public:
  explicit WordPiece(const JsonNode& node)
      : prefix_(node.text("prefix", "##")), clean_(node.flag("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) continue_word(tokens[i]);
      if (clean_) clean_up(tokens[i]);
    }
  }
  void apply_inside(std::string& token, bool&) const override {
    continue_word(token);
    if (clean_) clean_up(token);
  }
  bool strips_leading_space(bool&) const override { return true; }

 private:
  void continue_word(std::string& token) const {
    if (!prefix_.empty() && token.compare(0, prefix_.size(), prefix_) == 0)
      token.erase(0, prefix_.size());
    else
      token.insert(0, " ");
  }
  std::string prefix_;
  bool clean_;
};

class Bpe final : public TokenDecoder {
 public:
  explicit Bpe(const JsonNode& node) : suffix_(node.text("suffix", "</w>")) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_text(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }
  void apply_inside(std::string& token, bool&) const override { replace_text(token, suffix_, " "); }

 private:
  std::string suffix_;
};

class Fuse final : public TokenDecoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, all);
  }
  void apply_inside(std::string&, bool& fused) const override { fused = true; }
  bool strips_leading_space(bool& fused) const override {
    fused = true;
    return false;
  }
};

class StripDecoder final : public TokenDecoder {
 public:
  explicit StripDecoder(const JsonNode& node)
      : content_(node.at("content").string()),
        start_(static_cast<size_t>(node.at("start").id())),
        stop_(static_cast<size_t>(node.at("stop").id())) {
    if (content_.empty()) node.at("content").bad("is empty, expected one character");
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) strip(token);
  }
  void apply_inside(std::string& token, bool& fused) const override {
    if (!fused) strip(token);
  }
  bool strips_leading_space(bool& fused) const override { return fused && content_ == " " && start_ > 0; }

 private:
  void strip(std::string& token) const {
    const size_t n = content_.size();
    size_t begin = 0, end = token.size();
    for (size_t i = 0; i < start_ && end - begin >= n && token.compare(begin, n, content_) == 0; ++i)
      begin += n;
    for (size_t i = 0; i < stop_ && end - begin >= n && token.compare(end - n, n, content_) == 0; ++i)
      end -= n;
    token = token.substr(begin, end - begin);
  }
  std::string content_;
  size_t start_, stop_;
};

class Ctc final : public TokenDecoder {
 public:
  explicit Ctc(const JsonNode& node)
      : pad_(node.text("pad_token", "<pad>")),
        delimiter_(node.text("word_delimiter_token", "|")),
        clean_(node.flag("cleanup", true)) {}
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i] == tokens[i - 1]) continue;
      std::string token = tokens[i];
      rewrite(token);
      if (!token.empty()) out.push_back(std::move(token));
    }
    tokens.swap(out);
  }
  void apply_inside(std::string& token, bool&) const override { rewrite(token); }

 private:
  void rewrite(std::string& token) const {
    replace_text(token, pad_, "");
    if (!clean_) return;
    clean_up(token);
    replace_text(token, delimiter_, " ");
  }
  std::string pad_, delimiter_;
  bool clean_;
};

class SequenceDecoder final : public TokenDecoder {
 public:
  SequenceDecoder(const JsonNode& node, int depth) {
    for (const JsonNode& item : node.at("decoders").items())
      parts_.push_back(make_token_decoder(item, depth + 1));
  }
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }
  void apply_inside(std::string& token, bool& fused) const override {
    for (const auto& part : parts_) part->apply_inside(token, fused);
  }
  bool strips_leading_space(bool& fused) const override {
    bool strips = false;
    for (const auto& part : parts_) strips = part->strips_leading_space(fused) || strips;
    return strips;
  }

 private:
  std::vector<std::unique_ptr<TokenDecoder>> parts_;
};

}  // namespace

std::unique_ptr<TokenDecoder> make_token_decoder(const JsonNode& node, int depth) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node, depth);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(node);
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(node);
  if (type == "WordPiece") return std::make_unique<WordPiece>(node);
  if (type == "BPEDecoder") return std::make_unique<Bpe>(node);
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<StripDecoder>(node);
  if (type == "CTC") return std::make_unique<Ctc>(node);
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
