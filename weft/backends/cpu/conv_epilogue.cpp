// Computes a convolution of integers with its epilogue: oneDNN writes the sums of a few rows to
// scratch, and the kernel that codegen makes of the epilogue reads them there. That kernel is made
// for the whole result and runs on the tile's positions alone, so that it finds its other operands.
#include <algorithm>
#include <array>

#include "weft/backends/cpu/conv.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/packed.h"
#include "weft/base/alignment.h"
#include "weft/base/parallel.h"
#include "weft/codegen/codegen.h"
#include "weft/ir/op_def.h"

namespace weft::cpu {
namespace {
constexpr size_t tile_bytes = size_t{512} << 10;  // of sums, which leave room in L2
constexpr size_t most_operands = 16;              // of the epilogue

int64_t pixels_of(const Node& conv) { return conv.type.elements() / conv.type.shape[1]; }

// Returns where a value is if it is not copied: a view of its operand, else channels-last.
Placement placement_of(const Value& value) {
  if (value->op->view != nullptr)
    if (auto at = value->op->view(*value.node(), placement_of(value->inputs[0]))) return *at;
  const bool image = value.rank() == 4;
  return {-1, 0,
          image ? dense_strides(value.shape(), channels_last) : row_major_strides(value.shape())};
}
// Returns whether a value is one number for each channel, or for each channel of an image.
bool is_by_channel(const Value& value) {
  const Dims strides = placement_of(value).strides;
  return strides[2] == 0 && strides[3] == 0;
}

// Returns the launch that computes the epilogue, the rest of `body`, from the sums, its first
// operand, in `strides`.
Launch epilogue_of(std::span<const Value> body, const Access& result,
                   std::span<const Access> operands) {
  const Value& conv = body.front();
  Launch launch{.kind = Launch::Kind::fused, .kernel = "epilogue"};
  launch.body.assign(body.begin() + 1, body.end());
  launch.operands.push_back({conv, {0, 0, dense_strides(conv.shape(), channels_last)}});
  launch.operands.insert(launch.operands.end(), operands.begin(), operands.end());
  for (size_t i = 1; i < launch.operands.size(); ++i)
    launch.operands[i].at.slot = static_cast<int>(i);
  launch.results = {result};
  launch.results[0].at.slot = static_cast<int>(launch.operands.size());
  return launch;
}

// Returns what the epilogue reads but the sums.
std::vector<Value> others_of(std::span<const Value> body) {
  std::vector<Value> others;
  const auto is_in = [](std::span<const Value> values, const Value& value) {
    return std::ranges::find(values, value.node(), &Value::node) != values.end();
  };
  for (const Value& value : body.subspan(1))
    for (const Value& input : value->inputs)
      if (!is_in(body, input) && !is_in(others, input)) others.push_back(input);
  return others;
}

// Returns whether positions of the kernel are whole pixels, or whole parts of them, in order.
bool goes_by_pixels(const Launch& epilogue, const Node& conv) {
  const int64_t extent = stage_extent(epilogue), pixels = pixels_of(conv);
  return extent > 0 && extent % pixels == 0 && conv.type.elements() % extent == 0;
}

class ConvEpilogue : public Kernel {
 public:
  explicit ConvEpilogue(const Launch& launch)
      : conv_(*library_primitive(*launch.body.front().node(),
                                 convolution_of(*launch.body.front().node()), tile_bytes)),
        inputs_(bind_inputs(launch)) {
    const Node& node = *launch.body.front().node();
    WEFT_ASSERT(conv_.kept() == launch.kept, "{} plans to keep {} bytes but needs {}",
                launch.kernel, launch.kept, conv_.kept());
    if (launch.kept > 0) weight_.emplace(node.inputs[1], launch.kept);
    std::vector<Access> others;
    for (const Value& value : others_of(launch.body)) {
      const auto at = std::ranges::find(launch.operands, value.node(),
                                        [](const Access& access) { return access.value.node(); });
      WEFT_ASSERT(at != launch.operands.end(), "{} reads what is no operand", launch.kernel);
      others.push_back(*at);
      others_.push_back(static_cast<int>(at - launch.operands.begin()));
    }
    const Launch epilogue = epilogue_of(launch.body, launch.results[0], others);
    kernel_ = compile_cpu(epilogue);
    const KernelStage& stage = kernel_.stages.front();
    WEFT_ASSERT(kernel_.stages.size() == 1 && stage.extent % pixels_of(node) == 0,
                "the epilogue of {} does not go by pixels", launch.kernel);
    positions_ = stage.extent / pixels_of(node);
    sums_bytes_ = node.type.shape[1] * static_cast<int64_t>(size_of(node.type.dtype));
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    std::byte* tiles = static_cast<std::byte*>(workspace) + aligned(conv_.workspace());
    std::byte* scratch = tiles + static_cast<size_t>(thread_count()) * conv_.tile_bytes();
    std::array<void*, most_operands> shared{};
    for (size_t i = 0; i < others_.size(); ++i) shared[i + 1] = operands[others_[i]];
    conv_.run_tiles(inputs_[0].in(operands), inputs_[1].in(operands), workspace,
                    weight_ ? weight_->data() : nullptr, weight_ && weight_->packs_now(), tiles,
                    [&](const onednn::Tile& tile) {
                      std::array<void*, most_operands> own = shared;
                      own[0] = tile.sums - tile.first * sums_bytes_;  // as if all sums were there
                      kernel_.stages.front().fn(
                          own.data(), results,
                          scratch + static_cast<size_t>(tile.part) * kernel_.scratch_per_thread,
                          nullptr, tile.first * positions_, (tile.first + tile.count) * positions_);
                    });
  }

 private:
  onednn::Primitive conv_;
  std::optional<Packed> weight_;
  std::vector<Bound> inputs_;
  CompiledKernel kernel_;
  std::vector<int> others_;  // operands of the launch that the epilogue reads
  int64_t positions_ = 0;    // of the epilogue, for each pixel
  int64_t sums_bytes_ = 0;   // of a pixel
};
}  // namespace

std::optional<KernelChoice> choose_conv_epilogue(std::span<const Value> body,
                                                 std::span<const Value> results) {
  const Value& conv = body.front();
  if (!conv->is("conv_mixed") || results.size() != 1 || results[0].node() == conv.node())
    return std::nullopt;
  for (const Value& value : body.subspan(1))
    if (value->op->kind != OpKind::elementwise && !is_constant(*value.node())) return std::nullopt;
  if (!(results[0].shape() == conv.shape())) return std::nullopt;
  const std::vector<Value> others = others_of(body);
  if (others.size() + 1 > most_operands) return std::nullopt;
  std::vector<Access> accesses;
  KernelChoice choice{.kernel = "dnnl:conv_mixed+", .operand_order = {channels_last, {0, 1, 2, 3}}};
  for (const Value& value : others) {
    if (value.rank() != 4) return std::nullopt;
    // Whatever its layout was, a whole operand is read channels-last.
    Placement at = placement_of(value);
    if (!is_by_channel(value)) at = {-1, 0, dense_strides(value.shape(), channels_last)};
    accesses.push_back({value, at});
    const bool is_conv_operand =
        std::ranges::find(conv->inputs, value.node(), &Value::node) != conv->inputs.end();
    if (!is_conv_operand)
      choice.operand_order.push_back(is_by_channel(value) ? Dims() : channels_last);
  }
  const auto primitive = library_primitive(*conv.node(), convolution_of(*conv.node()), tile_bytes);
  if (!primitive) return std::nullopt;
  const Access result{results[0], {-1, 0, dense_strides(conv.shape(), channels_last)}};
  const Launch epilogue = epilogue_of(body, result, accesses);
  if (!can_fuse(epilogue) || !goes_by_pixels(epilogue, *conv.node())) return std::nullopt;
  choice.result_order = channels_last;
  choice.workspace = aligned(primitive->workspace()) +
                     static_cast<size_t>(thread_count()) * primitive->tile_bytes() +
                     workspace_bytes(epilogue, thread_count());
  choice.kept = primitive->kept();
  return choice;
}

std::unique_ptr<Kernel> compile_conv_epilogue(const Launch& launch) {
  return std::make_unique<ConvEpilogue>(launch);
}
}  // namespace weft::cpu
