#include "weft/cli/models/picture_input.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"
#include "weft/onnx/net/net.h"
#include "weft/pictures/image_folder.h"
#include "weft/train/task/transforms.h"

namespace weft::cli {
namespace {
constexpr int64_t most_at_once = 32;  // pictures

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths)
    if (io::is_folder(path, ErrorKind::usage))
      std::ranges::move(pictures::pictures_below(path), std::back_inserter(files));
    else
      files.push_back(path);
  return files;
}

std::string input_text(const ArrayModel& model) {
  std::vector<std::string> texts;
  texts.reserve(model.inputs.size());
  for (const onnx::ValueInfo& each : model.inputs)
    texts.push_back(fmt::format("'{}' ({})", io::printable(each.name), onnx::to_string(each)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Rows gathers an output of the batches, with a row for each picture.
class Rows {
 public:
  explicit Rows(size_t count) : count_(count) {}

  // Appends the first `count` rows.
  void append(const Tensor& rows, int64_t count) {
    rows.eval();
    if (all_ == nullptr) {
      type_ = rows.type();
      type_.shape[0] = static_cast<int64_t>(count_);
      all_ = Buffer::allocate(type_.bytes());
    }
    const size_t bytes =
        rows.type().bytes() / static_cast<size_t>(rows.dim(0)) * static_cast<size_t>(count);
    std::memcpy(all_->data + end_, rows->data(), bytes);
    end_ += bytes;
  }
  Tensor tensor() const { return tensor_over(all_, all_->data, type_); }

 private:
  size_t count_, end_ = 0;  // rows; bytes so far
  Type type_;
  std::shared_ptr<Buffer> all_;
};

// Returns the shape [C, H, W] of a row. Extents that the model leaves open are the first picture's.
Shape row_of(const ArrayModel& model, const std::string& first) {
  const std::vector<onnx::Dim>& dims = *model.inputs[0].shape;
  Shape row{dims[1].extent, dims[2].extent, dims[3].extent};
  if (row[1] >= 0 && row[2] >= 0) return row;
  const Shape prepared = train::picture_shape(*model.pictures, row[0], first);
  for (int axis = 1; axis < 3; ++axis)
    if (row[axis] < 0) row[axis] = prepared[axis];
  return row;
}

void check_says_how(const ArrayModel& model) {
  if (!model.pictures)
    throw Error(ErrorKind::usage, "{} takes no pictures: its input is {}.",
                io::printable(model.name), input_text(model));
  const train::Recipe& recipe = *model.pictures;
  const int64_t channels = (*model.inputs[0].shape)[1].extent;
  if (model.says_normalization || recipe->data.dataset ||
      train::preparation_of(recipe, channels, false).normalization)
    return;
  throw Error(ErrorKind::usage,
              "{}: an ONNX file does not say how pictures are normalized for its input {}. Hint: "
              "--data.transforms '[{{normalize: {{mean: [...], std: [...]}}}}]', or --data.dataset "
              "of one that weft knows.",
              io::printable(model.name), input_text(model));
}
}  // namespace

PictureResults run_on_pictures(const ArrayModel& model, const std::vector<std::string>& paths) {
  check_says_how(model);
  PictureResults results{.pictures = files_of(paths), .outputs = {}, .first = {}};
  const std::span<const std::string> files(results.pictures);
  const Shape row = row_of(model, files.front());
  const int64_t fixed = model.inputs[0].shape->front().extent;
  const size_t batch = fixed > 0 ? static_cast<size_t>(fixed)
                                 : std::min(files.size(), static_cast<size_t>(most_at_once));
  std::vector<Rows> gathered(model.outputs.size(), Rows(files.size()));
  for (size_t at = 0; at < files.size(); at += batch) {
    std::vector<std::string> some(
        files.begin() + static_cast<ptrdiff_t>(at),
        files.begin() + static_cast<ptrdiff_t>(std::min(at + batch, files.size())));
    const auto count = std::ssize(some);
    some.resize(batch, some.back());  // fills the last batch: one plan for all
    const Tensor rows = train::picture_rows(*model.pictures, row, some);
    if (at == 0) results.first = rows;
    const std::vector<Tensor> outputs = model.run(std::span(&rows, 1));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& all = outputs[i];
      if (all.rank() == 0 || all.dim(0) != std::ssize(some))
        throw Error(ErrorKind::usage,
                    "{}: its output '{}' is {} for {} pictures: it has no row for each.",
                    io::printable(model.name), io::printable(model.outputs[i]),
                    to_string(all.type()), some.size());
      gathered[i].append(all, count);
    }
  }
  for (const Rows& each : gathered) results.outputs.push_back(each.tensor());
  return results;
}

}  // namespace weft::cli
