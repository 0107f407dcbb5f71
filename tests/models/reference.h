// Reference logits beside a fixture's checkpoint, and how far a model's own are from them.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "models/sequence_runner.h"
#include "testing/testing.h"

namespace millrace::testing {

/// What reference.json holds (scripts/fixtures/models.py).
struct Reference {
  std::vector<int32_t> prompt, greedy;
  std::vector<std::vector<float>> logits;
  double spread = 0;
  std::vector<std::pair<std::vector<int32_t>, std::vector<float>>> others;
};

inline Reference read_reference(const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(read_file(folder / "reference.json"));
  Reference r;
  r.prompt = json["prompt"].get<std::vector<int32_t>>();
  r.logits = json["logits"].get<std::vector<std::vector<float>>>();
  r.spread = json["spread"].get<double>();
  if (json.contains("greedy")) r.greedy = json["greedy"].get<std::vector<int32_t>>();
  if (json.contains("others"))
    for (const auto& o : json["others"])
      r.others.emplace_back(o["prompt"].get<std::vector<int32_t>>(), o["last"].get<std::vector<float>>());
  return r;
}

/// Of any value; infinite where one is not a number.
inline double largest_difference(const float* a, const std::vector<float>& b) {
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    worst = std::isnan(d) ? INFINITY : std::max(worst, d);
  }
  return worst;
}

/// Largest difference of each row of a prompt's logits, by the reference's spread.
inline std::vector<double> row_differences(models::SequenceRunner& runner, const Reference& reference,
                                           int32_t chunk) {
  std::vector<double> rows(reference.logits.size(), INFINITY);
  const auto compare = [&](int32_t first, int32_t count, const float* logits) {
    for (int32_t r = 0; r < count; ++r) {
      const auto& expected = reference.logits.at(static_cast<size_t>(first + r));
      rows[static_cast<size_t>(first + r)] =
          largest_difference(logits + static_cast<size_t>(r) * expected.size(), expected) / reference.spread;
    }
  };
  const models::SequenceRunner::LogitsVisitor visitor(compare);
  runner.append(reference.prompt, &visitor, chunk);
  return rows;
}

/// Names of the folders in a folder of fixtures.
inline std::vector<std::string> fixture_names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(folder)))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// A fixture's name as GoogleTest takes names.
inline std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

}  // namespace millrace::testing
