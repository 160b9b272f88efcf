// Lists the tensors of a model's files, as tables and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/ir/type.h"

namespace weft::cli {

// A ListedTensor is a tensor of a file, with the name of its type: a dtype, or a block format.
struct ListedTensor {
  std::string name;
  std::string_view type;
  Shape shape;  // shape of the numbers
  size_t bytes = 0;
  std::optional<int64_t> zeros = {};  // nullopt: not counted
};

struct ListedMetadata {
  std::string key, text;  // the text is printable
  nlohmann::json value;
};

struct ListedFile {
  std::string name;
  std::vector<ListedMetadata> metadata = {};
  std::vector<ListedTensor> tensors = {};
};

struct ListedModel {
  std::string name;  // the folder or the file
  std::vector<ListedFile> files;
};

// Returns how many elements of a tensor are zero; of bytes, in which blocks are, none are counted.
std::optional<int64_t> zeros_of(const Type& type, std::span<const std::byte> bytes);

// Reads a safetensors or a GGUF file. `zeros`: counts the zeros of each float tensor, for which all
// elements are read; blocks have none.
ListedFile listed(const std::string& weights, bool zeros);
// Reads the files of a model's weights (ModelFormat::weights), for ModelKind::tensors.
ListedModel weight_tensors(const std::string& name, bool zeros);

// Prints the tensors of the files: names, dtypes, shapes and sizes, sums by dtype, metadata, and
// the files themselves if there are several. The table has one row for tensors that differ only by
// numbers in their names ("layers.{0..31}.weight"), or one for each tensor if `all`; JSON always
// lists each. `zeros`: with the share of zeros that the model was read with.
void list_tensors(const ListedModel& model, bool all, bool zeros, bool as_json);

}  // namespace weft::cli
