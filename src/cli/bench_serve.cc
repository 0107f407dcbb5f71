#include "cli/bench_serve.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/loaded_model.h"
#include "cli/subcommand.h"
#include "core/error.h"
#include "core/random.h"

namespace millrace::cli {
namespace {

struct LoadFigures {
  std::vector<double> ttft, tpot, itl, e2e;
  int64_t answered = 0, failed = 0, good = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  std::map<std::string, int64_t> errors;
  std::vector<const RequestOutcome*> intruders;
};

LoadFigures figures_of(const LoadRun& run, const ServiceLevel& level) {
  LoadFigures f;
  for (const RequestOutcome& o : run.outcomes) {
    if (!o.error.empty()) {
      ++f.failed;
      ++f.errors[o.error];
      continue;
    }
    ++f.answered;
    f.prompt_tokens += o.prompt_tokens;
    f.cached_tokens += o.cached_tokens;
    f.output_tokens += o.output_tokens;
    if (o.intruder) {
      f.intruders.push_back(&o);
      continue;
    }
    f.ttft.push_back(o.first_token());
    f.e2e.push_back(o.end - o.start);
    if (o.output_tokens > 1) f.tpot.push_back(o.per_token());
    for (size_t i = 1; i < o.tokens.size(); ++i) f.itl.push_back(o.tokens[i] - o.tokens[i - 1]);
    f.good += o.first_token() <= level.ttft && (o.output_tokens < 2 || o.per_token() <= level.tpot);
  }
  return f;
}

nlohmann::json latency_json(const std::vector<double>& values) {
  const LatencySummary s = summarise(values);
  return {{"count", s.count}, {"mean", s.mean}, {"p50", s.p50},
          {"p90", s.p90},     {"p99", s.p99},   {"max", s.max}};
}

/// Seconds since some fixed moment.
double parse_time(const std::string& text) {
  std::tm tm{};
  int used = 0;
  if (std::sscanf(text.c_str(), "%d-%d-%d %d:%d:%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
                  &tm.tm_min, &used) == 5 &&
      used > 0) {
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return static_cast<double>(timegm(&tm)) + std::stod(text.substr(static_cast<size_t>(used)));
  }
  return std::stod(text);
}

struct LoadArguments {
  std::string url, trace, plot;
  LoadOptions load;
  double rate = 0, speed = 1;
  int32_t prompt = 96, output = 48, requests = 0;
  std::string intruder;
  ServiceLevel level;
  bool json = false;
};

std::vector<PlannedRequest> plan_of(const LoadArguments& a) {
  std::vector<PlannedRequest> plan;
  if (!a.trace.empty()) {
    plan = read_trace(a.trace, a.speed, a.prompt, a.output);
    if (a.requests > 0 && plan.size() > static_cast<size_t>(a.requests))
      plan.resize(static_cast<size_t>(a.requests));
  } else {
    Random random(a.load.seed ^ 0xa771);
    // Without a number, as many as the duration can begin (a closed loop is not faster than this).
    const double most = a.rate > 0 ? a.rate * a.load.duration : 1000 * a.load.duration;
    const int64_t count = a.requests > 0 ? a.requests : static_cast<int64_t>(std::min(most + 1, 1e6));
    double at = 0;
    for (int64_t i = 0; i < count; ++i) {
      plan.push_back({at, a.prompt, a.output, false});
      // A Poisson process: exponential times between arrivals.
      if (a.rate > 0) at -= std::log(1 - random.uniform_double()) / a.rate;
    }
  }
  if (!a.intruder.empty()) {
    PlannedRequest p;
    if (std::sscanf(a.intruder.c_str(), "%d@%lf", &p.prompt, &p.at) != 2 || p.prompt < 1 || p.at < 0)
      throw UsageError(fmt::format("--intruder '{}': expected TOKENS@SECONDS, as in 4000@5", a.intruder));
    p.output = 8;
    p.intruder = true;
    plan.insert(std::upper_bound(plan.begin(), plan.end(), p,
                                 [](const auto& x, const auto& y) { return x.at < y.at; }),
                p);
  }
  return plan;
}

void check_load(LoadArguments& a) {
  const int ways = (a.load.clients > 0) + (a.rate > 0) + !a.trace.empty();
  if (ways > 1) throw UsageError("--clients, --rate and --trace exclude each other");
  if (ways == 0) a.load.clients = 1;
  if (a.trace.empty() && a.requests <= 0 && a.load.duration <= 0)
    throw UsageError("an end is needed: --requests N or --duration S");
  if (a.speed <= 0 || a.rate < 0 || a.load.clients < 0 || a.load.clients > 16384)
    throw UsageError("--speed must be above 0, --rate not negative, --clients 1 to 16384");
  if (a.prompt < 1 || a.output < 1 || a.load.shared_prompt < 0)
    throw UsageError("--prompt and --output are at least 1, --shared-prompt not negative");
  if (a.load.vocabulary < 5) throw UsageError("--vocabulary must be at least 5");
}

std::string curve(const std::vector<double>& sorted, const std::string& name, double x, double y) {
  constexpr double kWidth = 360, kHeight = 200;
  std::string svg = fmt::format(
      "<text x=\"{0}\" y=\"{1}\">{2}</text><rect x=\"{0}\" y=\"{3}\" width=\"{4}\" height=\"{5}\" "
      "fill=\"none\" "
      "stroke=\"#999\"/>\n",
      x, y, name, y + 10, kWidth, kHeight);
  if (sorted.empty()) return svg;
  const double most = std::max(sorted.back(), 1e-9);
  std::string points;
  // As many points as the eye can tell apart.
  for (int i = 0; i <= 360; ++i) {
    const double share = i / 360.0;
    const double value = sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
    points += fmt::format("{:.1f},{:.1f} ", x + kWidth * value / most, y + 10 + kHeight * (1 - share));
  }
  svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"#2a6\" stroke-width=\"2\"/>\n", points);
  for (const double share : {0.5, 0.9, 0.99}) {
    const double line = y + 10 + kHeight * (1 - share);
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4}\" "
        "font-size=\"10\" fill=\"#555\">{5:.0f}%: {6:.1f} ms</text>\n",
        x, line, x + kWidth, x + kWidth + 6, line + 4, 100 * share,
        1e3 * sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))]);
  }
  return svg +
         fmt::format(
             "<text x=\"{0}\" y=\"{1}\" font-size=\"10\">0</text><text x=\"{2}\" y=\"{1}\" font-size=\"10\" "
             "text-anchor=\"end\">{3:.3g} s</text>\n",
             x, y + kHeight + 24, x + kWidth, most);
}

}  // namespace

LatencySummary summarise(std::vector<double> values) {
  LatencySummary s;
  s.count = static_cast<int64_t>(values.size());
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(std::ceil(share * static_cast<double>(values.size()))) - 1];
  };
  for (const double v : values) s.mean += v / static_cast<double>(values.size());
  s.p50 = at(0.5);
  s.p90 = at(0.9);
  s.p99 = at(0.99);
  s.max = values.back();
  return s;
}

std::vector<PlannedRequest> read_trace(const std::string& path, double speed, int32_t most_prompt,
                                       int32_t most_output) {
  std::ifstream in(path);
  require(in.good(), ErrorCode::kNotFound, "cannot read the trace {}", path);
  std::vector<PlannedRequest> plan;
  std::string line;
  double first = 0;
  for (int number = 1; std::getline(in, line); ++number) {
    if (number == 1 || line.empty() || line == "\r") continue;
    try {
      const size_t a = line.find(','), b = line.find(',', a + 1);
      PlannedRequest p;
      const double time = parse_time(line.substr(0, a));
      if (plan.empty()) first = time;
      p.at = (time - first) / speed;
      p.prompt = std::stoi(line.substr(a + 1, b - a - 1));
      p.output = std::stoi(line.substr(b + 1));
      if (a == std::string::npos || b == std::string::npos || p.prompt < 0 || p.output < 0 || !(p.at >= 0))
        throw std::invalid_argument(line);
      p.prompt = std::clamp(p.prompt, 1, most_prompt);
      p.output = std::clamp(p.output, 1, most_output);
      plan.push_back(p);
    } catch (const std::exception&) {
      fail(ErrorCode::kInvalidFile,
           "line {} of {} is '{}', but must be a time, prompt tokens and output tokens", number, path,
           line.substr(0, 80));
    }
  }
  std::stable_sort(plan.begin(), plan.end(), [](const auto& x, const auto& y) { return x.at < y.at; });
  return plan;
}

std::string load_json(const LoadRun& run, const ServiceLevel& level) {
  const LoadFigures f = figures_of(run, level);
  const double seconds = std::max(run.seconds, 1e-9);
  nlohmann::json j{{"seconds", run.seconds},
                   {"requests", run.outcomes.size()},
                   {"answered", f.answered},
                   {"failed", f.failed},
                   {"prompt_tokens", f.prompt_tokens},
                   {"cached_prompt_tokens", f.cached_tokens},
                   {"output_tokens", f.output_tokens},
                   {"requests_per_second", static_cast<double>(f.answered) / seconds},
                   {"prompt_tokens_per_second", static_cast<double>(f.prompt_tokens) / seconds},
                   {"output_tokens_per_second", static_cast<double>(f.output_tokens) / seconds},
                   {"sla", {{"ttft", level.ttft}, {"tpot", level.tpot}}},
                   {"goodput_requests_per_second", static_cast<double>(f.good) / seconds},
                   {"good", f.good},
                   {"ttft", latency_json(f.ttft)},
                   {"tpot", latency_json(f.tpot)},
                   {"itl", latency_json(f.itl)},
                   {"e2e", latency_json(f.e2e)},
                   {"errors", f.errors}};
  for (const RequestOutcome* o : f.intruders) {
    // Times between the others' tokens while this one's prompt was computed.
    std::vector<double> beside;
    for (const RequestOutcome& other : run.outcomes)
      for (size_t i = 1; !other.intruder && i < other.tokens.size(); ++i)
        if (other.tokens[i] > o->start && other.tokens[i - 1] < o->tokens.front())
          beside.push_back(other.tokens[i] - other.tokens[i - 1]);
    j["intruder"] = {{"ttft", o->first_token()},
                     {"prompt_tokens", o->prompt_tokens},
                     {"itl_beside", latency_json(beside)}};
  }
  return j.dump(2) + "\n";
}

std::string load_table(const LoadRun& run, const ServiceLevel& level) {
  const LoadFigures f = figures_of(run, level);
  const double seconds = std::max(run.seconds, 1e-9);
  std::string text = fmt::format(
      "{} requests in {:.1f} s: {} answered, {} failed\n"
      "throughput  {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} prompt tokens/s ({:.0f}% from the "
      "cache)\n"
      "goodput     {:.2f} requests/s ({:.0f}%) with the first token in {} s and each other in {} s\n\n"
      "{:<22}{:>9}{:>9}{:>9}{:>9}{:>9}   ms\n",
      run.outcomes.size(), run.seconds, f.answered, f.failed, static_cast<double>(f.answered) / seconds,
      static_cast<double>(f.output_tokens) / seconds, static_cast<double>(f.prompt_tokens) / seconds,
      f.prompt_tokens ? 100.0 * static_cast<double>(f.cached_tokens) / static_cast<double>(f.prompt_tokens)
                      : 0.0,
      static_cast<double>(f.good) / seconds,
      f.answered ? 100.0 * static_cast<double>(f.good) / static_cast<double>(f.answered) : 0.0, level.ttft,
      level.tpot, "", "mean", "p50", "p90", "p99", "max");
  for (const auto& [name, values] :
       {std::pair{"first token", &f.ttft}, std::pair{"per output token", &f.tpot},
        std::pair{"between tokens", &f.itl}, std::pair{"end to end", &f.e2e}}) {
    const LatencySummary s = summarise(*values);
    text += fmt::format("{:<22}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}{:>9.1f}\n", name, s.mean * 1e3, s.p50 * 1e3,
                        s.p90 * 1e3, s.p99 * 1e3, s.max * 1e3);
  }
  for (const auto& [error, count] : f.errors) text += fmt::format("{} failed: {}\n", count, error);
  return text;
}

std::string load_svg(const LoadRun& run, const std::string& title) {
  LoadFigures f = figures_of(run, {});
  for (auto* values : {&f.ttft, &f.tpot, &f.itl, &f.e2e}) std::sort(values->begin(), values->end());
  std::string escaped;
  for (const char c : title) escaped += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"960\" height=\"560\" "
             "font-family=\"sans-serif\" "
             "font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
             "<text x=\"16\" y=\"26\" font-size=\"16\">{}</text>\n",
             escaped) +
         curve(f.ttft, "time to first token", 20, 60) + curve(f.e2e, "end to end", 500, 60) +
         curve(f.tpot, "time per output token", 20, 320) + curve(f.itl, "time between tokens", 500, 320) +
         "</svg>\n";
}

int bench_serve(int argc, char** argv) {
  LoadArguments a;
  CLI::App app("Puts load on a server that speaks OpenAI's API and reports what came back.",
               "millrace bench serve");
  app.add_option("URL", a.url, "http://HOST:PORT")->required();
  app.add_option("--clients", a.load.clients, "closed loop: each sends when its last is answered (default 1)")
      ->type_name("N");
  app.add_option("--rate", a.rate, "open loop: requests per second, Poisson")->type_name("R");
  app.add_option("--trace", a.trace, "open loop: arrivals and lengths from a CSV (time, prompt, output)")
      ->type_name("FILE");
  app.add_option("--speed", a.speed, "the trace so many times faster (default 1)")->type_name("X");
  app.add_option("--prompt", a.prompt, "prompt tokens (default 96); with --trace at most so many")
      ->type_name("N");
  app.add_option("--output", a.output, "output tokens (default 48); with --trace at most so many")
      ->type_name("N");
  app.add_option("--shared-prompt", a.load.shared_prompt, "tokens that all prompts begin with")
      ->type_name("N");
  app.add_option("--intruder", a.intruder, "one long prompt at a time of its own")
      ->type_name("TOKENS@SECONDS");
  app.add_option("--requests", a.requests, "so many at most")->type_name("N");
  app.add_option("--duration", a.load.duration, "none is begun later")->type_name("S");
  app.add_option("--vocabulary", a.load.vocabulary,
                 "prompts are of random token ids below this (default 256)")
      ->type_name("N");
  app.add_option("--seed", a.load.seed, "of prompts and arrivals (default 1)")->type_name("N");
  app.add_option("--sla-ttft", a.level.ttft, "first token within (default 2)")->type_name("S");
  app.add_option("--sla-tpot", a.level.tpot, "each other token within, on average (default 0.2)")
      ->type_name("S");
  app.add_option("--timeout", a.load.timeout, "without a byte (default 600)")->type_name("S");
  app.add_option("--api-key", a.load.api_key, "")->type_name("KEY");
  app.add_option("--model", a.load.model, "name in the API (default: the server's first)")->type_name("NAME");
  app.add_flag("--json", a.json, "print JSON");
  app.add_option("--plot", a.plot, "write latency curves")->type_name("FILE.svg");
  if (parse_arguments(app, argc, argv)) return 0;
  check_load(a);
  a.load.server = parse_address(a.url);
  const std::vector<PlannedRequest> plan = plan_of(a);
  require(!plan.empty(), ErrorCode::kInvalidFile, "{} holds no request", a.trace);
  if (a.load.model.empty()) a.load.model = first_model(a.load);
  const LoadRun run = run_load(a.load, plan);
  fmt::print("{}", a.json ? load_json(run, a.level) : load_table(run, a.level));
  if (!a.plot.empty()) {
    std::ofstream out(a.plot, std::ios::binary);
    out << load_svg(run, fmt::format("{} at {}", a.load.model, a.url));
    out.flush();
    require(out.good(), ErrorCode::kIo, "cannot write {}", a.plot);
  }
  const bool any =
      std::any_of(run.outcomes.begin(), run.outcomes.end(), [](const auto& o) { return o.error.empty(); });
  return any ? 0 : 1;
}

}  // namespace millrace::cli
