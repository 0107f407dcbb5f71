#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace millrace::cli {
namespace {

using nlohmann::json;

std::string title(const BenchResult& r) {
  std::string text = r.prompt
                         ? fmt::format("prompt {}", r.tokens)
                         : fmt::format("decode, {} sequence{}", r.sequences, r.sequences == 1 ? "" : "s");
  if (r.depth) text += fmt::format(", depth {}", r.depth);
  return text;
}

double rounded(double value) { return std::stod(fmt::format("{:.6g}", value)); }

/// What one operation needs of memory and of arithmetic at the run's best rates. Here all of its bytes count.
std::pair<double, double> seconds_at_best(const TimedOperation& o, const MachineLimits& limits) {
  Work work;
  work.add(o.name, o.bytes, o.operations, limits.isa());
  return {o.bytes / limits.best().read_bytes, work.compute_seconds(limits.best())};
}

std::string escape_xml(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

}  // namespace

double BenchResult::median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double BenchResult::limit() const {
  std::vector<double> limits;
  for (const MachineRates& r : rates)
    limits.push_back(static_cast<double>(tokens_a_sample()) / work.limit_seconds(r));
  return median(std::move(limits));
}

double BenchResult::share() const {
  std::vector<double> shares;
  for (size_t i = 0; i < samples.size(); ++i) shares.push_back(work.limit_seconds(rates[i]) / samples[i]);
  return median(std::move(shares));
}

std::string bench_json(const BenchReport& report, const MachineLimits& limits) {
  json array = json::array();
  const MachineRates& best = limits.best();
  json machine = {{"test", "machine"},
                  {"cpu", report.cpu},
                  {"isa", report.isa},
                  {"threads", report.threads},
                  {"read_bytes_per_second", rounded(best.read_bytes)},
                  {"int8_operations_per_second", rounded(best.int8_ops)},
                  {"bf16_operations_per_second", rounded(best.bf16_ops)},
                  {"f32_operations_per_second", rounded(best.f32_ops)},
                  {"model", report.model},
                  {"load_seconds", rounded(report.load_seconds)},
                  {"file_bytes", report.file_bytes},
                  {"weight_bytes", report.weight_bytes},
                  {"resident_bytes", report.resident_bytes},
                  {"peak_resident_bytes", report.peak_resident_bytes}};
  const bool tiles = best.tile_bf16_ops > 0;
  if (tiles) {
    machine["amx_bf16_gflops"] = rounded(best.tile_bf16_ops / 1e9);
    machine["amx_int8_gops"] = rounded(best.tile_int8_ops / 1e9);
  }
  array.push_back(std::move(machine));
  for (const BenchResult& r : report.results) {
    array.push_back({{"test", r.prompt ? "prompt" : "decode"},
                     {"tokens", r.tokens},
                     {"depth", r.depth},
                     {"sequences", r.sequences},
                     {"tokens_per_second", rounded(r.tokens_per_second())},
                     {"limit_tokens_per_second", rounded(r.limit())},
                     {"bound", r.bound()},
                     {"share_of_limit", rounded(r.share())},
                     {"share_of_best_limit", rounded(r.share_of_best())}});
    if (tiles) array.back()["share_of_matrix_limit"] = rounded(r.matrix_share());
  }
  return array.dump(2) + "\n";
}

std::string bench_table(const BenchReport& report, const MachineLimits& limits) {
  const MachineRates& best = limits.best();
  std::string text = fmt::format(
      "{}\n{}, {} threads, {}: reads {:.1f} GB/s, int8 {:.0f} Gop/s, bf16 {:.0f}, f32 {:.0f}{}\n"
      "file {:.2f} GB, packed {:.2f} GB, loaded in {:.2f} s ({:.2f} GB/s), resident {:.2f} GB\n\n",
      report.model, report.cpu, report.threads, report.isa, best.read_bytes / 1e9, best.int8_ops / 1e9,
      best.bf16_ops / 1e9, best.f32_ops / 1e9,
      best.tile_bf16_ops > 0 ? fmt::format("; matrix unit: bf16 {:.0f}, int8 {:.0f}",
                                           best.tile_bf16_ops / 1e9, best.tile_int8_ops / 1e9)
                             : "",
      static_cast<double>(report.file_bytes) / 1e9, static_cast<double>(report.weight_bytes) / 1e9,
      report.load_seconds, static_cast<double>(report.file_bytes) / 1e9 / report.load_seconds,
      static_cast<double>(report.resident_bytes) / 1e9);
  text += fmt::format("{:<34}{:>12}{:>12}{:>8}{:>10}  {}\n", "test", "tokens/s", "limit", "share", "of best",
                      "bound by");
  for (const BenchResult& r : report.results)
    text += fmt::format("{:<34}{:>12.1f}{:>12.1f}{:>7.0f}%{:>9.0f}%  {}\n", title(r), r.tokens_per_second(),
                        r.limit(), 100 * r.share(), 100 * r.share_of_best(), r.bound());
  return text +
         "limit: by what the machine gave right after each run or step; best: what it gave at its best\n";
}

std::string bench_svg(const BenchReport& report, const MachineLimits& limits) {
  const MachineRates& best = limits.best();
  constexpr int kRow = 26, kLeft = 260, kWidth = 420, kTop = 64;
  const int height = kTop + kRow * static_cast<int>(report.results.size()) + 30;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"16\" y=\"24\" font-size=\"16\">{}</text>\n"
      "<text x=\"16\" y=\"46\" fill=\"#555\">{}, {} threads: reads {:.1f} GB/s, int8 {:.0f} Gop/s, bf16 "
      "{:.0f}; "
      "share of the limit</text>\n",
      height, escape_xml(report.model), escape_xml(report.cpu), report.threads, best.read_bytes / 1e9,
      best.int8_ops / 1e9, best.bf16_ops / 1e9);
  for (int percent = 0; percent <= 100; percent += 25) {
    const int x = kLeft + kWidth * percent / 100;
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" stroke=\"#ccc\"/><text x=\"{0}\" y=\"{3}\" "
        "text-anchor=\"middle\" fill=\"#555\">{4}%</text>\n",
        x, kTop, height - 26, height - 10, percent);
  }
  int y = kTop;
  for (const BenchResult& r : report.results) {
    svg += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{}\" y=\"{}\" width=\"{:.0f}\" "
        "height=\"{}\" "
        "fill=\"{}\"/><text x=\"{}\" y=\"{}\">{:.1f} tokens/s, {:.0f}% of {:.0f} ({})</text>\n",
        kLeft - 8, y + 17, title(r), kLeft, y + 4, kWidth * std::min(1.0, r.share()), kRow - 8,
        r.memory_bound() ? "#4c78a8" : "#f58518", kLeft + 8, y + 17, r.tokens_per_second(), 100 * r.share(),
        r.limit(), r.bound());
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::string bench_trace(const BenchReport& report, const MachineLimits& limits) {
  json events = json::array();
  int pid = 0;
  for (const BenchResult& r : report.results) {
    ++pid;
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"args", {{"name", title(r)}}}});
    if (r.operations.empty()) continue;
    const int64_t origin = r.operations.front().begin_ns;
    for (const TimedOperation& o : r.operations) {
      const auto [memory, compute] = seconds_at_best(o, limits);
      events.push_back({{"name", o.name},
                        {"ph", "X"},
                        {"pid", pid},
                        {"tid", 1},
                        {"ts", static_cast<double>(o.begin_ns - origin) / 1e3},
                        {"dur", static_cast<double>(o.end_ns - o.begin_ns) / 1e3},
                        {"args",
                         {{"bytes", o.bytes},
                          {"operations", o.operations},
                          {"bound", memory > compute ? "memory" : "compute"}}}});
    }
  }
  return json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

std::string bench_profile(const BenchReport& report, const MachineLimits& limits) {
  struct Sum {
    int calls = 0;
    double seconds = 0, bytes = 0, operations = 0, memory = 0, compute = 0;
  };
  std::string text;
  for (const BenchResult& r : report.results) {
    if (r.operations.empty()) continue;
    std::map<std::string, Sum> sums;
    double inside = 0;
    for (const TimedOperation& o : r.operations) {
      Sum& s = sums[o.name];
      const double seconds = static_cast<double>(o.end_ns - o.begin_ns) * 1e-9;
      ++s.calls;
      s.seconds += seconds;
      s.bytes += o.bytes;
      s.operations += o.operations;
      const auto [memory, compute] = seconds_at_best(o, limits);
      s.memory += memory;
      s.compute += compute;
      inside += seconds;
    }
    const double all = static_cast<double>(r.operations.back().end_ns - r.operations.front().begin_ns) * 1e-9;
    std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
    std::sort(order.begin(), order.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    text += fmt::format("\n{}: {:.2f} ms\n{:<22}{:>7}{:>11}{:>8}{:>10}{:>10}{:>9}  {}\n", title(r), all * 1e3,
                        "operation", "calls", "ms", "time", "GB/s", "Gop/s", "share", "bound by");
    for (const auto& [name, s] : order)
      text += fmt::format("{:<22}{:>7}{:>11.3f}{:>7.1f}%{:>10.1f}{:>10.1f}{:>8.0f}%  {}\n", name, s.calls,
                          s.seconds * 1e3, 100 * s.seconds / all, s.bytes / s.seconds / 1e9,
                          s.operations / s.seconds / 1e9, 100 * std::max(s.memory, s.compute) / s.seconds,
                          s.memory > s.compute ? "memory" : "compute");
    text += fmt::format("{:<22}{:>7}{:>11.3f}{:>7.1f}%\n", "between operations", "", (all - inside) * 1e3,
                        100 * (all - inside) / all);
  }
  return text;
}

}  // namespace millrace::cli
