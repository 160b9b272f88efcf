#include "weft/cli/models/model_kind.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/onnx/file/model.h"

namespace weft::cli {

const ModelKind& kind_of(const std::string& name) {
  onnx::check_there(name);
  if (name.ends_with(".pt2"))
    throw Error(ErrorKind::usage,
                "{} is a program of torch.export, which Python reads. Hint: weft.export("
                "weft.torch.load(\"{}\"), inputs, \"net.weft\") makes a file for this command.",
                io::printable(name), io::printable(name));
  const train::ModelFormat& format = train::format_of(name);
  return **std::ranges::find_if(model_kinds,
                                [&](const ModelKind* kind) { return &kind->format == &format; });
}

const ModelKind& open_kind_of(const std::string& name, std::string_view is_not) {
  const ModelKind& kind = kind_of(name);
  if (kind.is_compiled)
    throw Error(ErrorKind::usage,
                "{} is {}, which is not {}. Hint: the model that it was compiled from.",
                io::printable(name), kind.format.text, is_not);
  return kind;
}

}  // namespace weft::cli
