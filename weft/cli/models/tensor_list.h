// Lists the tensors of safetensors, GGUF and ONNX files, as tables and as JSON.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

// Prints the tensors of the files: names, dtypes, shapes and sizes, sums by dtype, metadata, and
// the files themselves if there are several. `what` names them all. The table has one row for
// tensors that differ only by numbers in their names ("layers.{0..31}.weight"), or one for each
// tensor if `all`; JSON always lists each.
// `zeros`: with the share of zeros of each float tensor, for which all elements are read; blocks
// have none.
void list_tensors(const std::string& what, const std::vector<std::string>& files, bool all,
                  bool zeros, bool as_json);

}  // namespace weft::cli
