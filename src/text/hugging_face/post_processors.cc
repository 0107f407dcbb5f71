// Post-processors of tokenizer.json: what is put around the ids of one text.
#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"

namespace millrace::text {
namespace {

/// A template: ids, and places of the text (kText).
class Template final : public PostProcessor {
 public:
  static constexpr TokenId kText = -1;

  explicit Template(std::vector<TokenId> items) : items_(std::move(items)) {}
  void apply(std::vector<TokenId>& ids) const override {
    std::vector<TokenId> out;
    out.reserve(ids.size() + items_.size());
    for (const TokenId item : items_) {
      if (item == kText)
        out.insert(out.end(), ids.begin(), ids.end());
      else
        out.push_back(item);
    }
    ids.swap(out);
  }

 private:
  std::vector<TokenId> items_;
};

class Sequence final : public PostProcessor {
 public:
  Sequence(const JsonNode& node, int depth) {
    for (const JsonNode& item : node.at("processors").items())
      parts_.push_back(make_post_processor(item, depth + 1));
  }
  void apply(std::vector<TokenId>& ids) const override {
    for (const auto& part : parts_) part->apply(ids);
  }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
};

/// ["[SEP]", 102]
TokenId pair_id(const JsonNode& node) {
  if (!node.is_array() || node.size() != 2) node.bad("is not a pair of token and id");
  return node[1].id();
}

/// The items of "single": a list of {"SpecialToken": {"id": name}} and {"Sequence": {"id": "A"}}.
std::vector<TokenId> read_template(const JsonNode& node) {
  std::vector<TokenId> items;
  const std::optional<JsonNode> special = node.find("special_tokens");
  for (const JsonNode& item : node.at("single").items()) {
    if (const auto sequence = item.find("Sequence")) {
      items.push_back(Template::kText);
      continue;
    }
    const JsonNode name = item.at("SpecialToken").at("id");
    if (!special) node.bad("uses special tokens, but has no \"special_tokens\"");
    for (const JsonNode& id : special->at(name.string().c_str()).at("ids").items()) items.push_back(id.id());
  }
  return items;
}

}  // namespace

std::unique_ptr<PostProcessor> make_post_processor(const JsonNode& node, int depth) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<Sequence>(node, depth);
  if (type == "ByteLevel") return std::make_unique<Template>(std::vector<TokenId>{Template::kText});
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return std::make_unique<Template>(
        std::vector<TokenId>{pair_id(node.at("cls")), Template::kText, pair_id(node.at("sep"))});
  if (type == "TemplateProcessing") return std::make_unique<Template>(read_template(node));
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
