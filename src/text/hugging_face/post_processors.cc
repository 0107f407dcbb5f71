// Post-processors of tokenizer.json: what is put around the ids of one text.
#include <algorithm>

#include "text/hugging_face/components.h"
#include "text/hugging_face/json_node.h"

namespace millrace::text {
namespace {

/// Leaves the ids as they are.
class Nothing final : public PostProcessor {
 public:
  void apply(IdParts&) const override {}
};

/// An item of a template: ids, or (when empty) the part with this index.
struct Item {
  std::vector<TokenId> ids;
  size_t part = 0;
};

class Template final : public PostProcessor {
 public:
  Template(std::vector<Item> single, std::vector<Item> pair)
      : single_(std::move(single)), pair_(std::move(pair)) {}
  void apply(IdParts& parts) const override {
    IdParts out;
    for (const Item& item : parts.size() == 1 ? single_ : pair_)
      out.push_back(item.ids.empty() ? parts[item.part] : item.ids);
    if (out.empty()) out.emplace_back();
    parts.swap(out);
  }
  size_t parts_from(size_t count) const override {
    return std::max<size_t>(count == 1 ? single_.size() : pair_.size(), 1);
  }

 private:
  std::vector<Item> single_, pair_;
};

/// [CLS] first, [SEP] behind each part; RoBERTa's also has [SEP] before each part but the first.
class Frame final : public PostProcessor {
 public:
  Frame(TokenId begin, TokenId end, bool separated) : begin_(begin), end_(end), separated_(separated) {}
  void apply(IdParts& parts) const override {
    for (size_t i = 0; i < parts.size(); ++i) {
      if (i == 0 || separated_) parts[i].insert(parts[i].begin(), i == 0 ? begin_ : end_);
      parts[i].push_back(end_);
    }
  }

 private:
  TokenId begin_, end_;
  bool separated_;
};

class SequenceProcessor final : public PostProcessor {
 public:
  SequenceProcessor(const JsonNode& node, int depth) {
    size_t count = 1;
    for (const JsonNode& item : node.at("processors").items()) {
      parts_.push_back(make_post_processor(item, depth + 1));
      if (dynamic_cast<const Template*>(parts_.back().get()) != nullptr && count > 2)
        item.bad(
            fmt::format("is a template for one or two texts, but what stands before it makes {}", count));
      count = parts_.back()->parts_from(count);
    }
    count_ = count;
  }
  void apply(IdParts& parts) const override {
    for (const auto& part : parts_) part->apply(parts);
  }
  size_t parts_from(size_t count) const override { return count == 1 ? count_ : count; }

 private:
  std::vector<std::unique_ptr<PostProcessor>> parts_;
  size_t count_ = 1;
};

/// ["[SEP]", 102]
TokenId pair_id(const JsonNode& node) {
  if (!node.is_array() || node.size() != 2) node.bad("is not a pair of token and id");
  return node[1].id();
}

/// The items of "single" or "pair": {"SpecialToken": {"id": name}} and {"Sequence": {"id": "A"}}.
std::vector<Item> read_template(const JsonNode& node, const char* which) {
  std::vector<Item> items;
  const std::optional<JsonNode> list = node.find(which);
  if (!list) return items;
  const std::optional<JsonNode> special = node.find("special_tokens");
  for (const JsonNode& item : list->items()) {
    if (const auto sequence = item.find("Sequence")) {
      items.push_back({{}, sequence->text("id", "A") == "B" ? size_t{1} : size_t{0}});
      continue;
    }
    const JsonNode name = item.at("SpecialToken").at("id");
    if (!special) node.bad("uses special tokens, but has no \"special_tokens\"");
    Item ids;
    for (const JsonNode& id : special->at(name.string().c_str()).at("ids").items())
      ids.ids.push_back(id.id());
    if (!ids.ids.empty()) items.push_back(std::move(ids));
  }
  return items;
}

}  // namespace

std::unique_ptr<PostProcessor> make_post_processor(const JsonNode& node, int depth) {
  if (depth > kMaxNesting) node.bad("is nested too deeply");
  const std::string type = node.at("type").string();
  if (type == "Sequence") return std::make_unique<SequenceProcessor>(node, depth);
  if (type == "ByteLevel") return std::make_unique<Nothing>();
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return std::make_unique<Frame>(pair_id(node.at("cls")), pair_id(node.at("sep")),
                                   type == "RobertaProcessing");
  if (type == "TemplateProcessing") {
    std::vector<Item> single = read_template(node, "single");
    for (const Item& item : single)
      if (item.ids.empty() && item.part != 0) node.at("single").bad("names the second text");
    return std::make_unique<Template>(std::move(single), read_template(node, "pair"));
  }
  fail(ErrorCode::kUnsupported, "{} has the unknown type \"{}\"", node.place(), type);
}

}  // namespace millrace::text
