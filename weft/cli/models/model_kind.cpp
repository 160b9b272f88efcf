#include "weft/cli/models/model_kind.h"

#include "weft/onnx/file/model.h"

namespace weft::cli {

const ModelKind& kind_of(const std::string& name) {
  onnx::check_there(name);
  for (const ModelKind* kind : {&onnx_kind, &published_kind})
    if (kind->is(name)) return *kind;
  return run_kind;
}

}  // namespace weft::cli
