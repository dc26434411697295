/// \file Connected regions, their hulls and rectangles.
#include "apps/tg/text_regions.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tg::app {
namespace {

double cross(const Point& o, const Point& a, const Point& b) {
  return (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
}
double distance(const Point& a, const Point& b) { return std::hypot(a.x - b.x, a.y - b.y); }

/// Returns the convex hull of points (Andrew's monotone chain).
std::vector<Point> hull_of(std::vector<Point> points) {
  std::ranges::sort(points, [](const Point& a, const Point& b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  const auto same = [](const Point& a, const Point& b) { return a.x == b.x && a.y == b.y; };
  points.erase(std::unique(points.begin(), points.end(), same), points.end());
  if (points.size() < 3) return points;
  std::vector<Point> out;
  for (int side = 0; side < 2; side++) {
    const size_t first = out.size();
    for (const Point& p : points) {
      while (out.size() >= first + 2 && cross(out[out.size() - 2], out.back(), p) <= 0) out.pop_back();
      out.push_back(p);
    }
    out.pop_back();
    std::ranges::reverse(points);
  }
  return out;
}

/// Returns the corners from the upper left one on, in the order of the clock: of the two on the left and of the two on
/// the right the upper one first.
std::array<Point, 4> ordered(std::array<Point, 4> c) {
  std::ranges::sort(c, {}, &Point::x);
  const auto upper = [](Point a, Point b) { return a.y <= b.y ? std::pair(a, b) : std::pair(b, a); };
  const auto [left_top, left_bottom] = upper(c[0], c[1]);
  const auto [right_top, right_bottom] = upper(c[2], c[3]);
  return {left_top, right_top, right_bottom, left_bottom};
}

/// The connected regions of a map, found one after another.
class Regions {
 public:
  Regions(const std::vector<float>& map, int64_t height, int64_t width, double threshold)
      : map_(map), height_(height), width_(width), threshold_(threshold), seen_(map.size(), false) {}

  /// Returns the elements of the next region, eight neighbours being connected; empty at the end.
  std::vector<int64_t> next() {
    for (; at_ < static_cast<int64_t>(map_.size()); at_++)
      if (is_new(at_)) return fill(at_);
    return {};
  }

 private:
  bool is_new(int64_t i) const {
    return !seen_[static_cast<size_t>(i)] && static_cast<double>(map_[static_cast<size_t>(i)]) > threshold_;
  }
  std::vector<int64_t> fill(int64_t first) {
    std::vector<int64_t> out{first};
    seen_[static_cast<size_t>(first)] = true;
    for (size_t k = 0; k < out.size(); k++) {
      const int64_t y = out[k] / width_, x = out[k] % width_;
      for (int64_t v = std::max<int64_t>(y - 1, 0); v <= std::min(y + 1, height_ - 1); v++)
        for (int64_t u = std::max<int64_t>(x - 1, 0); u <= std::min(x + 1, width_ - 1); u++)
          if (const int64_t i = v * width_ + u; is_new(i)) {
            seen_[static_cast<size_t>(i)] = true;
            out.push_back(i);
          }
    }
    return out;
  }

  const std::vector<float>& map_;
  int64_t height_, width_;
  double threshold_;
  std::vector<bool> seen_;
  int64_t at_ = 0;
};

/// Moves the corners outwards by `by` along both sides.
std::array<Point, 4> grown(std::array<Point, 4> c, double by) {
  const auto along = [](const Point& a, const Point& b) {
    const double d = std::max(distance(a, b), 1e-9);
    return Point{(b.x - a.x) / d, (b.y - a.y) / d};
  };
  const Point u = along(c[0], c[1]), v = along(c[0], c[3]);
  constexpr double kSigns[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
  for (size_t i = 0; i < 4; i++) {
    c[i].x += by * (kSigns[i][0] * u.x + kSigns[i][1] * v.x);
    c[i].y += by * (kSigns[i][0] * u.y + kSigns[i][1] * v.y);
  }
  return c;
}

}  // namespace

double TextRegion::width() const { return distance(corners[0], corners[1]); }
double TextRegion::height() const { return distance(corners[0], corners[3]); }

std::array<Point, 4> least_rectangle(std::vector<Point> points) {
  const std::vector<Point> hull = hull_of(std::move(points));
  std::array<Point, 4> best{};
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < hull.size(); i++) {  // one side lies on a side of the hull
    const Point &a = hull[i], &b = hull[(i + 1) % hull.size()];
    const double d = distance(a, b);
    const Point u = d > 0 ? Point{(b.x - a.x) / d, (b.y - a.y) / d} : Point{1, 0}, v{-u.y, u.x};
    constexpr double kFar = std::numeric_limits<double>::infinity();
    double low_u = kFar, low_v = kFar, high_u = -kFar, high_v = -kFar;
    for (const Point& p : hull) {
      low_u = std::min(low_u, p.x * u.x + p.y * u.y);
      high_u = std::max(high_u, p.x * u.x + p.y * u.y);
      low_v = std::min(low_v, p.x * v.x + p.y * v.y);
      high_v = std::max(high_v, p.x * v.x + p.y * v.y);
    }
    if (const double area = (high_u - low_u) * (high_v - low_v); area < least) {
      least = area;
      const auto at = [&](double s, double t) { return Point{s * u.x + t * v.x, s * u.y + t * v.y}; };
      best = {at(low_u, low_v), at(high_u, low_v), at(high_u, high_v), at(low_u, high_v)};
    }
  }
  return ordered(best);
}

std::vector<TextRegion> text_regions(const std::vector<float>& map, int64_t height, int64_t width,
                                     const RegionOptions& o) {
  std::vector<TextRegion> out;
  Regions regions(map, height, width, o.threshold);
  for (std::vector<int64_t> one = regions.next(); !one.empty(); one = regions.next()) {
    std::vector<Point> points;
    double sum = 0;
    for (const int64_t i : one) {
      points.push_back({static_cast<double>(i % width), static_cast<double>(i / width)});
      sum += static_cast<double>(map[static_cast<size_t>(i)]);
    }
    TextRegion r{least_rectangle(points), sum / static_cast<double>(one.size())};
    const double w = r.width(), h = r.height();
    if (std::min(w, h) < o.least_side || r.score < o.least_score) continue;
    r.corners = grown(r.corners, w * h * o.growth / (2 * (w + h)));
    out.push_back(r);
  }
  // Lines whose tops are within half a height of each other are read from left to right.
  std::ranges::stable_sort(out, {}, [](const TextRegion& r) { return r.corners[0].y; });
  for (size_t i = 1; i < out.size(); i++)
    for (size_t k = i; k > 0 && out[k].corners[0].x < out[k - 1].corners[0].x &&
                       out[k].corners[0].y - out[k - 1].corners[0].y < out[k].height() / 2;
         k--)
      std::swap(out[k], out[k - 1]);
  return out;
}

}  // namespace tg::app
