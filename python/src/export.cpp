// Writes a step as an ONNX file.
#include "weft/onnx/export/export.h"

#include "python/src/step.h"

namespace weft::python {

void bind_export(nb::module_& m) {
  m.def(
      "_export_onnx",
      [](Step& step, const std::vector<PyType>& types, const std::vector<std::string>& inputs,
         const std::vector<std::string>& outputs, const std::string& name,
         const std::string& path) {
        if (inputs.size() != types.size())
          throw Error(ErrorKind::usage,
                      "[export] an exported step has a name for each of its inputs");
        const auto build = [&](int64_t) { return step.capture(types); };
        // A fixed number of rows, for which the graph was captured.
        const int64_t rows = types.empty() || types[0].second.empty() ? 1 : types[0].second[0];
        onnx::write(onnx::export_model(
                        build, {.inputs = inputs, .outputs = outputs, .batch = rows, .name = name})
                        .model,
                    path);
      },
      "step"_a, "types"_a, "inputs"_a, "outputs"_a, "name"_a, "path"_a);
}

}  // namespace weft::python
