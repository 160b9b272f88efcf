#include "weft/cli/models/calibration_arrays.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/memory/storage.h"
#include "weft/cli/recipes/recipe_arguments.h"
#include "weft/io/files.h"
#include "weft/tensor/compile.h"

namespace weft::cli {
namespace {
using io::printable;

// Returns the index of the first NaN of an array; its number of elements if it has no NaN.
int64_t first_nan(const Tensor& array) {
  const auto find = [](const auto& numbers) {
    return std::ranges::find_if(numbers, [](auto number) { return std::isnan(number); }) -
           numbers.begin();
  };
  if (!is_float(array.dtype())) return array.elements();
  return array.dtype() == DType::f32 ? find(array.to_vector<float>()) : find(array.to_doubles());
}

std::vector<int64_t> place_of(int64_t element, const Shape& shape) {
  std::vector<int64_t> place(static_cast<size_t>(shape.size()));
  for (int axis = shape.size() - 1; axis >= 0; --axis) {
    place[static_cast<size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return place;
}

bool has_rank(const Tensor& array, const onnx::ValueInfo& input) {
  return input.shape && array.rank() > 0 && std::ssize(*input.shape) == array.rank();
}
}  // namespace

CalibrationArrays::CalibrationArrays(const std::string& model,
                                     const std::vector<std::string>& inputs,
                                     const RecipeFlags& flags, const onnx::Net::Extents& dims)
    : model_(model) {
  set_flags(flags);
  const std::vector<InputFile> files = parse_inputs(inputs);
  for (const InputFile& file : files)
    if (file.has_pictures)
      throw Error(ErrorKind::usage,
                  "--input {}: a net is calibrated on arrays (.npy, .npz, .pb). Hint: for pictures "
                  "--data.format image_folder and --data.path.",
                  printable(file.path));
  onnx::Model file = onnx::read(model);
  onnx::override_defaults(file, names_of(files));
  net_ = std::make_shared<onnx::Net>(std::move(file));
  const std::vector<std::vector<InputArray>> given = arrays_of(model, net_->inputs(), files);
  for (size_t i = 1; i < given.size(); ++i)
    if (given[i].size() != given[0].size())
      throw Error(ErrorKind::usage,
                  "{}: a batch is an array of every input. Got {} of '{}' and {} of '{}'.",
                  printable(model), given[0].size(), printable(net_->inputs()[0].name),
                  given[i].size(), printable(net_->inputs()[i].name));
  for (size_t i = 0; i < given.size(); ++i) {
    std::vector<Array>& arrays = arrays_.emplace_back();
    for (const InputArray& array : given[i]) {
      arrays.push_back({array.file, array.read()});
      check_array(i, arrays.back());
    }
  }
  const size_t batches = arrays_.empty() ? 0 : arrays_[0].size();
  for (size_t i = 0; i < batches; ++i) split(i);
  if (pieces_.empty())
    throw Error(ErrorKind::usage, "{}: it takes no inputs to calibrate on.", printable(model));
  check_extents(dims);
}

void CalibrationArrays::set_flags(const RecipeFlags& flags) {
  train::Recipe recipe;
  for (const RecipeFlag& flag : flags) {
    if (flag.path.starts_with("data."))
      throw Error(ErrorKind::usage,
                  "{} and --input both name samples to calibrate on. Hint: give one of them.",
                  flag.flag);
    if (flag.path != keys::train::device && flag.path != keys::eval::batch_size)
      throw Error(ErrorKind::usage, "{} is for recipes. {} is an ONNX file.", flag.flag,
                  printable(model_));
  }
  recipe.apply_environment();
  apply_flags(recipe, flags);
  device_ = recipe->train.device;
  const bool has_size = std::ranges::any_of(
      flags, [](const RecipeFlag& flag) { return flag.path == keys::eval::batch_size; });
  if (has_size) rows_ = *recipe->eval.batch_size;
}

void CalibrationArrays::check_array(size_t input, const Array& array) const {
  const std::string name = printable(net_->inputs()[input].name);
  if (array.tensor.elements() == 0)
    throw Error(ErrorKind::data, "{}: the array of input '{}' has no elements: it is {}.",
                printable(array.file), name, to_string(array.tensor.type()));
  if (const int64_t element = first_nan(array.tensor); element < array.tensor.elements())
    throw Error(ErrorKind::data, "{}: the array of input '{}' has a NaN at [{}].",
                printable(array.file), name,
                fmt::join(place_of(element, array.tensor.shape()), ", "));
}

bool CalibrationArrays::is_open(size_t input, size_t axis) const {
  return (*net_->inputs()[input].shape)[axis].extent < 0;
}

// The first input says how many rows a batch has, and whether the net takes a fixed number of them.
// Inputs of other extents are the same for all rows.
void CalibrationArrays::split(size_t batch) {
  const std::vector<onnx::ValueInfo>& inputs = net_->inputs();
  const auto& [file, first] = arrays_[0][batch];
  Piece piece{.batch = batch, .index = 0, .rows = rows_, .is_split = {}};
  piece.is_split.resize(inputs.size());
  int64_t pieces = 1;
  if (has_rank(first, inputs[0])) {
    const int64_t all = first.dim(0), extent = (*inputs[0].shape)[0].extent;
    if (extent > 0) piece.rows = extent;
    if (extent > 0 && all % extent != 0)
      throw Error(ErrorKind::usage, "{}: {} takes {} rows of input '{}' at a time. Got {}.",
                  printable(file), printable(model_), extent, printable(inputs[0].name), all);
    if (piece.rows > 0) pieces = (all + piece.rows - 1) / piece.rows;
    for (size_t i = 0; i < inputs.size() && pieces > 1; ++i) {
      const Tensor& array = arrays_[i][batch].tensor;
      piece.is_split[i] = has_rank(array, inputs[i]) && array.dim(0) == all &&
                          (*inputs[i].shape)[0].extent == extent;
    }
  }
  const bool is_one_file = std::ranges::all_of(
      arrays_, [&](const std::vector<Array>& each) { return each[batch].file == file; });
  const std::string place = (is_one_file ? printable(file) + ": " : "") + printable(model_);
  for (; piece.index < pieces; ++piece.index) {
    onnx::check_inputs(place, inputs, onnx::types_of(this->batch(piece)));
    pieces_.push_back(piece);
  }
}

// Rows of an array are a view of it.
std::vector<Tensor> CalibrationArrays::batch(const Piece& piece) const {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Tensor& array = arrays_[i][piece.batch].tensor;
    if (!piece.is_split[i]) {
      inputs.push_back(array);
      continue;
    }
    const int64_t begin = piece.index * piece.rows;
    Type type = array.type();
    const auto row_bytes = static_cast<int64_t>(type.bytes()) / array.dim(0);
    type.shape[0] = std::min(piece.rows, array.dim(0) - begin);
    inputs.push_back(
        tensor_over(array->storage->buffer(), array->data() + begin * row_bytes, type));
  }
  return inputs;
}

bool CalibrationArrays::has_rows(size_t input) const {
  for (const size_t i : {size_t{0}, input})
    if (!has_rank(arrays_[i][0].tensor, net_->inputs()[i]) || !is_open(i, 0)) return false;
  for (size_t batch = 0; batch < arrays_[0].size(); ++batch)
    if (arrays_[input][batch].tensor.dim(0) != arrays_[0][batch].tensor.dim(0)) return false;
  return true;
}

// A file is written for one value of each extent but the number of rows.
void CalibrationArrays::check_extents(const onnx::Net::Extents& dims) const {
  const std::vector<onnx::ValueInfo>& inputs = net_->inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& first = arrays_[i][0].tensor;
    if (!has_rank(first, inputs[i])) continue;  // it is of one shape, or cannot be written
    for (size_t axis = 0; axis < inputs[i].shape->size(); ++axis) {
      const std::string symbol = onnx::symbol_of(inputs[i], axis);
      if (!is_open(i, axis) || dims.contains(symbol) || (axis == 0 && (i == 0 || has_rows(i))))
        continue;
      const int64_t extent = first.dim(static_cast<int>(axis));
      for (const Array& array : arrays_[i])
        if (const int64_t here = array.tensor.dim(static_cast<int>(axis)); here != extent)
          throw Error(ErrorKind::usage,
                      "{}: '{}' is {} in {} and {} in {}, and the file that is written takes one. "
                      "Hint: --dim {}={}.",
                      printable(model_), printable(symbol), extent, printable(arrays_[i][0].file),
                      here, printable(array.file), printable(symbol), std::max(here, extent));
    }
  }
}

quantization::Net CalibrationArrays::net() const {
  return [this](std::span<const Tensor> inputs) { return (*net_)(inputs); };
}

quantization::Samples CalibrationArrays::samples() const {
  return [this](const auto& visit) {
    for (const Piece& piece : pieces_) visit(batch(piece));
  };
}

quantization::Layers CalibrationArrays::layers() const {
  const ModeScope inference(Mode::eval);
  Graph graph;
  for (const Tensor& each : first_batch())
    graph.inputs.push_back(input(each.type(), static_cast<int>(graph.inputs.size())));
  graph.outputs = (*net_)(graph.inputs);
  return quantization::layers_of(graph);
}

std::vector<Shape> CalibrationArrays::shapes() const {
  std::vector<Shape> shapes;
  const std::vector<Tensor> first = first_batch();
  for (size_t i = 0; i < first.size(); ++i) {
    shapes.push_back(first[i].shape());
    if (has_rows(i)) shapes.back()[0] = -1;
  }
  return shapes;
}

}  // namespace weft::cli
