#include "grammar/schema_document.h"

#include <algorithm>

namespace millrace::grammar {
namespace {

struct Uri {
  std::string scheme, authority, path, query;
  bool has_authority = false, has_query = false;
};

Uri split(std::string s) {
  Uri u;
  const size_t colon = s.find(':');
  if (colon != std::string::npos && colon > 0 && s.find_first_of("/?") > colon) {
    u.scheme = s.substr(0, colon);
    s.erase(0, colon + 1);
  }
  if (s.rfind("//", 0) == 0) {
    const size_t end = std::min(s.find_first_of("/?", 2), s.size());
    u.has_authority = true;
    u.authority = s.substr(2, end - 2);
    s.erase(0, end);
  }
  const size_t q = s.find('?');
  if (q != std::string::npos) {
    u.has_query = true;
    u.query = s.substr(q + 1);
    s.resize(q);
  }
  u.path = s;
  return u;
}

std::string join(const Uri& u) {
  std::string s;
  if (!u.scheme.empty()) s += u.scheme + ":";
  if (u.has_authority) s += "//" + u.authority;
  s += u.path;
  if (u.has_query) s += "?" + u.query;
  return s;
}

std::string remove_dots(const std::string& path) {
  std::vector<std::string> out;
  const bool absolute = !path.empty() && path[0] == '/';
  size_t at = absolute ? 1 : 0;
  bool slash_at_end = false;
  while (at <= path.size()) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    slash_at_end = end == path.size() ? part.empty() || part == "." || part == ".." : true;
    if (part == "..") {
      if (!out.empty()) out.pop_back();
    } else if (part != "." && !part.empty()) {
      out.push_back(part);
    }
    if (end == path.size()) break;
    at = end + 1;
  }
  std::string s = absolute ? "/" : "";
  for (size_t i = 0; i < out.size(); ++i) s += (i ? "/" : "") + out[i];
  if (slash_at_end && !out.empty()) s += "/";
  return s;
}

std::string percent_decoded(const std::string& s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size() + 0 && std::isxdigit(static_cast<unsigned char>(s[i + 1])) &&
        std::isxdigit(static_cast<unsigned char>(s[i + 2]))) {
      out.push_back(static_cast<char>(std::stoi(s.substr(i + 1, 2), nullptr, 16)));
      i += 2;
    } else {
      out.push_back(s[i]);
    }
  }
  return out;
}

// Keywords whose value is a schema, a list of schemas, or an object of schemas.
const std::vector<std::string> kOne = {"items",
                                       "additionalItems",
                                       "contains",
                                       "additionalProperties",
                                       "propertyNames",
                                       "not",
                                       "if",
                                       "then",
                                       "else",
                                       "unevaluatedItems",
                                       "unevaluatedProperties"};
const std::vector<std::string> kList = {"allOf", "anyOf", "oneOf", "prefixItems", "items"};
const std::vector<std::string> kMap = {"properties",  "patternProperties", "$defs",
                                       "definitions", "dependentSchemas",  "dependencies"};

size_t depth_of(std::string_view text) {
  size_t depth = 0, most = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (inside) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inside = false;
    } else if (c == '"') {
      inside = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return most;
}

}  // namespace

std::string pointer_token(const std::string& token) {
  std::string out;
  for (char c : token) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::string resolve_uri(const std::string& base, const std::string& reference) {
  const Uri b = split(base);
  Uri r = split(reference);
  if (!r.scheme.empty()) {
    if (r.has_authority) r.path = remove_dots(r.path);
    return join(r);
  }
  Uri out;
  out.scheme = b.scheme;
  if (r.has_authority) {
    out.has_authority = true;
    out.authority = r.authority;
    out.path = remove_dots(r.path);
    out.has_query = r.has_query, out.query = r.query;
    return join(out);
  }
  out.has_authority = b.has_authority;
  out.authority = b.authority;
  if (r.path.empty()) {
    out.path = b.path;
    out.has_query = r.has_query || b.has_query;
    out.query = r.has_query ? r.query : b.query;
    return join(out);
  }
  if (r.path[0] == '/') {
    out.path = remove_dots(r.path);
  } else if (b.has_authority && b.path.empty()) {
    out.path = remove_dots("/" + r.path);
  } else {
    const size_t slash = b.path.rfind('/');
    out.path = remove_dots((slash == std::string::npos ? "" : b.path.substr(0, slash + 1)) + r.path);
  }
  out.has_query = r.has_query, out.query = r.query;
  return join(out);
}

SchemaDocument::SchemaDocument(std::string_view text, Budget& budget) : budget_(budget) {
  Budget::check_source(text.size(), budget.limits().source_bytes);
  budget.check_depth(depth_of(text) / 2);
  try {
    owned_ = Json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorCode::kInvalidArgument, "the JSON schema is not well-formed JSON: {}", e.what());
  }
  budget.add_memory(text.size() * 4);
  root_ = &owned_;
  require(owned_.is_object() || owned_.is_boolean(), ErrorCode::kInvalidArgument,
          "a JSON schema must be an object or a boolean");
  if (owned_.is_object() && owned_.contains("$schema") && owned_["$schema"].is_string()) {
    const std::string s = owned_["$schema"];
    if (s.find("draft-04") != std::string::npos || s.find("draft-03") != std::string::npos)
      draft_ = Draft::k4;
    else if (s.find("draft-06") != std::string::npos)
      draft_ = Draft::k6;
    else if (s.find("draft-07") != std::string::npos)
      draft_ = Draft::k7;
    else if (s.find("2019-09") != std::string::npos)
      draft_ = Draft::k2019;
  }
  scan();
}

// Finds every $id and anchor at a place where a schema stands.
void SchemaDocument::scan() {
  resources_[""] = {root_, "#", "", false};
  std::vector<Place> stack{{root_, "#", "", false}};
  bool first = true;
  while (!stack.empty()) {
    Place p = stack.back();
    stack.pop_back();
    budget_.tick();
    const Json& j = *p.json;
    if (!j.is_object()) {
      bases_[&j] = p.base;
      continue;
    }
    const bool reference_only = draft_ <= Draft::k7 && j.contains("$ref");
    const char* id_keyword = draft_ == Draft::k4 ? "id" : "$id";
    if (j.contains(id_keyword) && j[id_keyword].is_string() && !reference_only) {
      std::string id = j[id_keyword];
      const size_t hash = id.find('#');
      const std::string fragment = hash == std::string::npos ? "" : id.substr(hash + 1);
      if (hash != std::string::npos) id.resize(hash);
      if (!id.empty()) p.base = resolve_uri(p.base, id);
      if (!id.empty() && resources_.count(p.base) == 0) resources_[p.base] = p;
      if (!fragment.empty()) anchors_[p.base + "#" + fragment] = p;
    }
    if (j.contains("x-millrace-lenient") && j["x-millrace-lenient"] == true) p.lenient = true;
    if (first) {
      base_of_root_ = p.base;
      resources_[""].base = p.base;
      first = false;
    }
    for (const char* anchor : {"$anchor", "$dynamicAnchor"})
      if (j.contains(anchor) && j[anchor].is_string()) {
        anchors_[p.base + "#" + j[anchor].get<std::string>()] = p;
        if (std::string_view(anchor) == "$dynamicAnchor")
          dynamic_[p.base].push_back({j[anchor].get<std::string>(), p});
      }
    // Works like a dynamic anchor without a name.
    if (draft_ == Draft::k2019 && j.contains("$recursiveAnchor") && j["$recursiveAnchor"] == true)
      dynamic_[p.base].push_back({"", p});
    bases_[&j] = p.base;
    const auto push = [&](const Json& child, const std::string& token) {
      if (child.is_object() || child.is_boolean())
        stack.push_back({&child, p.path + "/" + token, p.base, p.lenient});
    };
    for (const auto& [key, value] : j.items()) {
      ++used_[key];
      if (std::find(kOne.begin(), kOne.end(), key) != kOne.end()) push(value, key);
      if (value.is_array() && std::find(kList.begin(), kList.end(), key) != kList.end())
        for (size_t i = 0; i < value.size(); ++i) push(value[i], key + "/" + std::to_string(i));
      if (value.is_object() && std::find(kMap.begin(), kMap.end(), key) != kMap.end())
        for (const auto& [name, child] : value.items()) push(child, key + "/" + pointer_token(name));
    }
  }
}

// The scope of a schema reached from `scope` in the resource `base`: the outermost resource counts.
uint32_t SchemaDocument::enter(uint32_t scope, const std::string& base) {
  const auto anchors = dynamic_.find(base);
  if (anchors == dynamic_.end()) return scope;
  Scope inner = scopes_[scope];
  for (const auto& [name, place] : anchors->second) inner.try_emplace(name, &place);
  if (inner.size() == scopes_[scope].size()) return scope;
  for (uint32_t i = 0; i < scopes_.size(); ++i)
    if (scopes_[i] == inner) return i;
  require(scopes_.size() < 1000, ErrorCode::kLimitExceeded,
          "dynamic anchors combine into more than 1000 scopes (limit on alternatives)");
  scopes_.push_back(std::move(inner));
  numbers_.emplace_back();
  budget_.add_memory(scopes_.back().size() * 100);
  return static_cast<uint32_t>(scopes_.size() - 1);
}

uint32_t SchemaDocument::number_of(const Json* json, const std::string& path, const std::string& base,
                                   bool lenient, uint32_t scope) {
  const auto known = bases_.find(json);
  const std::string& own_base = known != bases_.end() ? known->second : base;
  scope = enter(scope, own_base);
  const auto [it, fresh] = numbers_[scope].try_emplace(json, static_cast<uint32_t>(subschemas_.size()));
  if (fresh) {
    if (json->is_object() && json->contains("x-millrace-lenient") && (*json)["x-millrace-lenient"] == true)
      lenient = true;
    subschemas_.push_back({json, path, own_base, lenient, scope});
    budget_.add_memory(path.size() + 128);
  }
  return it->second;
}

uint32_t SchemaDocument::child(uint32_t parent, const Json& json, const std::string& token) {
  const Subschema& p = subschemas_[parent];
  require(json.is_object() || json.is_boolean(), ErrorCode::kInvalidArgument,
          "{}/{}: a schema must be an object or a boolean", p.path, token);
  return number_of(&json, p.path + "/" + token, p.base, p.lenient, p.scope);
}

const Json* SchemaDocument::walk_pointer(const Json* from, std::string& path, std::string& base,
                                         const std::string& pointer) {
  size_t at = 0;
  while (at < pointer.size()) {
    const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    std::string token = pointer.substr(at + 1, end - at - 1);
    path += "/" + token;
    for (size_t t; (t = token.find("~1")) != std::string::npos;) token.replace(t, 2, "/");
    for (size_t t = 0; (t = token.find("~0", t)) != std::string::npos; ++t) token.replace(t, 2, "~");
    if (from->is_object() && from->contains(token)) {
      from = &(*from)[token];
    } else if (from->is_array() && !token.empty() && token.size() < 10 &&
               std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
               static_cast<size_t>(std::stoul(token)) < from->size()) {
      from = &(*from)[std::stoul(token)];
    } else {
      return nullptr;
    }
    const auto b = bases_.find(from);
    if (b != bases_.end()) base = b->second;
    at = end;
  }
  return from;
}

SchemaDocument::Place SchemaDocument::locate(const Subschema& here, const std::string& reference) {
  const size_t hash = reference.find('#');
  const std::string uri = reference.substr(0, hash);
  const std::string fragment = hash == std::string::npos ? "" : percent_decoded(reference.substr(hash + 1));
  const std::string target = uri.empty() ? here.base : resolve_uri(here.base, uri);
  auto resource = resources_.find(target);
  if (resource == resources_.end() && uri.empty()) resource = resources_.find("");
  require(resource != resources_.end(), ErrorCode::kUnsupported,
          "{}/$ref: '{}' refers to another document, which is not fetched", here.path, reference);
  const Place& place = resource->second;
  if (fragment.empty()) return {place.json, place.path, place.base, here.lenient || place.lenient};
  if (fragment[0] == '/') {
    std::string path = place.path, base = place.base;
    const Json* json = walk_pointer(place.json, path, base, fragment);
    require(json != nullptr, ErrorCode::kInvalidArgument, "{}/$ref: '{}' points to nothing", here.path,
            reference);
    require(json->is_object() || json->is_boolean(), ErrorCode::kInvalidArgument,
            "{}/$ref: '{}' does not point to a schema", here.path, reference);
    return {json, path, base, here.lenient};
  }
  const auto anchor = anchors_.find((target.empty() ? place.base : target) + "#" + fragment);
  require(anchor != anchors_.end(), ErrorCode::kInvalidArgument,
          "{}/$ref: '{}' names an anchor that does not exist", here.path, reference);
  Place found = anchor->second;
  found.lenient = here.lenient;
  return found;
}

uint32_t SchemaDocument::resolve(uint32_t from, const std::string& reference) {
  const Subschema here = subschemas_[from];
  const Place p = locate(here, reference);
  return number_of(p.json, p.path, p.base, p.lenient, here.scope);
}

uint32_t SchemaDocument::resolve_dynamic(uint32_t from, const std::string& reference) {
  const Subschema here = subschemas_[from];
  const Place first = locate(here, reference);
  const size_t hash = reference.find('#');
  const std::string name = hash == std::string::npos ? "" : reference.substr(hash + 1);
  // Only a reference that first finds a dynamic anchor looks for the outermost of that name.
  const auto anchors = dynamic_.find(first.base);
  const bool dynamic = anchors != dynamic_.end() &&
                       std::any_of(anchors->second.begin(), anchors->second.end(), [&](const auto& a) {
                         return a.first == name && a.second.json == first.json;
                       });
  const auto bound = scopes_[here.scope].find(name);
  const Place& p = dynamic && bound != scopes_[here.scope].end() ? *bound->second : first;
  return number_of(p.json, p.path, p.base, here.lenient, here.scope);
}

}  // namespace millrace::grammar
