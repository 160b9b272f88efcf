#include "weft/cli/models/array_input.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/error.h"
#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/io/npy.h"
#include "weft/onnx/net/net.h"
#include "weft/pictures/image_folder.h"

namespace weft::cli {
namespace {
InputFile parse_input(const std::string& value) {
  InputFile input{.name = "", .path = value};
  if (const size_t equals = value.find('=');
      equals != std::string::npos && !io::exists(value, ErrorKind::usage))
    input = {.name = value.substr(0, equals), .path = value.substr(equals + 1)};
  if (!io::exists(input.path, ErrorKind::usage))
    throw Error(ErrorKind::usage, "--input {}: there is no such file.", io::printable(input.path));
  input.has_pictures =
      pictures::is_picture(input.path) || io::is_folder(input.path, ErrorKind::usage);
  return input;
}

// A Given is an array under the name that its file gives it: "" where it gives none.
struct Given {
  std::string name;
  InputArray array;
};
Given given(const InputFile& input, const Tensor& array) {
  return {input.name, {input.path, array.type(), [array] { return array; }, !input.name.empty()}};
}

std::vector<Given> open_arrays(const InputFile& input) {
  const std::string& file = input.path;
  if (file.ends_with(".npz")) {
    if (!input.name.empty())
      throw Error(ErrorKind::usage,
                  "--input {}={}: a .npz names its arrays itself. Hint: --input {}.",
                  io::printable(input.name), io::printable(file), io::printable(file));
    const auto archive = std::make_shared<const io::Npz>(io::Npz::open(file));
    std::vector<Given> arrays;
    for (size_t i = 0; i < archive->entries().size(); ++i) {
      const auto& [name, type] = archive->entries()[i];
      arrays.push_back(
          {name, {file, type, [archive, i] { return archive->read(i); }, !name.empty()}});
    }
    return arrays;
  }
  if (file.ends_with(".pb")) return {given(input, onnx::read_tensor(file))};
  if (!file.ends_with(".npy"))
    throw Error(ErrorKind::usage,
                "--input {}: inputs are arrays (.npy, .npz, .pb) or pictures (.jpg, .png).",
                io::printable(file));
  return {given(input, io::read_npy(file))};
}
}  // namespace

std::vector<InputFile> parse_inputs(std::span<const std::string> values) {
  std::vector<InputFile> files;
  files.reserve(values.size());
  for (const std::string& value : values) files.push_back(parse_input(value));
  return files;
}

std::vector<std::string> names_of(std::span<const InputFile> files) {
  std::vector<std::string> names;
  for (const InputFile& file : files) {
    if (!file.name.empty()) names.push_back(file.name);
    if (!file.path.ends_with(".npz")) continue;
    const io::Npz arrays = io::Npz::open(file.path);
    for (const io::Npz::Entry& entry : arrays.entries()) names.push_back(entry.name);
  }
  return names;
}

size_t index_of_input(const std::string& model, std::span<const onnx::ValueInfo> inputs,
                      const std::string& name) {
  std::vector<std::string_view> names;
  names.reserve(inputs.size());
  for (const onnx::ValueInfo& each : inputs) names.push_back(each.name);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    throw Error(ErrorKind::usage, "{}: it has no input '{}'.{} Its inputs: {}.",
                io::printable(model), io::printable(name), did_you_mean(name, names),
                fmt::join(names, ", "));
  }
  return static_cast<size_t>(found - names.begin());
}

std::vector<std::vector<InputArray>> arrays_of(const std::string& model,
                                               std::span<const onnx::ValueInfo> inputs,
                                               std::span<const InputFile> files) {
  std::vector<std::vector<InputArray>> arrays(inputs.size());
  std::vector<InputArray> unnamed;
  for (const InputFile& file : files)
    for (auto& [name, array] : open_arrays(file))
      (array.is_named ? arrays[index_of_input(model, inputs, name)] : unnamed)
          .push_back(std::move(array));
  for (InputArray& array : unnamed) {
    const auto next = std::ranges::min_element(arrays, {}, &std::vector<InputArray>::size);
    if (next == arrays.end())
      throw Error(ErrorKind::usage, "{}: it takes no inputs.", io::printable(model));
    next->push_back(std::move(array));
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < arrays.size(); ++i)
    if (arrays[i].empty())
      missing.push_back(fmt::format("'{}' ({})", inputs[i].name, onnx::to_string(inputs[i])));
  if (!missing.empty())
    throw Error(ErrorKind::usage, "{}: inputs are missing: {}. Hint: --input NAME=FILE.npy.",
                io::printable(model), fmt::join(missing, ", "));
  return arrays;
}

}  // namespace weft::cli
