// Maps ONNX's operators that read images at places between their pixels: GridSample, RoiAlign,
// DeformConv; and those that write pixels at places: Col2Im, MaxUnpool.
#include <algorithm>

#include "weft/onnx/operators/operators.h"
#include "weft/onnx/operators/windows.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

// Returns coordinates of 16 bits in float32, which keeps their fractions.
Tensor in_float(const Tensor& x) { return computes_wider(x.dtype()) ? cast(x, DType::f32) : x; }

enum class Beyond : uint8_t { zeros, border, reflection };

// Pixels are images[B, C, space...] as rows of C channels.
struct Pixels {
  Tensor rows;  // [B S, C]
  Shape space;
};
Pixels pixels_of(const Tensor& images, int64_t groups) {
  Pixels pixels;
  for (int i = 2; i < images.rank(); ++i) pixels.space.push_back(images.dim(i));
  const int64_t count = element_count(pixels.space);
  const int64_t batch = images.dim(0) * groups, channels = images.dim(1) / groups;
  const Tensor flat = transpose(reshape(images, {batch, channels, count}), 1, 2);
  pixels.rows = reshape(flat, {batch * count, channels});
  return pixels;
}

// Mirrors numbers at both ends of [low, high] until they are inside.
Tensor reflected(const Tensor& x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return full(x.shape(), low, x.dtype());
  const Tensor distance = abs(x - low), turns = floor(distance / range);
  const Tensor rest = distance - turns * range;
  return select(equal(remainder(turns, 2), 0), rest + low, high - rest);
}

// A Tap is one neighbour along an axis of every sampled place: its index and weight.
struct Tap {
  Tensor index, weight;  // floating point, shaped like the places
};

// Cubic convolution (Keys 1981) with coefficient -0.75, of the four neighbours of a place.
std::vector<Tensor> cubic_weights(const Tensor& t) {
  constexpr double a = -0.75;
  const auto near = [&](const Tensor& x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [&](const Tensor& x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// A Sampler reads pixels at places, which are given as one tensor of coordinates for each spatial
// axis.
struct Sampler {
  std::string mode = "linear";  // nearest, linear, cubic
  Beyond beyond = Beyond::zeros;
  bool aligns = true;  // the ends of an axis are the centres of its first and last pixel

  double low() const { return aligns ? 0 : -0.5; }
  double high(int64_t extent) const { return static_cast<double>(extent) - (aligns ? 1 : 0.5); }

  std::vector<Tap> taps(const Tensor& given, int64_t extent) const {
    const auto last = static_cast<double>(extent - 1);
    Tensor at = mode == "nearest" ? round(given) : given;
    if (beyond == Beyond::border) at = clamp(at, 0, last);
    if (beyond == Beyond::reflection) at = reflected(at, low(), high(extent));
    const Tensor whole = floor(at), part = at - whole;
    std::vector<Tap> all;
    if (mode == "nearest") all = {{at, ones_like(at)}};
    if (mode == "linear") all = {{whole, 1 - part}, {whole + 1, part}};
    if (mode == "cubic") {
      const std::vector<Tensor> weights = cubic_weights(part);
      for (size_t i = 0; i < weights.size(); ++i)
        all.push_back({whole + (static_cast<double>(i) - 1), weights[i]});
    }
    for (Tap& tap : all) {
      if (beyond == Beyond::zeros) {
        const Tensor inside = logical_and(greater_equal(tap.index, 0), less_equal(tap.index, last));
        tap.weight = select(inside, tap.weight, zeros_like(tap.weight));
      } else if (beyond == Beyond::reflection) {
        tap.index = trunc(reflected(tap.index, low(), high(extent)));
      }
      tap.index = clamp(tap.index, 0, last);
    }
    return all;
  }

  // Calls visit(weight, value) for each combination of neighbours along the axes. `value` is shaped
  // like the places, with the channels as last axis; `image` is the image number of each place.
  template <class Visit>
  void visit(const Pixels& pixels, const Tensor& image, const std::vector<Tensor>& places,
             Visit visit) const {
    std::vector<std::vector<Tap>> axes;
    axes.reserve(places.size());
    for (size_t i = 0; i < places.size(); ++i)
      axes.push_back(taps(places[i], pixels.space[static_cast<int>(i)]));
    const Dims counts = Dims::filled(static_cast<int>(axes.size()), std::ssize(axes[0]));
    for_each_place(counts, [&](const Dims& which) {
      Tensor row = image, weight;
      for (int i = 0; i < which.size(); ++i) {
        const Tap& tap = axes[static_cast<size_t>(i)][static_cast<size_t>(which[i])];
        row = row * pixels.space[i] + cast(tap.index, DType::i64);
        weight = weight.defined() ? weight * tap.weight : tap.weight;
      }
      visit(unsqueeze(cast(weight, pixels.rows.dtype()), -1), gather(pixels.rows, row, 0));
    });
  }

  Tensor sampled(const Pixels& pixels, const Tensor& image,
                 const std::vector<Tensor>& places) const {
    Tensor total;
    visit(pixels, image, places, [&](const Tensor& weight, const Tensor& value) {
      total = total.defined() ? total + value * weight : value * weight;
    });
    return total;
  }
};

Tensor last_axis(const Tensor& x, int64_t index) {
  return squeeze(slice(x, -1, index, index + 1), -1);
}

Tensors grid_sample(const Call& call) {
  const Tensor& x = call[0];
  const Tensor grid = in_float(call[1]);
  const int axes = x.rank() - 2;
  if (axes < 1 || grid.rank() != x.rank() || grid.dim(-1) != axes || grid.dim(0) != x.dim(0))
    call.refuse("its grid does not fit. Got {} for {}", to_string(call[1].type()),
                to_string(x.type()));
  const bool aligns = call.flag("align_corners");
  Sampler sampler{.mode = call.text("mode", "linear"), .aligns = aligns};
  if (sampler.mode == "bilinear") sampler.mode = "linear";
  if (sampler.mode == "bicubic") sampler.mode = "cubic";
  if (sampler.mode != "nearest" && sampler.mode != "linear" && sampler.mode != "cubic")
    call.refuse("its mode is '{}', which weft does not know", sampler.mode);
  const std::string padding = call.text("padding_mode", "zeros");
  if (padding == "border")
    sampler.beyond = Beyond::border;
  else if (padding == "reflection")
    sampler.beyond = Beyond::reflection;
  else if (padding != "zeros")
    call.refuse("its padding_mode is '{}', which weft does not know", padding);
  std::vector<Tensor> places;  // the grid holds the coordinate of the last axis first
  for (int i = 0; i < axes; ++i) {
    const auto extent = static_cast<double>(x.dim(i + 2));
    const Tensor number = last_axis(grid, axes - 1 - i);
    places.push_back(aligns ? (number + 1) / 2 * (extent - 1) : ((number + 1) * extent - 1) / 2);
  }
  const Tensor y = sampler.sampled(pixels_of(x, 1), iota(places[0].shape(), 0), places);
  Dims order{0, y.rank() - 1};
  for (int i = 1; i < y.rank() - 1; ++i) order.push_back(i);
  return {cast(permute(y, order), x.dtype())};
}

// Returns the normalized coordinate along `axis` of each pixel of `space`.
Tensor along_axis(const Shape& space, int axis, bool aligns) {
  const auto extent = static_cast<double>(space[axis]);
  const Tensor index = iota(space, axis, DType::f32);
  if (!aligns) return (index * 2 + 1) / extent - 1;
  return extent == 1 ? index - 1 : index * (2 / (extent - 1)) - 1;
}

Tensors affine_grid(const Call& call) {
  const Tensor& theta = call[0];
  const std::vector<int64_t> size = call.integers(1);
  const auto axes = static_cast<int>(size.size()) - 2;
  if (axes < 2 || axes > 3 || theta.rank() != 3 || theta.dim(1) != axes ||
      theta.dim(2) != axes + 1 || std::ranges::any_of(size, [](int64_t each) { return each < 1; }))
    call.refuse("its transforms do not fit its size of {} numbers. Got {}", size.size(),
                to_string(theta.type()));
  const Shape space(std::vector<int64_t>(size.begin() + 2, size.end()));
  const int64_t count = element_count(space);
  std::vector<Tensor> numbers;
  for (int axis = axes - 1; axis >= 0; --axis)
    numbers.push_back(along_axis(space, axis, call.flag("align_corners")));
  numbers.push_back(ones(space));
  const Tensor places = reshape(stack(numbers, axes), {count, axes + 1});
  const Tensor grid = matmul(cast(places, theta.dtype()), transpose(theta));
  Shape shape{size[0]};
  for (int64_t extent : space) shape.push_back(extent);
  shape.push_back(axes);
  return {reshape(grid, shape)};
}

// Takes the mean, or the maximum, of `ratio` x `ratio` samples in each cell of each region (He et
// al. 2017, "Mask R-CNN").
Tensors roi_align(const Call& call) {
  const Tensor &x = call[0], &regions = call[1];
  const int64_t height = call.integer("output_height", 1), width = call.integer("output_width", 1);
  const int64_t ratio = call.integer("sampling_ratio", 0);
  const std::string mode = call.text("mode", "avg");
  constexpr int64_t most_ratio = 256;  // places along each side of a cell
  if (ratio > most_ratio)
    call.refuse("its sampling_ratio is at most {}. Got {}", most_ratio, ratio);
  if (ratio < 1)
    call.refuse(
        "its number of places follows from its regions, which are known only when the "
        "model runs: sampling_ratio is at least 1. Got {}",
        ratio);
  if (x.rank() != 4 || regions.rank() != 2 || regions.dim(1) != 4 || height < 1 || width < 1)
    call.refuse("its operands are [N, C, H, W] and [R, 4]. Got {} and {}", to_string(x.type()),
                to_string(regions.type()));
  const std::string otherwise = call.opset() < 16 ? "output_half_pixel" : "half_pixel";
  const bool half = call.text("coordinate_transformation_mode", otherwise) == "half_pixel";
  const Tensor scaled = in_float(regions) * call.number("spatial_scale", 1.0) - (half ? 0.5 : 0.0);
  const int64_t count = regions.dim(0);
  const Shape all{count, height * ratio, width * ratio};
  Tensor inside;
  std::vector<Tensor> places;
  for (int axis = 0; axis < 2; ++axis) {
    const int64_t cells = axis == 0 ? height : width;
    const Tensor start = reshape(last_axis(scaled, 1 - axis), {count, 1, 1});
    Tensor length = reshape(last_axis(scaled, 3 - axis), {count, 1, 1}) - start;
    if (!half) length = maximum(length, 1);
    const Tensor step = length / static_cast<double>(cells * ratio);
    const Tensor place = (iota(all, axis + 1, start.dtype()) + 0.5) * step + start;
    const Tensor is_near = logical_and(greater_equal(place, -1),
                                       less_equal(place, static_cast<double>(x.dim(axis + 2))));
    inside = inside.defined() ? logical_and(inside, is_near) : is_near;
    places.push_back(place);
  }
  const Tensor image = broadcast_to(reshape(cast(call[2], DType::i64), {count, 1, 1}), all);
  const Tensor kept = unsqueeze(cast(inside, x.dtype()), -1);
  Tensor found;
  Sampler{.beyond = Beyond::border}.visit(
      pixels_of(x, 1), image, places, [&](const Tensor& weight, const Tensor& value) {
        const Tensor part = value * weight * kept;
        if (!found.defined())
          found = part;
        else
          found = mode == "max" ? maximum(found, part) : found + part;
      });
  const Tensor cells = reshape(found, {count, height, ratio, width, ratio, x.dim(1)});
  const ReduceOptions over{.axes = {2, 4}};
  return {permute(mode == "max" ? max(cells, over) : mean(cells, over), {0, 3, 1, 2})};
}

// Dai et al. 2017, "Deformable Convolutional Networks", and Zhu et al. 2019 with a mask.
Tensors deform_conv(const Call& call) {
  const Tensor &x = call[0], &weight = call[1], &offset = call[2];
  if (x.rank() != 4 || weight.rank() != 4 || offset.rank() != 4)
    call.refuse("its operands are images. Got {}, {} and {}", to_string(x.type()),
                to_string(weight.type()), to_string(offset.type()));
  const Windows windows = windows_of(call, x.shape(), {weight.dim(2), weight.dim(3)});
  const int64_t groups = call.integer("offset_group", 1), parts = call.integer("group", 1);
  const int64_t places = windows.kernel[0] * windows.kernel[1], batch = x.dim(0);
  const int64_t height = windows.count(0, x.dim(2)), width = windows.count(1, x.dim(3));
  const Shape wanted{batch, groups * places * 2, height, width};
  if (groups < 1 || parts < 1 || x.dim(1) % groups != 0 || !(offset.shape() == wanted) ||
      weight.dim(1) * parts != x.dim(1) || weight.dim(0) % parts != 0)
    call.refuse("its offsets and weights do not fit {}. Got {} and {}", to_string(x.type()),
                to_string(offset.type()), to_string(weight.type()));
  const Shape all{batch, groups, places, height, width};
  const Tensor moves = reshape(offset, {batch, groups, places, 2, height, width});
  std::vector<Tensor> at;
  for (int axis = 0; axis < 2; ++axis) {
    const Tensor move = squeeze(slice(moves, 3, axis, axis + 1), 3);
    const Tensor tap = axis == 0 ? floor_divide(iota(all, 2), windows.kernel[1])
                                 : remainder(iota(all, 2), windows.kernel[1]);
    const Tensor place = iota(all, axis + 3) * windows.stride[axis] - windows.low[axis] +
                         tap * windows.dilation[axis];
    at.push_back(cast(place, x.dtype()) + move);
  }
  const Tensor image = iota(all, 0) * groups + iota(all, 1);
  Tensor columns = Sampler{}.sampled(pixels_of(x, groups), image, at);
  if (call.has(4)) columns = columns * reshape(call[4], {batch, groups, places, height, width, 1});
  // [N, offset groups, places, H, W, channels] -> [N, groups, channels and places, H W]
  columns = reshape(permute(columns, {0, 1, 5, 2, 3, 4}),
                    {batch, parts, weight.dim(1) * places, height * width});
  const Tensor filters = reshape(weight, {parts, weight.dim(0) / parts, weight.dim(1) * places});
  const Tensor y = reshape(matmul(filters, columns), {batch, weight.dim(0), height, width});
  return {call.has(3) ? y + reshape(call[3], {weight.dim(0), 1, 1}) : y};
}

// Adds columns[N, C K, L] into the pixels that im2col read them from: the transpose of im2col.
Tensors col2im(const Call& call) {
  const Tensor& columns = call[0];
  const std::vector<int64_t> image = call.integers(1), block = call.integers(2);
  const size_t axes = image.size();
  const auto list = [&](const char* name, size_t count, int64_t otherwise) {
    std::vector<int64_t> given = call.integers(name);
    if (given.empty()) given.assign(count, otherwise);
    if (given.size() != count) call.refuse("attribute '{}' has {} numbers", name, given.size());
    return given;
  };
  const auto dilation = list("dilations", axes, 1), stride = list("strides", axes, 1);
  const auto pads = list("pads", 2 * axes, 0);
  if (columns.rank() != 3 || block.size() != axes || axes == 0)
    call.refuse("its columns are [N, C K, L]. Got {}", to_string(columns.type()));
  Dims kernel(block), windows;
  int64_t places = 1, count = 1, pixels = 1;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t room = image[i] + pads[i] + pads[i + axes] - dilation[i] * (block[i] - 1) - 1;
    if (block[i] < 1 || stride[i] < 1 || image[i] < 1 || room < 0)
      call.refuse("its blocks do not fit its image along axis {}", i);
    windows.push_back(room / stride[i] + 1);
    places *= block[i];
    count *= windows[static_cast<int>(i)];
    pixels *= image[i];
  }
  if (columns.dim(1) % places != 0 || columns.dim(2) != count)
    call.refuse("blocks of {} at {} places do not make {}", places, count,
                to_string(columns.type()));
  std::vector<int64_t> targets;
  for_each_place(kernel, [&](const Dims& tap) {
    for_each_place(windows, [&](const Dims& window) {
      int64_t target = 0;
      bool inside = true;
      for (int i = 0; i < tap.size(); ++i) {
        const auto axis = static_cast<size_t>(i);
        const int64_t at = window[i] * stride[axis] - pads[axis] + tap[i] * dilation[axis];
        inside = inside && at >= 0 && at < image[axis];
        target = target * image[axis] + at;
      }
      targets.push_back(inside ? target : -1);
    });
  });
  const int64_t channels = columns.dim(1) / places, batch = columns.dim(0);
  const Tensor parts = reshape(columns, {batch * channels, places * count});
  const Tensor sums = scatter_add(zeros({pixels, batch * channels}, columns.dtype()),
                                  weft::tensor(targets, {std::ssize(targets)}), transpose(parts));
  Shape shape{batch, channels};
  for (int64_t extent : image) shape.push_back(extent);
  return {reshape(transpose(sums), shape)};
}

// Puts elements back where MaxPool found them.
Tensors max_unpool(const Call& call) {
  const Tensor& x = call[0];
  const std::vector<int64_t> kernel = call.integers("kernel_shape");
  const auto axes = static_cast<size_t>(std::max(x.rank() - 2, 0));
  std::vector<int64_t> stride = call.integers("strides"), pads = call.integers("pads");
  if (stride.empty()) stride.assign(axes, 1);
  if (pads.empty()) pads.assign(2 * axes, 0);
  if (axes == 0 || kernel.size() != axes || stride.size() != axes || pads.size() != 2 * axes)
    call.refuse("its kernel does not fit {}", to_string(x.type()));
  Shape pooled = x.shape();  // the shape of MaxPool's operand
  for (size_t i = 0; i < axes; ++i) {
    const int axis = static_cast<int>(i) + 2;
    pooled[axis] = (x.dim(axis) - 1) * stride[i] - pads[i] - pads[i + axes] + kernel[i];
    if (pooled[axis] < 1) call.refuse("its padding leaves no element along axis {}", axis);
  }
  const int64_t count = element_count(pooled);
  const Tensor indices = reshape(cast(call[1], DType::i64), {call[1].elements()});
  Tensor y = reshape(
      index_put(zeros({count, 1}, x.dtype()), indices, reshape(x, {x.elements(), 1})), pooled);
  if (!call.has(2)) return {y};
  const std::vector<int64_t> wanted = call.integers(2);
  if (std::ssize(wanted) != y.rank())
    call.refuse("its output_shape has {} extents for {}", wanted.size(), to_string(y.shape()));
  Dims low = Dims::filled(y.rank(), 0), high = low;
  for (int i = 0; i < y.rank(); ++i) {
    const int64_t more = wanted[static_cast<size_t>(i)] - y.dim(i);
    if (more < 0) call.refuse("its output_shape is less than {}", to_string(y.shape()));
    high[i] = more;
  }
  return {pad(y, low, high)};
}

const Operator sample_rows[] = {
    {"AffineGrid", "@20 2 -> 1: align_corners", affine_grid, "", 0b10},
    {"Col2Im", "@18 3 -> 1: dilations pads strides", col2im, "", 0b110},
    {"DeformConv", "@19 5 -> 1: dilations group kernel_shape offset_group pads strides",
     deform_conv},
    {"GridSample", "@16 2 -> 1: align_corners mode padding_mode", grid_sample},
    {"MaxUnpool", "@9 3 -> 1: kernel_shape pads strides", max_unpool, "", 0b100},
    {"RoiAlign",
     "@10 3 -> 1: coordinate_transformation_mode@16 mode output_height output_width sampling_ratio "
     "spatial_scale",
     roi_align},
};
}  // namespace

std::span<const Operator> sample_operators() { return sample_rows; }

}  // namespace weft::onnx
