#include "weft/backends/cpu/selection.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>

#include "weft/backends/cpu/machine.h"
#include "weft/base/buffer.h"
#include "weft/base/env.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"
#include "weft/base/stopwatch.h"

namespace weft::cpu {
namespace {

// Memory that an operand or result at these strides takes, and where its first element lies.
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
  // A small normal number of any floating point type: zeros and denormals have times of their own.
  std::memset(room.buffer->data, 0x3c, room.buffer->bytes);
  return room;
}

double milliseconds(const Node& node, std::span<const Placement> operands, const Family& family,
                    const KernelChoice& choice) {
  Step step;
  step.kind = Step::Kind::library;
  step.kernel = choice.kernel;
  step.body = {rebuild(node, node.inputs)};
  step.workspace = choice.workspace;
  std::vector<Room> rooms;
  std::vector<void*> places;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& type = node.inputs[i].type();
    const bool as_it_lies = i >= choice.operand_order.size() || choice.operand_order[i].empty();
    rooms.push_back(room_for(type, as_it_lies
                                       ? operands[i].strides
                                       : dense_strides(type.shape, choice.operand_order[i])));
    places.push_back(rooms.back().buffer->data);
    step.operands.push_back({node.inputs[i], rooms.back().at});
  }
  const Shape& shape = node.type.shape;
  Room result =
      room_for(node.type, choice.result_order.empty() ? row_major_strides(shape)
                                                      : dense_strides(shape, choice.result_order));
  step.results = {{step.body.front(), result.at}};
  void* out = result.buffer->data;
  const std::shared_ptr<Buffer> scratch = Buffer::allocate(choice.workspace);
  const std::unique_ptr<Kernel> kernel = family.compile(step);

  double least = 0;
  Stopwatch whole;
  for (int run = 0; run < 8 && (run < 3 || whole.milliseconds() < 100); ++run) {
    Stopwatch watch;
    kernel->run(places.data(), &out, scratch->data);
    const double took = watch.milliseconds();
    if (run > 0) least = run == 1 ? took : std::min(least, took);  // the first one warms up
  }
  return least;
}
}  // namespace

std::string machine_identity() {
  const Machine machine = this_machine();
  std::string text = fmt::format("{}, {} cores, {}", machine.model, machine.cores,
                                 fmt::join(machine.features, " "));
  for (const auto& [name, version] : library_versions())
    text += fmt::format(", {} {}", name, version);
  return text;
}

bool tunes() { return env("WEFT_TUNE") == "1"; }

Selection::Selection() {
  if (cache_directory().empty()) return;
  const std::filesystem::path folder = std::filesystem::path(cache_directory()) / "selection";
  path_ = folder / to_hex(hash_text(machine_identity()));
  std::ifstream file(path_);
  // A line that is torn or foreign names no signature, or no kernel that there is.
  for (std::string line; std::getline(file, line);)
    if (size_t tab = line.find('\t'); tab != std::string::npos)
      kernels_[line.substr(tab + 1)] = line.substr(0, tab);
}

std::optional<std::string> Selection::find(const std::string& signature) const {
  auto found = kernels_.find(signature);
  return found == kernels_.end() ? std::nullopt : std::optional(found->second);
}

void Selection::keep(const std::string& signature, const std::string& kernel) {
  kernels_[signature] = kernel;
  if (path_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  std::ofstream file(path_, std::ios::app);
  file << kernel + '\t' + signature + '\n' << std::flush;  // one write, whole among others'
  if (!file) log::debug(1, "kernel selection: cannot write {}", path_);
}

void Selection::prefer(const std::map<std::string, std::string>& kernels) {
  for (const auto& [signature, kernel] : kernels) kernels_[signature] = kernel;
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
    log::debug(1, "measured {:<24} {:9.3f} ms: {}", choice.kernel, times.back(), node.op->name);
  }
  return choices[static_cast<size_t>(std::ranges::min_element(times) - times.begin())];
}

}  // namespace weft::cpu
