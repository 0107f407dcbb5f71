#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/train/trainer.h"

namespace millrace::train {
namespace {

constexpr double kLeft = 60, kTop = 40, kWidth = 660, kHeight = 320;

struct Axes {
  double tokens = 1, low = 0, high = 1;
  double x(double value) const { return kLeft + kWidth * value / tokens; }
  double y(double value) const {
    return kTop + kHeight * (high - std::clamp(value, low, high)) / std::max(1e-9, high - low);
  }
};

std::string polyline(const std::vector<CurvePoint>& points, const Axes& axes, const char* style) {
  std::string out = "<polyline fill=\"none\" ";
  out += style;
  out += " points=\"";
  // More points than pixels would only make the file large.
  const size_t stride = std::max<size_t>(1, points.size() / 600);
  for (size_t i = 0; i < points.size(); i += stride) {
    double loss = 0;
    const size_t end = std::min(points.size(), i + stride);
    for (size_t j = i; j < end; ++j) loss += points[j].loss;
    out +=
        fmt::format("{:.1f},{:.1f} ", axes.x(points[i].tokens), axes.y(loss / static_cast<double>(end - i)));
  }
  return out + "\"/>\n";
}

}  // namespace

std::string curve_svg(const Curve& curve, const std::string& title) {
  Axes axes;
  for (const auto* points : {&curve.training, &curve.validation})
    for (const CurvePoint& p : *points) {
      axes.tokens = std::max(axes.tokens, p.tokens);
      axes.high = std::max(axes.high, std::ceil(p.loss));
    }
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 420\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"760\" height=\"420\" fill=\"#fff\"/>\n<text x=\"{}\" y=\"24\" "
      "font-size=\"15\">{}</text>\n",
      kLeft, title);
  for (int i = 0; i <= static_cast<int>(axes.high); ++i)
    svg += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/><text x=\"{3}\" "
        "y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, kLeft + kWidth, axes.y(i), kLeft - 8, axes.y(i) + 4, i);
  for (int i = 0; i <= 4; ++i)
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.2f} M</text>\n",
                       axes.x(axes.tokens * i / 4), kTop + kHeight + 20, axes.tokens * i / 4e6);
  svg += polyline(curve.training, axes, "stroke=\"#9ab\" stroke-width=\"1\"");
  svg += polyline(curve.validation, axes, "stroke=\"#124\" stroke-width=\"2\"");
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\">tokens</text>\n<text x=\"{}\" y=\"{}\" fill=\"#9ab\">training loss</text>\n"
      "<text x=\"{}\" y=\"{}\" fill=\"#124\">held-out loss</text>\n</svg>\n",
      kLeft + kWidth / 2, kTop + kHeight + 40, kLeft + kWidth - 100, kTop + 10, kLeft + kWidth - 100,
      kTop + 28);
  return svg;
}

}  // namespace millrace::train
