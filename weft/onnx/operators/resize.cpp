// Maps ONNX's Resize and Upsample: each axis by a table of weights that is computed when the graph
// is built.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/onnx/operators/operators.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

constexpr int64_t most_weights = int64_t{1} << 26;  // of one axis' table: 256 MiB
constexpr int64_t most_extent = int64_t{1} << 24;   // of one axis

// Resizing holds the attributes that all axes share.
struct Resizing {
  std::string mode = "nearest", coordinates = "half_pixel", rounding = "round_prefer_floor";
  bool antialias = false, excludes_outside = false;
  double cubic = -0.75, outside = 0;
};

struct AxisResize {
  int64_t from = 0, to = 0;
  double scale = 1;           // the file's scale, from which `to` is rounded down, else to / from
  double start = 0, end = 1;  // the region of tf_crop_and_resize, as fractions of the axis
};

// Returns the coordinate along the operand's axis of each element of the result.
std::vector<double> coordinates_of(const Call& call, const Resizing& how, const AxisResize& axis) {
  const auto in = static_cast<double>(axis.from);
  const double out = axis.scale * in;  // not rounded
  std::vector<double> places;
  for (int64_t i = 0; i < axis.to; ++i) {
    const auto at = static_cast<double>(i);
    const double half_pixel = (at + 0.5) / axis.scale - 0.5;
    if (how.coordinates == "half_pixel") {
      places.push_back(half_pixel);
    } else if (how.coordinates == "half_pixel_symmetric") {
      places.push_back(half_pixel + in / 2 * (1 - static_cast<double>(axis.to) / out));
    } else if (how.coordinates == "pytorch_half_pixel") {
      places.push_back(out == 1 ? -0.5 : half_pixel);
    } else if (how.coordinates == "asymmetric") {
      places.push_back(at / axis.scale);
    } else if (how.coordinates == "align_corners") {
      places.push_back(out == 1 ? 0 : at * (in - 1) / (out - 1));
    } else if (how.coordinates == "tf_half_pixel_for_nn") {
      places.push_back((at + 0.5) / axis.scale);
    } else if (how.coordinates == "tf_crop_and_resize") {
      const double length = (axis.end - axis.start) * (in - 1);
      places.push_back(axis.start * (in - 1) + (out == 1 ? length / 2 : at * length / (out - 1)));
    } else {
      call.refuse("its coordinate_transformation_mode is '{}', which weft does not know",
                  how.coordinates);
    }
  }
  return places;
}

int64_t nearest_to(const Call& call, const std::string& rounding, double at) {
  if (rounding == "round_prefer_floor") return static_cast<int64_t>(std::ceil(at - 0.5));
  if (rounding == "round_prefer_ceil") return static_cast<int64_t>(std::floor(at + 0.5));
  if (rounding == "floor") return static_cast<int64_t>(std::floor(at));
  if (rounding == "ceil") return static_cast<int64_t>(std::ceil(at));
  call.refuse("its nearest_mode is '{}', which weft does not know", rounding);
}

// Weighs an element at a distance: linear, or cubic convolution (Keys 1981) with coefficient a.
double weight_at(const Resizing& how, double distance) {
  const double x = std::abs(distance), a = how.cubic;
  if (how.mode == "linear") return std::max(0.0, 1 - x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

// Returns the weights [to, from] of an axis. A neighbour beyond an end is the first or last
// element, or with exclude_outside has no weight. Antialiasing widens the kernel by 1 / scale.
std::vector<double> weights_of(const Resizing& how, const AxisResize& axis,
                               const std::vector<double>& places) {
  const double narrow = how.antialias ? std::min(axis.scale, 1.0) : 1;
  const double reach = (how.mode == "linear" ? 1 : 2) / narrow;
  std::vector<double> table(static_cast<size_t>(axis.to * axis.from));
  for (int64_t i = 0; i < axis.to; ++i) {
    const double at = places[static_cast<size_t>(i)];
    const auto first = static_cast<int64_t>(std::floor(at - reach));
    const auto last = static_cast<int64_t>(std::ceil(at + reach));
    double total = 0;
    for (int64_t j = first; j <= last; ++j) {
      const bool outside = j < 0 || j >= axis.from;
      if (outside && how.excludes_outside) continue;
      const double weight = weight_at(how, narrow * (static_cast<double>(j) - at));
      table[static_cast<size_t>(i * axis.from + std::clamp<int64_t>(j, 0, axis.from - 1))] +=
          weight;
      total += weight;
    }
    if (total == 0) continue;
    for (int64_t j = 0; j < axis.from; ++j) table[static_cast<size_t>(i * axis.from + j)] /= total;
  }
  return table;
}

// Resizes one axis of x[N, C, spatial...] by interpolate().
Tensor interpolated(const Tensor& x, int axis, int64_t to, Interpolation mode, bool aligns) {
  InterpolateOptions options{.size = {}, .mode = mode, .align_corners = aligns};
  for (int i = 2; i < x.rank(); ++i) options.size.push_back(i == axis ? to : x.dim(i));
  return interpolate(x, options);
}
bool has_images(const Tensor& x, int axis) { return axis >= 2 && x.rank() <= 5; }

Tensor nearest(const Call& call, const Resizing& how, const Tensor& x, int axis,
               const AxisResize& extents, const std::vector<double>& places) {
  std::vector<int64_t> from;
  bool is_even = true;  // every place is that of interpolate()
  for (double at : places) {
    const int64_t place = nearest_to(call, how.rounding, at);
    is_even = is_even && place == std::ssize(from) * extents.from / extents.to;
    from.push_back(std::clamp<int64_t>(place, 0, extents.from - 1));
  }
  if (is_even && has_images(x, axis))
    return interpolated(x, axis, extents.to, Interpolation::nearest, false);
  return gather(x, weft::tensor(from, {std::ssize(from)}), axis);
}

Tensor weighted(const Call& call, const Resizing& how, const Tensor& x, int axis,
                const AxisResize& extents, const std::vector<double>& places) {
  const auto exact = static_cast<double>(extents.to) / static_cast<double>(extents.from);
  const bool aligns = how.coordinates == "align_corners";
  const bool half = how.coordinates == "half_pixel" ||
                    (how.coordinates == "pytorch_half_pixel" && extents.to > 1);
  const bool is_common = how.mode == "linear" && !how.antialias && !how.excludes_outside &&
                         extents.scale == exact && (aligns || half);
  if (is_common && has_images(x, axis))
    return interpolated(x, axis, extents.to, Interpolation::linear, aligns);
  if (extents.to > most_weights / extents.from)
    call.refuse("{} to {} elements need more than {} weights", extents.from, extents.to,
                most_weights);
  const Tensor table =
      weft::tensor(weights_of(how, extents, places), {extents.to, extents.from}, x.dtype());
  return transpose(matmul(transpose(x, axis, -1), transpose(table)), axis, -1);
}

Tensor resized_axis(const Call& call, const Resizing& how, const Tensor& x, int axis,
                    const AxisResize& extents) {
  if (extents.from < 1 || extents.to < 1)
    call.refuse("axis {} has no elements: {} to {}", axis, extents.from, extents.to);
  if (extents.to > most_extent)
    call.refuse("axis {} is resized to at most {} elements. Got {}", axis, most_extent, extents.to);
  const std::vector<double> places = coordinates_of(call, how, extents);
  Tensor y = how.mode == "nearest" ? nearest(call, how, x, axis, extents, places)
                                   : weighted(call, how, x, axis, extents, places);
  if (how.coordinates != "tf_crop_and_resize") return y;
  std::vector<bool> beyond;
  beyond.reserve(places.size());
  for (double at : places) beyond.push_back(at < 0 || at > static_cast<double>(extents.from - 1));
  if (std::ranges::none_of(beyond, [](bool is) { return is; })) return y;
  Shape along = Dims::filled(y.rank(), 1);
  along[axis] = extents.to;
  std::vector<double> marks(beyond.begin(), beyond.end());
  const Tensor outside = weft::tensor(marks, along, DType::boolean);
  return select(outside, scalar(how.outside, y.dtype()), y);
}

// Resizes all axes. Except for nearest, types other than float32 and float64 compute in float32;
// integers saturate.
Tensor resized(const Call& call, const Resizing& how, const std::vector<AxisResize>& extents) {
  const Tensor& x = call[0];
  const bool computes = how.mode != "nearest";
  const bool is_wide = x.dtype() == DType::f32 || x.dtype() == DType::f64;
  Tensor y = computes && !is_wide ? cast(x, DType::f32) : x;
  for (int axis = 0; axis < x.rank(); ++axis) {
    const AxisResize& each = extents[static_cast<size_t>(axis)];
    const bool is_whole = each.start == 0 && each.end == 1;
    if (each.from == each.to && std::abs(each.scale - 1) < 1e-9 && is_whole) continue;
    y = resized_axis(call, how, y, axis, each);
  }
  if (y.dtype() == x.dtype()) return y;
  if (is_float(x.dtype())) return cast(y, x.dtype());
  const double count = std::ldexp(1.0, whole_bits(x.dtype()));
  const double low = has_sign(x.dtype()) ? -count : 0;
  return cast(clamp(y, low, count - 1), x.dtype());
}

std::vector<AxisResize> from_scales(const Call& call, const std::vector<double>& scales,
                                    const std::vector<int>& axes) {
  const Tensor& x = call[0];
  if (scales.size() != axes.size())
    call.refuse("it has {} scales for {} axes", scales.size(), axes.size());
  std::vector<AxisResize> all;
  for (int64_t extent : x.shape()) all.push_back({.from = extent, .to = extent});
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisResize& each = all[static_cast<size_t>(axes[i])];
    each.scale = scales[i];
    const double to = std::floor(static_cast<double>(each.from) * each.scale);
    if (!(scales[i] > 0) || !(to < 0x1p40)) call.refuse("a scale of {} is impossible", scales[i]);
    each.to = static_cast<int64_t>(to);
  }
  return all;
}

std::vector<AxisResize> from_sizes(const Call& call, const std::vector<int64_t>& sizes,
                                   const std::vector<int>& axes) {
  const Tensor& x = call[0];
  if (sizes.size() != axes.size())
    call.refuse("it has {} sizes for {} axes", sizes.size(), axes.size());
  std::vector<AxisResize> all;
  for (int64_t extent : x.shape()) all.push_back({.from = extent, .to = extent});
  std::vector<double> scales;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t from = std::max<int64_t>(x.dim(axes[i]), 1);
    scales.push_back(static_cast<double>(sizes[i]) / static_cast<double>(from));
  }
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisResize& each = all[static_cast<size_t>(axes[i])];
    each.scale = scales[i];
    each.to = sizes[i];
    if (policy == "stretch") continue;
    if (policy != "not_larger" && policy != "not_smaller")
      call.refuse("its keep_aspect_ratio_policy is '{}', which weft does not know", policy);
    each.scale = policy == "not_larger" ? std::ranges::min(scales) : std::ranges::max(scales);
    each.to = static_cast<int64_t>(std::floor(each.scale * static_cast<double>(each.from) + 0.5));
  }
  return all;
}

Tensors resize_operator(const Call& call) {
  const Tensor& x = call[0];
  Resizing how{.mode = call.text("mode", "nearest"),
               .coordinates = call.text("coordinate_transformation_mode", "half_pixel"),
               .rounding = call.text("nearest_mode", "round_prefer_floor"),
               .antialias = call.flag("antialias"),
               .excludes_outside = call.flag("exclude_outside"),
               .cubic = call.number("cubic_coeff_a", -0.75),
               .outside = call.number("extrapolation_value", 0.0)};
  if (how.mode != "nearest" && how.mode != "linear" && how.mode != "cubic")
    call.refuse("its mode is '{}', which weft does not know", how.mode);
  std::vector<int> axes;
  for (int64_t axis : call.integers("axes")) axes.push_back(call.axis_in(axis, x.rank()));
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(x.rank()));
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (call.opset() < 11) {
    how.coordinates = "asymmetric";
    how.rounding = "floor";
    return {resized(call, how, from_scales(call, call.numbers(1), axes))};
  }
  const bool has_scales = call.has(2) && call[2].elements() > 0;
  if (!has_scales && !call.has(3)) call.refuse("it has neither scales nor sizes");
  std::vector<AxisResize> extents = has_scales ? from_scales(call, call.numbers(2), axes)
                                               : from_sizes(call, call.integers(3), axes);
  if (how.coordinates == "tf_crop_and_resize") {
    const std::vector<double> region = call.numbers(1);
    if (region.size() != 2 * axes.size())
      call.refuse("its region has {} numbers for {} axes", region.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      extents[static_cast<size_t>(axes[i])].start = region[i];
      extents[static_cast<size_t>(axes[i])].end = region[i + axes.size()];
    }
  }
  return {resized(call, how, extents)};
}

Tensors upsample(const Call& call) {
  std::vector<int> axes(static_cast<size_t>(call[0].rank()));
  std::iota(axes.begin(), axes.end(), 0);
  const Resizing how{
      .mode = call.text("mode", "nearest"), .coordinates = "asymmetric", .rounding = "floor"};
  if (how.mode != "nearest" && how.mode != "linear")
    call.refuse("its mode is '{}', which weft does not know", how.mode);
  const std::vector<double> scales = call.opset() < 9 ? call.numbers("scales") : call.numbers(1);
  return {resized(call, how, from_scales(call, scales, axes))};
}

const Operator resize_rows[] = {
    {"Resize",
     "@10 2 4@11 -> 1: antialias@18 axes@18 coordinate_transformation_mode@11 cubic_coeff_a@11 "
     "exclude_outside@11 extrapolation_value@11 keep_aspect_ratio_policy@18 mode nearest_mode@11",
     resize_operator, "", 0b1110},
    {"Upsample", "1 2@9 -> 1: mode scales@-8", upsample, "", 0b10},
};
}  // namespace

std::span<const Operator> resize_operators() { return resize_rows; }

}  // namespace weft::onnx
