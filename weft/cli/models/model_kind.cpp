#include "weft/cli/models/model_kind.h"

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/onnx/file/model.h"

namespace weft::cli {

const ModelKind& kind_of(const std::string& name) {
  onnx::check_there(name);
  for (const ModelKind* kind : {&onnx_kind, &compiled_kind, &published_kind})
    if (kind->is(name)) return *kind;
  return run_kind;
}

const ModelKind& open_kind_of(const std::string& name, std::string_view is_not) {
  const ModelKind& kind = kind_of(name);
  if (kind.is_compiled)
    throw Error(ErrorKind::usage,
                "{} is {}, which is not {}. Hint: the model that it was compiled from.",
                io::printable(name), kind.text, is_not);
  return kind;
}

}  // namespace weft::cli
