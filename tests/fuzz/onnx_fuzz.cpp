// Fuzzes ONNX files, from the small models of tests/onnx that are kept, up to the module whose
// graph is not built yet: its operators, the order of its nodes, and its parameters.
#include "tests/fuzz/fuzz.h"
#include "weft/base/memory/storage.h"
#include "weft/onnx/net/net.h"

using namespace weft;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::exact_copy(data, size);
  const std::string_view text(reinterpret_cast<const char*>(bytes->data), bytes->bytes);
  fuzz::expect_value_or_error(ErrorKind::data, [&] {
    onnx::Model model = onnx::parse(text, "input");
    size_t total = 0;
    for (const onnx::Initializer& each : model.graph.initializers) {
      const auto elements =
          std::span(static_cast<const std::byte*>(each.value->data()), each.value.type().bytes());
      fuzz::touch(elements);
      total += elements.size();
    }
    if (total > 8 * size) std::abort();
    const onnx::Net net(std::move(model));
    if (net.static_inputs().size() != net.inputs().size()) std::abort();
    onnx::Net::Extents extents;
    for (const onnx::ValueInfo& each : net.inputs())
      for (size_t axis = 0; each.shape && axis < each.shape->size(); ++axis)
        if ((*each.shape)[axis].extent < 0) extents[onnx::symbol_of(each, axis)] = 1;
    net.input_types(extents);
  });
  return 0;
}
