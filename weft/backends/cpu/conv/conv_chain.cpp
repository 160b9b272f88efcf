// Computes a chain of convolutions, each with its epilogue, a strip of an image's rows at a time:
// the activations between two convolutions are read from the cache and never stored whole. oneDNN
// writes the sums of a strip to scratch, where the epilogue's generated kernel reads them. That
// kernel is compiled for the whole value and runs on the strip's positions alone, so that it
// addresses its other operands as usual.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <numeric>
#include <utility>

#include "weft/backends/cpu/conv/conv.h"
#include "weft/backends/cpu/gemm/packed.h"
#include "weft/backends/cpu/kernels.h"
#include "weft/backends/cpu/machine.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/codegen/codegen.h"
#include "weft/ir/op_def.h"

namespace weft::cpu {
namespace {
using onednn::Range;
constexpr size_t most_operands = 16;  // of an epilogue
// A value between two convolutions of at least this size leaves the cache before it is read again.
constexpr size_t worth_chaining = size_t{1} << 20;
constexpr double most_repeated = 1.25;  // work of a chain per work of its links, as strips overlap

// Returns the most bytes of a strip's values, which leave room in the second-level cache.
size_t strip_bytes() {
  static const size_t bytes = [] {
    const size_t cache = this_machine().l2;
    return std::clamp(cache - cache / 4, size_t{384} << 10, size_t{768} << 10);
  }();
  return bytes;
}

bool is_conv(const Value& value) {
  return (value->is("conv") || value->is("conv_mixed")) && value.rank() == 4;
}
// Depthwise convolutions compute little per byte that they read.
bool is_depthwise(const Value& conv) {
  return conv->attrs.integer("groups") > 1 && conv->inputs[1].dim(1) == 1;
}
bool is_in(std::span<const Value> values, const Value& value) {
  return std::ranges::find(values, value.node(), &Value::node) != values.end();
}
int64_t pixels_of(const Value& image) { return image.elements() / image.dim(1); }
int64_t row_bytes(const Value& image) {  // bytes of one row of an image
  return image.dim(3) * image.dim(1) * static_cast<int64_t>(size_of(image.dtype()));
}

// Returns the placement of a value without a copy: a view of its operand, else dense, with images
// channels-last.
Placement placement_of(const Value& value) {
  if (value->op->view != nullptr)
    if (auto at = value->op->view(*value.node(), placement_of(value->inputs[0]))) return *at;
  const bool image = value.rank() == 4;
  return {-1, 0,
          image ? dense_strides(value.shape(), channels_last) : row_major_strides(value.shape())};
}
// Returns whether a value has one number per channel, or per channel of each image.
bool is_by_channel(const Value& value) {
  const Dims strides = placement_of(value).strides;
  return strides[2] == 0 && strides[3] == 0;
}

// A Link is a convolution with its epilogue, elementwise operations on the convolution's sums.
struct Link {
  Value conv, result;
  std::vector<Value> epilogue;  // by id; empty: the result is the sums
  std::vector<Value> others;    // operands of the epilogue besides the sums
};

// Returns whether an epilogue writes its results over the sums, because both have elements of one
// size.
bool in_place(const Link& link) {
  return size_of(link.result.dtype()) == size_of(link.conv.dtype());
}

// Returns the links of a body in order; an empty list if the body is not a chain.
std::vector<Link> links_of(std::span<const Value> body, Value result) {
  std::vector<Link> links;
  size_t computed = 0;  // nodes in the links so far, without constants
  for (;;) {
    Link& link =
        links.emplace_back(Link{.conv = {}, .result = result, .epilogue = {}, .others = {}});
    std::vector<Value> pending{result};
    for (size_t i = 0; i < pending.size(); ++i) {
      const Value value = pending[i];
      if (is_conv(value)) {
        if (link.conv.defined()) return {};
        link.conv = value;
        ++computed;
        continue;
      }
      const bool constant = is_constant(*value.node());
      if (!constant && value->op->kind != OpKind::elementwise) return {};
      if (!constant) ++computed;
      link.epilogue.push_back(value);
      for (const Value& input : value->inputs)
        if (is_in(body, input) && !is_in(pending, input)) pending.push_back(input);
    }
    if (!link.conv.defined() || link.result.shape() != link.conv.shape()) return {};
    std::ranges::sort(link.epilogue, {}, [](const Value& value) { return value->id; });
    for (const Value& value : link.epilogue)
      for (const Value& input : value->inputs)
        if (input.node() != link.conv.node() && !is_in(link.epilogue, input) &&
            !is_in(link.others, input))
          link.others.push_back(input);
    result = link.conv->inputs[0];
    if (link.conv.node() == body.front().node()) break;
    if (!is_in(body, result)) return {};
  }
  const auto counts = [](const Value& value) { return !is_constant(*value.node()); };
  if (std::ranges::count_if(body, counts) != static_cast<ptrdiff_t>(computed)) return {};
  std::ranges::reverse(links);
  return links;
}

// Returns the launch that computes an epilogue from the sums, its first operand, channels-last.
Launch epilogue_of(const Link& link, std::span<const Access> others) {
  Launch launch{.kind = Launch::Kind::fused, .kernel = "epilogue"};
  launch.body = link.epilogue;
  const Dims strides = dense_strides(link.conv.shape(), channels_last);
  launch.operands.push_back({link.conv, {0, 0, strides}});
  launch.operands.insert(launch.operands.end(), others.begin(), others.end());
  for (size_t i = 1; i < launch.operands.size(); ++i)
    launch.operands[i].at.slot = static_cast<int>(i);
  launch.results = {{link.result, {static_cast<int>(launch.operands.size()), 0, strides}}};
  return launch;
}
// Returns whether the epilogue's kernel iterates over pixels in order: each of its positions is a
// pixel or an equal part of a pixel.
bool goes_by_pixels(const Launch& epilogue, const Value& sums) {
  const int64_t extent = stage_extent(epilogue), pixels = pixels_of(sums);
  return extent > 0 && extent % pixels == 0 && sums.elements() % extent == 0;
}
// An epilogue that is not the last uses ordinary stores, which keep its result in the cache for the
// next link; the last one may use non-temporal stores.
CpuTarget target_of(bool last) {
  return last ? CpuTarget{} : CpuTarget{.stream_bytes = std::numeric_limits<size_t>::max()};
}

// Strips, as [link][strip], are the rows that a link computes for a strip. The last link's rows do
// not overlap; an earlier link's rows are the rows that the next link reads, and overlap.
using Strips = std::vector<std::vector<Range>>;
Strips strips_of(std::span<const onednn::Problem> problems, int64_t rows, int64_t count) {
  Strips strips(problems.size());
  for (int64_t strip = 0; strip < count; ++strip) {
    Range made{rows * strip / count, rows * (strip + 1) / count};
    for (size_t i = problems.size(); i-- > 0; made = onednn::rows_read(problems[i], made))
      strips[i].push_back(made);
  }
  return strips;
}

// A Chain describes the kernel of a chain. Stage::workspace is an offset in oneDNN's part of the
// workspace, which all threads share; a stage's other offsets are in a thread's area after that.
struct Chain {
  struct Stage {
    Link link;
    std::vector<Range> strips;
    onednn::Strips conv;
    Launch epilogue;  // its body is empty if the link has no epilogue
    size_t workspace = 0, sums = 0, result = 0, scratch = 0;
  };
  std::vector<Stage> stages;
  std::vector<int64_t> first_rows;                // per strip: the first row of x that it reads
  size_t shared = 0, area = 0, packed_bytes = 0;  // bytes; area: per thread
  int objects = 0;                                // objects that oneDNN makes
};

// Returns the bytes of a strip's rows of a value.
size_t bytes_of(const Value& value, std::span<const Range> strips) {
  int64_t rows = 0;
  for (const Range& strip : strips) rows = std::max(rows, strip.size());
  return aligned(static_cast<size_t>(rows * row_bytes(value)));
}
// Returns the bytes of a thread's sums and activations between a strip's links.
size_t area_of(std::span<const Link> links, const Strips& strips) {
  size_t bytes = 0;
  for (size_t i = 0; i < links.size(); ++i) {
    const bool last = i + 1 == links.size();
    if (!last || !links[i].epilogue.empty()) bytes += bytes_of(links[i].conv, strips[i]);
    if (!last && !in_place(links[i])) bytes += bytes_of(links[i].result, strips[i]);
  }
  return bytes;
}
// Returns strips whose values fit in the cache (strip_bytes), in a number that divides evenly among
// the threads if the rows allow it.
Strips fitting(std::span<const Link> links, std::span<const onednn::Problem> problems) {
  const int64_t rows = links.back().conv.dim(2), threads = thread_count();
  const int64_t unit = threads / std::gcd(links.back().conv.dim(0), threads);
  for (int64_t count = std::min(unit, rows);; count = std::min(count + unit, rows)) {
    Strips strips = strips_of(problems, rows, count);
    if (count == rows || area_of(links, strips) <= strip_bytes()) return strips;
  }
}

// Returns whether the chain takes less time than its links apart: the activations between links
// would leave the cache, one of two neighbouring links is depthwise, and overlapping strips compute
// little twice. A single convolution of integers with an epilogue always does.
bool pays(std::span<const Link> links, const Strips& strips) {
  if (links.size() == 1) return links[0].conv->is("conv_mixed") && !links[0].epilogue.empty();
  double once = 0, all = 0;
  for (size_t i = 0; i < links.size(); ++i) {
    const Value& conv = links[i].conv;
    const double work = flops(*conv.node()), rows = static_cast<double>(conv.dim(2));
    once += work;
    for (const Range& strip : strips[i]) all += work * static_cast<double>(strip.size()) / rows;
    if (i == 0) continue;
    const bool light = is_depthwise(links[i - 1].conv) || is_depthwise(conv);
    if (!light || links[i - 1].result.type().bytes() < worth_chaining) return false;
  }
  return all <= most_repeated * once && area_of(links, strips) <= 2 * strip_bytes();
}

// Returns nullopt where the body is no chain, or oneDNN has no kernel for it. `access_of` says
// where an operand of an epilogue is.
template <class AccessOf>
std::optional<Chain> chain_of(std::span<const Value> body, const Value& result,
                              AccessOf access_of) {
  std::vector<Link> links = links_of(body, result);
  std::vector<onednn::Problem> problems;
  for (const Link& link : links) {
    auto problem = library_problem(*link.conv.node(), convolution_of(*link.conv.node()));
    if (!problem || link.others.size() + 1 > most_operands) return std::nullopt;
    problems.push_back(*problem);
  }
  if (links.empty()) return std::nullopt;
  Strips strips = fitting(links, problems);
  if (!pays(links, strips)) return std::nullopt;
  Chain chain;
  for (const Range& made : strips[0])
    chain.first_rows.push_back(onednn::rows_read(problems[0], made).begin);
  for (size_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const bool last = i + 1 == links.size();
    auto conv = onednn::Strips::make(problems[i], strips[i]);
    if (!conv) return std::nullopt;
    Chain::Stage stage{.link = link, .strips = strips[i], .conv = std::move(*conv), .epilogue = {}};
    stage.workspace = chain.shared;
    chain.shared += aligned(stage.conv.workspace());
    chain.packed_bytes += stage.conv.packed_bytes();
    chain.objects += stage.conv.objects();
    const auto room = [&](size_t bytes) { return std::exchange(chain.area, chain.area + bytes); };
    if (!last || !link.epilogue.empty()) stage.sums = room(bytes_of(link.conv, strips[i]));
    stage.result = !last && !in_place(link) ? room(bytes_of(link.result, strips[i])) : stage.sums;
    if (!link.epilogue.empty()) {
      std::vector<Access> others;
      for (const Value& value : link.others) {
        if (value.rank() != 4) return std::nullopt;
        others.push_back(access_of(value));
      }
      stage.epilogue = epilogue_of(link, others);
      if (!can_fuse(stage.epilogue) || !goes_by_pixels(stage.epilogue, link.conv))
        return std::nullopt;
      stage.scratch = room(workspace_bytes(stage.epilogue, 1, target_of(last)));
    }
    chain.stages.push_back(std::move(stage));
  }
  return chain;
}

class ConvChain : public Kernel {
 public:
  explicit ConvChain(const Launch& launch)
      : chain_(*chain_of(launch.body, launch.results[0].value,
                         [&](const Value& value) { return launch.operands[at(launch, value)]; })),
        x_(bind_operand(launch, chain_.stages[0].link.conv->inputs[0])),
        result_(bind_result(launch)) {
    WEFT_ASSERT(chain_.packed_bytes == launch.packed_bytes, "{} plans {} packed bytes but needs {}",
                launch.kernel, launch.packed_bytes, chain_.packed_bytes);
    for (const Chain::Stage& stage : chain_.stages) {
      const Value& weight = stage.link.conv->inputs[1];
      Part& part = parts_.emplace_back();
      part.weight = bind_operand(launch, weight);
      if (stage.conv.packed_bytes() > 0)
        part.packed = std::make_unique<Packed>(part.weight, stage.conv.packed_bytes());
      if (stage.link.epilogue.empty()) continue;
      for (const Value& value : stage.link.others) part.others.push_back(at(launch, value));
      part.epilogue = compile_cpu(stage.epilogue, target_of(&stage == &chain_.stages.back()));
      WEFT_ASSERT(part.epilogue.stages.size() == 1, "the epilogue of {} does not go by pixels",
                  launch.kernel);
      part.row_positions =
          part.epilogue.stages[0].extent / (stage.link.conv.dim(0) * stage.link.conv.dim(2));
    }
  }

  void bind_variables(std::span<const std::shared_ptr<VariableState>> operands) override {
    for (const Part& part : parts_)
      if (part.packed) part.packed->bind(operands);
  }

  void run(void* const* operands, void* const* results, void* workspace) const override {
    auto* shared = static_cast<std::byte*>(workspace);
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      chain_.stages[i].conv.prepare(part.weight.in(operands), shared + chain_.stages[i].workspace,
                                    part.packed_data(), part.packed && part.packed->packs_now());
    }
    const auto strips = static_cast<int64_t>(chain_.first_rows.size());
    const int64_t items = strips * result_.type.shape[0];
    const int64_t shares = std::min<int64_t>(thread_count(), items);
    std::atomic<bool> succeeded = true;
    parallel_for(shares, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        const Thread thread{operands, results, shared, share};
        for (int64_t item = items * share / shares; item < items * (share + 1) / shares; ++item)
          if (!compute(thread, item / strips, static_cast<size_t>(item % strips)))
            succeeded = false;
      }
    });
    if (!succeeded) throw Error(ErrorKind::device, "[oneDNN] A convolution failed.");
  }

 private:
  struct Part {  // the compiled kernels and bound operands of a stage
    Bound weight;
    std::unique_ptr<Packed> packed;
    std::vector<size_t> others;  // operands of the launch that the epilogue reads
    CompiledKernel epilogue;
    int64_t row_positions = 0;  // positions of the epilogue's kernel per row

    std::byte* packed_data() const { return packed ? packed->data() : nullptr; }
  };
  struct Thread {
    void* const* operands;
    void* const* results;
    std::byte* workspace;
    int64_t share;
  };

  static size_t at(const Launch& launch, const Value& value) {
    const auto found = std::ranges::find(launch.operands, value.node(),
                                         [](const Access& access) { return access.value.node(); });
    WEFT_ASSERT(found != launch.operands.end(), "{} reads what is no operand", launch.kernel);
    return static_cast<size_t>(found - launch.operands.begin());
  }

  // Computes a strip of an image; returns whether oneDNN succeeded.
  bool compute(const Thread& thread, int64_t image, size_t strip) const {
    const Value& x = chain_.stages[0].link.conv->inputs[0];
    std::byte* area =
        thread.workspace + chain_.shared + static_cast<size_t>(thread.share) * chain_.area;
    const std::byte* from =
        x_.in(thread.operands) + (image * x.dim(2) + chain_.first_rows[strip]) * row_bytes(x);
    bool succeeded = true;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Chain::Stage& stage = chain_.stages[i];
      const Value &conv = stage.link.conv, &result = stage.link.result;
      const bool computes = !stage.link.epilogue.empty();
      const Range rows = stage.strips[strip];
      const int64_t first = image * conv.dim(2) + rows.begin;  // row, counted over all images
      const bool last = i + 1 == parts_.size();
      // An epilogue's kernel addresses whole values: these pointers are where row 0 would be.
      std::byte* all =
          last ? result_.out(thread.results) : area + stage.result - first * row_bytes(result);
      std::byte* all_sums = last && !computes ? all : area + stage.sums - first * row_bytes(conv);
      succeeded &= stage.conv.run(strip, thread.share, from, parts_[i].weight.in(thread.operands),
                                  all_sums + first * row_bytes(conv),
                                  thread.workspace + stage.workspace, parts_[i].packed_data());
      if (computes) {
        std::array<void*, most_operands> operands{all_sums};
        for (size_t k = 0; k < parts_[i].others.size(); ++k)
          operands[k + 1] = thread.operands[parts_[i].others[k]];
        void* to = all;
        const int64_t row = parts_[i].row_positions;
        parts_[i].epilogue.stages[0].fn(operands.data(), &to, area + stage.scratch, nullptr,
                                        first * row, (first + rows.size()) * row);
      }
      from = all + first * row_bytes(result);
    }
    return succeeded;
  }

  Chain chain_;
  Bound x_, result_;
  std::vector<Part> parts_;
};
}  // namespace

std::optional<KernelChoice> choose_conv_chain(std::span<const Value> body,
                                              std::span<const Value> results) {
  if (!is_conv(body.front()) || results.size() != 1) return std::nullopt;
  // Whatever its layout was, a whole operand is read channels-last.
  const auto access_of = [](const Value& value) {
    return Access{value, is_by_channel(value)
                             ? placement_of(value)
                             : Placement{-1, 0, dense_strides(value.shape(), channels_last)}};
  };
  const std::optional<Chain> chain = chain_of(body, results[0], access_of);
  if (!chain) return std::nullopt;
  KernelChoice choice{
      .kernel = chain->stages.size() > 1 ? "dnnl:conv_chain" : "dnnl:conv_mixed+",
      .operand_order = {channels_last, row_major},
      .result_order = channels_last,
      .workspace = chain->shared + static_cast<size_t>(thread_count()) * chain->area,
      .packed_bytes = chain->packed_bytes,
      .objects = chain->objects};
  std::vector<Value> known = body.front()->inputs;
  for (const Value& value : body)
    for (const Value& input : value->inputs) {
      if (is_in(body, input) || is_in(known, input)) continue;
      known.push_back(input);
      const bool weight = is_conv(value) && value->inputs[1].node() == input.node();
      choice.operand_order.push_back(weight                 ? row_major
                                     : is_by_channel(input) ? Dims()
                                                            : channels_last);
    }
  return choice;
}

std::unique_ptr<Kernel> compile_conv_chain(const Launch& launch) {
  return std::make_unique<ConvChain>(launch);
}
}  // namespace weft::cpu
