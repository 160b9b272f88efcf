#include "weft/backends/cpu/selection.h"

#include <algorithm>
#include <cstring>

#include <fmt/ranges.h>

#include "weft/backends/cpu/machine.h"
#include "weft/base/host/stopwatch.h"
#include "weft/base/logging.h"
#include "weft/base/memory/buffer.h"

namespace weft::cpu {
namespace {

// Room is the memory of an operand or result with these strides, and where its first element is.
struct Room {
  std::shared_ptr<Buffer> buffer;
  Placement at;
};
Room room_for(const Type& type, const Dims& strides) {
  int64_t before = 0, after = 1;  // elements
  for (int i = 0; i < strides.size(); ++i) {
    const int64_t extent = std::max<int64_t>(0, type.shape[i] - 1);
    (strides[i] < 0 ? before : after) += std::abs(strides[i]) * extent;
  }
  Room room{Buffer::allocate(static_cast<size_t>(before + after) * size_of(type.dtype)),
            {.slot = -1, .offset = before, .strides = strides}};
  // The fill is a small normal number of any floating point type, as zeros and denormals run at
  // other speeds.
  std::memset(room.buffer->data, 0x3c, room.buffer->bytes);
  return room;
}

double milliseconds(const Node& node, std::span<const Placement> operands, const Family& family,
                    const KernelChoice& choice) {
  Launch launch;
  launch.kind = Launch::Kind::library;
  launch.kernel = choice.kernel;
  launch.algorithm = choice.algorithm;
  launch.body = {rebuild(node, node.inputs)};
  launch.workspace = choice.workspace;
  launch.packed_bytes = choice.packed_bytes;
  std::vector<Room> rooms;
  std::vector<void*> places;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& type = node.inputs[i].type();
    const bool keeps_layout = i >= choice.operand_order.size() || choice.operand_order[i].empty();
    rooms.push_back(room_for(type, keeps_layout
                                       ? operands[i].strides
                                       : dense_strides(type.shape, choice.operand_order[i])));
    places.push_back(rooms.back().buffer->data);
    launch.operands.push_back({node.inputs[i], rooms.back().at});
  }
  const Shape& shape = node.type.shape;
  Room result =
      room_for(node.type, choice.result_order.empty() ? row_major_strides(shape)
                                                      : dense_strides(shape, choice.result_order));
  launch.results = {{launch.body.front(), result.at}};
  void* out = result.buffer->data;
  const std::shared_ptr<Buffer> scratch = Buffer::allocate(choice.workspace);
  const std::unique_ptr<Kernel> kernel = family.compile(launch);
  kernel->bind_variables(std::vector<std::shared_ptr<VariableState>>(launch.operands.size()));

  double least = 0;
  Stopwatch whole;
  for (int run = 0; run < 8 && (run < 3 || whole.milliseconds() < 100); ++run) {
    Stopwatch watch;
    kernel->run(places.data(), &out, scratch->data);
    const double took = watch.milliseconds();
    if (run > 0) least = run == 1 ? took : std::min(least, took);  // run 0 warms up
  }
  return least;
}
}  // namespace

std::string machine_identity() {
  const Machine machine = this_machine();
  // The instruction set stands before the long list of features, as messages cut such texts.
  std::string text = fmt::format("{}, {} cores, up to {}, {}", machine.model, machine.cores,
                                 name(machine.isa), fmt::join(machine.features, " "));
  for (const auto& [name, version] : library_versions())
    text += fmt::format(", {} {}", name, version);
  return text;
}

double least_milliseconds(const Node& node, std::span<const Placement> operands) {
  const Family* family = find_family(node.op->name);
  if (family == nullptr) return 0;
  std::vector<KernelChoice> choices;
  if (family->alternatives != nullptr) choices = family->alternatives(node, operands);
  if (choices.empty())
    if (auto choice = family->choose(node, operands)) choices = {*choice};
  double least = 0;
  for (const KernelChoice& choice : choices) {
    const double took = milliseconds(node, operands, *family, choice);
    if (least == 0 || took < least) least = took;
  }
  return least;
}

const KernelChoice& fastest(const Node& node, std::span<const Placement> operands,
                            const Family& family, std::span<const KernelChoice> choices) {
  std::vector<double> times;
  for (const KernelChoice& choice : choices) {
    times.push_back(milliseconds(node, operands, family, choice));
    logging::debug(1, "measured {:<24} {:9.3f} ms: {}", choice.kernel, times.back(), node.op->name);
  }
  return choices[static_cast<size_t>(std::ranges::min_element(times) - times.begin())];
}

}  // namespace weft::cpu
