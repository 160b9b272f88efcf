#include "weft/cli/models/picture_output.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/cli/show/terminal.h"
#include "weft/io/files.h"
#include "weft/ops/ops.h"
#include "weft/pictures/image.h"

namespace weft::cli {
namespace {

// Returns the shape [rows, C, H, W] of an output, which need not be one of pictures; the extents of
// one that is neither of 3 nor of 4 axes are 0.
Shape shape_of(const Type& type, bool has_rows) {
  const Shape& shape = type.shape;
  if (shape.size() == 4) return shape;
  if (shape.size() != 3) return {0, 0, 0, 0};
  return has_rows ? Shape{shape[0], 1, shape[1], shape[2]} : Shape{1, shape[0], shape[1], shape[2]};
}

// Values are the elements of an output, [rows, H, W, C].
struct Values {
  std::span<const float> all;
  int64_t outside = 0;  // of [0, 1]
  float least = std::numeric_limits<float>::infinity();
  float most = -std::numeric_limits<float>::infinity();
};

// Throws at the first NaN; `shape` is [rows, C, H, W].
Values scan(std::span<const float> all, const Shape& shape, const std::string& name,
            const std::string& path) {
  Values values{.all = all};
  for (size_t i = 0; i < all.size(); ++i) {
    const float value = all[i];
    if (std::isnan(value)) {
      const auto at = static_cast<int64_t>(i);
      const int64_t pixel = at / shape[1], line = pixel / shape[3];
      throw Error(ErrorKind::failed,
                  "--output {}: output '{}' is NaN in row {}, channel {}, at y {}, x {}. Nothing "
                  "was written.",
                  io::printable(path), io::printable(name), line / shape[2], at % shape[1],
                  line % shape[2], pixel % shape[3]);
    }
    values.outside += value < 0 || value > 1 ? 1 : 0;
    values.least = std::min(values.least, value);
    values.most = std::max(values.most, value);
  }
  return values;
}

}  // namespace

void PictureOutput::check(std::span<const std::string> names, std::span<const Type> types) const {
  if (types.size() != 1) {
    std::vector<std::string> texts;
    texts.reserve(types.size());
    for (size_t i = 0; i < types.size(); ++i)
      texts.push_back(fmt::format("'{}' ({})", io::printable(names[i]), to_string(types[i])));
    throw Error(ErrorKind::usage,
                "--output {}: pictures are written of one output, and the model has {}: {}. "
                "Hint: .npz.",
                io::printable(path), types.size(), fmt::join(texts, ", "));
  }
  const bool is_png = pictures::image_format(path) == pictures::ImageFormat::png;
  const Shape shape = shape_of(types[0], has_rows);
  const int64_t channels = shape[1];
  const bool has_channels = channels == 1 || channels == 3 || (is_png && channels == 4);
  const bool is_number = types[0].dtype == DType::u8 || is_float(types[0].dtype);
  if (!has_channels || !is_number)
    throw Error(ErrorKind::usage,
                "--output {}: output '{}' is {}. A {} is written of floats or u8 [rows, C, H, W] "
                "or [C, H, W], C {}. Hint: .npy.",
                io::printable(path), io::printable(names[0]), to_string(types[0]),
                is_png ? "PNG" : "JPEG", is_png ? "1, 3 or 4" : "1 or 3");
  const int64_t most = is_png ? pictures::most_png_side : pictures::most_jpeg_side;
  if (shape[0] < 1 || shape[2] < 1 || shape[3] < 1 || shape[2] > most || shape[3] > most)
    throw Error(ErrorKind::usage,
                "--output {}: output '{}' is {}. A {} has 1 to {} lines of 1 to {} pixels.",
                io::printable(path), io::printable(names[0]), to_string(types[0]),
                is_png ? "PNG" : "JPEG", most, most);
}

std::vector<std::string> PictureOutput::files(const Type& type) const {
  const int64_t rows = shape_of(type, has_rows)[0];
  if (rows == 1) return {path};
  const size_t ending = path.rfind('.'), digits = std::to_string(rows).size();
  std::vector<std::string> files;
  for (int64_t row = 1; row <= rows; ++row)
    files.push_back(
        fmt::format("{}-{:0{}}{}", path.substr(0, ending), row, digits, path.substr(ending)));
  return files;
}

void PictureOutput::write(const io::NamedTensor& output) const {
  const Type& type = output.tensor.type();
  const Shape shape = shape_of(type, has_rows);
  const Tensor rows = permute(reshape(cast(output.tensor, DType::f32), shape), {0, 2, 3, 1}).eval();
  const Values values =
      scan({reinterpret_cast<const float*>(rows->data()), static_cast<size_t>(rows.elements())},
           shape, output.name, path);
  const bool is_scaled = type.dtype != DType::u8;
  if (is_scaled && values.outside > 0)
    remark("note",
           fmt::format("output '{}': {} of {} values are outside of [0, 1], from {:.6g} to {:.6g}, "
                       "and are clipped. Hint: .npy has them as they are.",
                       io::printable(output.name), values.outside, rows.elements(), values.least,
                       values.most));
  pictures::Image image{.height = shape[2], .width = shape[3], .channels = shape[1]};
  image.pixels.resize(static_cast<size_t>(shape[1] * shape[2] * shape[3]));
  const float* from = values.all.data();
  for (const std::string& file : files(type)) {
    for (uint8_t& pixel : image.pixels) {
      const float value = *from++;
      pixel = static_cast<uint8_t>(is_scaled ? std::lround(255 * std::clamp(value, 0.F, 1.F))
                                             : std::lround(value));
    }
    pictures::write_image(file, image);
  }
}

}  // namespace weft::cli
