#include "weft/onnx/net/runner.h"

#include <algorithm>
#include <utility>

#include "weft/base/error.h"
#include "weft/io/files.h"

namespace weft::onnx {
namespace {
// Returns the inputs that are passed on each run; with `are_static`, those whose values are fixed
// when the step is compiled.
std::vector<Tensor> chosen(const Net& net, std::span<const Tensor> inputs, bool are_static) {
  std::vector<Tensor> some;
  for (size_t i = 0; i < inputs.size() && i < net.static_inputs().size(); ++i)
    if (net.static_inputs()[i] == are_static) some.push_back(inputs[i]);
  return some;
}

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::equal(a->data(), a->data() + a.type().bytes(), b->data());
}

void check_indices(const Net& net, std::span<const IndexInput> indices,
                   std::span<const Tensor> inputs) {
  for (const auto& [input, extent, node] : indices) {
    const std::vector<double> values = inputs[input].to_doubles();
    const auto size = static_cast<double>(extent);
    const auto wrong =
        std::ranges::find_if(values, [&](double index) { return index < -size || index >= size; });
    if (wrong == values.end()) continue;
    Dims at = inputs[input].shape();
    int64_t rest = wrong - values.begin();
    for (int axis = at.size() - 1; axis >= 0; --axis) {
      const int64_t extent_of_axis = at[axis];
      at[axis] = rest % extent_of_axis;
      rest /= extent_of_axis;
    }
    throw Error(ErrorKind::data, "[onnx] {}: input '{}' has {:.0f} at {}, an index of {} elements.",
                node, io::printable(net.inputs()[input].name), *wrong, to_string(at), extent);
  }
}
}  // namespace

// A Captured is the step for one set of values of the static inputs.
struct Runner::Captured {
  Captured(const Net& net, std::vector<Tensor> values, const StepOptions& options)
      : fixed(std::move(values)),
        step(
            [this, &net](std::span<const Tensor> bound) {
              std::vector<Tensor> inputs;
              size_t next_fixed = 0, next_bound = 0;
              for (const bool is_static : net.static_inputs())
                inputs.push_back(is_static ? fixed[next_fixed++] : bound[next_bound++]);
              indices.clear();
              return net(inputs, &indices);
            },
            options) {}

  std::vector<Tensor> fixed;
  std::vector<IndexInput> indices;
  CompiledStep step;
};

Runner::Runner(const Net& net, StepOptions options) : net_(net), options_(std::move(options)) {}
Runner::~Runner() = default;

Runner::Captured& Runner::captured(std::span<const Tensor> inputs) {
  std::vector<Tensor> fixed = chosen(net_, inputs, true);
  for (const Tensor& value : fixed) value.eval();
  for (const std::unique_ptr<Captured>& known : steps_)
    if (std::ranges::equal(known->fixed, fixed, are_equal)) return *known;
  steps_.push_back(std::make_unique<Captured>(net_, std::move(fixed), options_));
  return *steps_.back();
}

Runner::Captured& Runner::prepared(std::span<const Tensor> inputs) {
  WEFT_CHECK(inputs.size() == net_.inputs().size(), "[onnx] {} takes {} inputs. Got {}.",
             io::printable(net_.model().file), net_.inputs().size(), inputs.size());
  Captured& captured = this->captured(inputs);
  captured.step.prepare(types_of(chosen(net_, inputs, false)));
  check_indices(net_, captured.indices, inputs);
  return captured;
}

std::span<const Tensor> Runner::run(std::span<const Tensor> inputs) {
  return prepared(inputs).step.run(chosen(net_, inputs, false));
}

Executable& Runner::prepare(std::span<const Tensor> inputs) {
  return prepared(inputs).step.prepare(types_of(chosen(net_, inputs, false)));
}

Runner::Captured& Runner::without_static() {
  for (size_t i = 0; i < net_.inputs().size(); ++i)
    WEFT_CHECK(!net_.static_inputs()[i],
               "[onnx] {}: the elements of input '{}' decide shapes, so that it can be run but not "
               "planned without them.",
               io::printable(net_.model().file), io::printable(net_.inputs()[i].name));
  return captured({});
}
PlanSummary Runner::plan(std::span<const Type> types) { return without_static().step.plan(types); }
Executable& Runner::prepare(std::span<const Type> types) {
  return without_static().step.prepare(types);
}

}  // namespace weft::onnx
