// A JSON Schema document: its subschemas by number, and what $ref and $id mean in it.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/limits.h"

namespace millrace::grammar {

using Json = nlohmann::ordered_json;

enum class Draft : uint8_t { k4, k6, k7, k2019, k2020 };

struct Subschema {
  const Json* json = nullptr;
  std::string path;  ///< JSON pointer from the document's root, "#/..."
  std::string base;  ///< URI that references are relative to
  bool lenient = false;
  uint32_t scope = 0;  ///< what dynamic anchors mean on the way here
};

class SchemaDocument {
 public:
  SchemaDocument(std::string_view text, Budget& budget);

  uint32_t root() { return number_of(root_, "#", base_of_root_, false, 0); }
  const Subschema& at(uint32_t number) const { return subschemas_[number]; }
  Draft draft() const { return draft_; }
  bool uses(const char* keyword) const { return used_.count(keyword) > 0; }

  /// Number of the schema below `parent` at `json`; `token` is appended to the path.
  uint32_t child(uint32_t parent, const Json& json, const std::string& token);
  /// What the reference in schema `from` points to. Error(kUnsupported) for other documents, kInvalidArgument
  /// when it points nowhere.
  uint32_t resolve(uint32_t from, const std::string& reference);
  /// Same for $dynamicRef and $recursiveRef.
  uint32_t resolve_dynamic(uint32_t from, const std::string& reference);

 private:
  struct Place {
    const Json* json;
    std::string path, base;
    bool lenient;
  };
  using Scope = std::map<std::string, const Place*>;  ///< dynamic anchors by name

  uint32_t number_of(const Json* json, const std::string& path, const std::string& base, bool lenient,
                     uint32_t scope);
  uint32_t enter(uint32_t scope, const std::string& base);
  Place locate(const Subschema& here, const std::string& reference);
  void scan();
  const Json* walk_pointer(const Json* from, std::string& path, std::string& base,
                           const std::string& pointer);

  Budget& budget_;
  Json owned_;
  const Json* root_ = nullptr;
  Draft draft_ = Draft::k2020;
  std::string base_of_root_;
  std::deque<Subschema> subschemas_;
  std::vector<Scope> scopes_{1};
  std::vector<std::unordered_map<const Json*, uint32_t>> numbers_{1};  ///< by scope
  std::map<std::string, Place> resources_;                             ///< by absolute URI without fragment
  std::map<std::string, Place> anchors_;                               ///< by "URI#name"
  std::map<std::string, std::deque<std::pair<std::string, Place>>> dynamic_;  ///< by URI of the resource
  std::map<const Json*, std::string> bases_;
  std::map<std::string, size_t> used_;
};

/// RFC 3986, section 5.2.
std::string resolve_uri(const std::string& base, const std::string& reference);
/// Escapes a token of a JSON pointer.
std::string pointer_token(const std::string& token);

}  // namespace millrace::grammar
