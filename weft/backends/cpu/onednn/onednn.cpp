#include "weft/backends/cpu/onednn/onednn.h"

#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "weft/backends/cpu/onednn/cut.h"
#include "weft/backends/cpu/onednn/describe.h"
#include "weft/backends/cpu/simd/elements.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/base/memory/alignment.h"
#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/rounding.h"

// These belong to the OpenMP runtime (OpenMP 4.5, section 3.2) that oneDNN was built with.
extern "C" {
void omp_set_num_threads(int count);
int omp_get_max_threads();
}

namespace weft::onednn {
namespace {
std::shared_ptr<dnnl_memory> make_memory(const dnnl_memory_desc_t& layout) {
  dnnl_memory_t made = nullptr;
  check(dnnl_memory_create(&made, &layout, host().engine.get(), DNNL_MEMORY_NONE),
        "dnnl_memory_create");
  return {made, dnnl_memory_destroy};
}

// oneDNN takes its number of threads from OpenMP, for the thread that calls it. With one thread it
// opens no parallel region, so that no second team competes with ours.
class SingleThreaded {
 public:
  SingleThreaded() { omp_set_num_threads(1); }
  ~SingleThreaded() { omp_set_num_threads(before_); }
  SingleThreaded(const SingleThreaded&) = delete;
  SingleThreaded& operator=(const SingleThreaded&) = delete;

 private:
  int before_ = omp_get_max_threads();  // a caller may have OpenMP regions of its own
};

// Base is the memory to which an offset is relative. a, b and the result are the caller's.
enum Base : uint8_t { base_a, base_b, base_result, base_workspace, base_packed, bases };
struct Place {
  Base base = base_workspace;
  size_t offset = 0;
};
using Addresses = std::array<std::byte*, bases>;

// Operand is memory as oneDNN sees it.
struct Operand {
  dnnl_memory_desc_t layout;
  Place at;
};

// Call is a primitive and the memories that it reads and writes. Calls of one thread may share the
// memories, as each of oneDNN's objects takes a kilobyte: run() sets their addresses before each
// execution.
struct Call {
  std::shared_ptr<dnnl_primitive> primitive;
  std::vector<dnnl_exec_arg_t> arguments;
  std::vector<std::shared_ptr<dnnl_memory>> memories;
  std::vector<Place> places;  // one per memory

  dnnl_status_t run(const Addresses& addresses) const {
    for (size_t i = 0; i < memories.size(); ++i) {
      // Setting an address zeroes the padding of the layout, so it is set only if it changes.
      void* before = nullptr;
      std::byte* at = addresses[places[i].base] + places[i].offset;
      dnnl_status_t status = dnnl_memory_get_data_handle(memories[i].get(), &before);
      if (status == dnnl_success && at != before)
        status = dnnl_memory_set_data_handle(memories[i].get(), at);
      if (status != dnnl_success) return status;
    }
    return dnnl_primitive_execute(primitive.get(), host().stream.get(),
                                  static_cast<int>(arguments.size()), arguments.data());
  }
};
// Stage holds the calls of each thread, in order.
using Stage = std::vector<std::vector<Call>>;

int objects_of(const Stage& stage) {
  size_t objects = 0;
  for (const std::vector<Call>& calls : stage) objects += calls.size();
  return static_cast<int>(objects);
}

void run_stage(const Stage& stage, const Addresses& addresses) {
  std::atomic<dnnl_status_t> failure = dnnl_success;
  parallel_for(static_cast<int64_t>(stage.size()), [&](int64_t begin, int64_t end) {
    const SingleThreaded single;
    for (int64_t share = begin; share < end; ++share)
      for (const Call& call : stage[static_cast<size_t>(share)])
        if (dnnl_status_t status = call.run(addresses); status != dnnl_success) failure = status;
  });
  check(failure, "dnnl_primitive_execute");
}

// Partials are the float32 sums in the workspace that each piece of a weight gradient adds to the
// result.
struct Partials {
  DType result = DType::f32;
  int64_t elements = 0;  // elements of the result
  std::vector<size_t> offsets;

  template <class Element>
  void add(const std::byte* workspace, Element* result_at) const {
    constexpr int64_t block = 1 << 12;  // elements, which stay in L1
    parallel_for(ceil_div(elements, block), [&](int64_t begin, int64_t end) {
      std::array<float, block> sums;
      for (int64_t from = begin * block; from < std::min(end * block, elements); from += block) {
        const int64_t count = std::min(block, elements - from);
        std::fill_n(sums.begin(), count, 0.0f);
        for (size_t offset : offsets) {
          const float* partial = reinterpret_cast<const float*>(workspace + offset) + from;
          for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i)] += partial[i];
        }
        for (int64_t i = 0; i < count; ++i)
          result_at[from + i] = cpu::from_lane<Element>(sums[static_cast<size_t>(i)]);
      }
    });
  }
};
}  // namespace

struct Primitive::Parts {
  std::string implementation;
  size_t workspace = 0, packed_bytes = 0;
  Stage packing;              // converts b to the packed layout
  std::vector<Stage> stages;  // one after the other
  Partials partials;          // added at the end
};

namespace {
// Builder creates the calls that solve a problem, piece by piece.
class Builder {
 public:
  explicit Builder(std::vector<Piece> pieces)
      : pieces_(std::move(pieces)), names_(argument_names(pieces_.front().problem.operation)) {}

  // Makes the calls of each piece `copies` times, one copy for each thread that may run the piece
  // at the same time. Returns false if oneDNN has no implementation or, with `as_given`, an
  // implementation that wants other layouts of activations.
  bool build(int copies = 1, bool as_given = false) {
    const Problem& first = pieces_.front().problem;
    const bool adds = first.operation == Operation::conv_weight_gradient && pieces_.size() > 1;
    if (adds) partials = {first.result.dtype, element_count(first.result.shape), {}};
    Stage products;
    for (Piece& piece : pieces_) {
      if (adds) piece.problem.result.dtype = DType::f32;
      Description description = describe(piece.problem);
      if (description == nullptr) return false;
      if (implementation.empty()) implementation = implementation_of(description.get());
      if (as_given && !takes(description.get(), piece.problem)) return false;
      for (int copy = 0; copy < copies; ++copy)
        products.push_back(calls_of(piece, description.get(), adds));
    }
    if (pieces_.front().problem.packs_b && packed_bytes > 0) packing = std::move(shared_b_);
    for (Stage* conversions : {&shared_a_, &shared_b_})
      if (!conversions->empty()) stages.push_back(std::move(*conversions));
    stages.push_back(std::move(products));
    return true;
  }

  std::string implementation;
  size_t workspace = 0, packed_bytes = 0;
  Stage packing;
  std::vector<Stage> stages;
  Partials partials;

 private:
  // Returns whether a convolution reads and writes activations in the layouts of the problem.
  bool takes(const_dnnl_primitive_desc_t description, const Problem& problem) const {
    const auto is_chosen = [&](const Tensor& tensor, int name) {
      const dnnl_memory_desc_t given = strided(tensor), chosen = layout_of(description, name);
      return dnnl_memory_desc_equal(&chosen, &given) != 0;
    };
    return is_chosen(problem.a, names_[base_a]) && is_chosen(problem.result, names_[base_result]);
  }
  size_t room(size_t bytes) {
    const size_t at = workspace;
    workspace += round_up(bytes, buffer_alignment);
    return at;
  }
  Operand in_workspace(const dnnl_memory_desc_t& layout) {
    return {layout, {base_workspace, room(dnnl_memory_desc_get_size(&layout))}};
  }

  Operand in_packed(const dnnl_memory_desc_t& layout) {
    const size_t at = packed_bytes;
    packed_bytes += round_up(dnnl_memory_desc_get_size(&layout), buffer_alignment);
    return {layout, {base_packed, at}};
  }

  std::vector<Call> calls_of(const Piece& piece, const_dnnl_primitive_desc_t description,
                             bool adds) {
    const std::array<const Tensor*, 3> tensors{&piece.problem.a, &piece.problem.b,
                                               &piece.problem.result};
    std::vector<Call> before, after, calls;
    std::array<Operand, 3> used;
    for (size_t i = 0; i < 3; ++i) {
      const auto begin = static_cast<size_t>(piece.begin[i]) * size_of(tensors[i]->dtype);
      Operand given{strided(*tensors[i]), {static_cast<Base>(i), begin}};
      if (i == base_result && adds) {
        given = in_workspace(given.layout);
        partials.offsets.push_back(given.at.offset);
      }
      const dnnl_memory_desc_t chosen = layout_of(description, names_[i]);
      if (dnnl_memory_desc_equal(&chosen, &given.layout)) {
        used[i] = given;
      } else if (i == base_result) {
        used[i] = in_workspace(chosen);
        after.push_back(convert(used[i], given));
      } else if (is_shared(static_cast<Base>(i))) {
        used[i] = shared(given, chosen, i == base_b);
      } else if (i == base_b && piece.problem.packs_b) {
        used[i] = in_packed(chosen);
        convert_whole(given, used[i], shared_b_.emplace_back());
      } else {
        used[i] = in_workspace(chosen);
        convert_whole(given, used[i], before);
      }
    }
    calls = std::move(before);
    const dnnl_memory_desc_t scratch = layout_of(description, DNNL_ARG_SCRATCHPAD);
    const Operand scratchpad = in_workspace(scratch);
    const std::shared_ptr<dnnl_primitive> primitive = executable(description);
    Call next = call(primitive, {{names_[0], used[0]},
                                 {names_[1], used[1]},
                                 {names_[2], used[2]},
                                 {DNNL_ARG_SCRATCHPAD, scratchpad}});
    for (int64_t image = 0; image < piece.images; ++image) {
      calls.push_back(next);
      for (size_t i = 0; i < 3; ++i)
        next.places[i].offset +=
            static_cast<size_t>(piece.per_image[i]) * size_of(tensors[i]->dtype);
    }
    for (Call& conversion : after) calls.push_back(std::move(conversion));
    return calls;
  }

  static std::shared_ptr<dnnl_primitive> executable(const_dnnl_primitive_desc_t description) {
    dnnl_primitive_t made = nullptr;
    check(dnnl_primitive_create(&made, description), "dnnl_primitive_create");
    return {made, dnnl_primitive_destroy};
  }

  static Call call(std::shared_ptr<dnnl_primitive> primitive,
                   std::initializer_list<std::pair<int, Operand>> operands) {
    Call made{.primitive = std::move(primitive)};
    for (const auto& [name, operand] : operands) {
      if (dnnl_memory_desc_get_size(&operand.layout) == 0) continue;  // no scratchpad
      made.memories.push_back(make_memory(operand.layout));
      made.places.push_back(operand.at);
      made.arguments.push_back({name, made.memories.back().get()});
    }
    return made;
  }

  // Returns null where oneDNN does not convert from this layout to that.
  static Description reorder(const dnnl_memory_desc_t& from, const dnnl_memory_desc_t& to) {
    dnnl_primitive_desc_t made = nullptr;
    const dnnl_status_t status = dnnl_reorder_primitive_desc_create(
        &made, &from, host().engine.get(), &to, host().engine.get(), host().attributes.get());
    if (status != dnnl_unimplemented) check(status, "dnnl_reorder_primitive_desc_create");
    return Description(made);
  }
  Call convert(const Operand& from, const Operand& to) {
    const Description description = reorder(from.layout, to.layout);
    WEFT_ASSERT(description != nullptr, "oneDNN has no conversion between two of its layouts");
    dnnl_primitive_desc_t made = description.get();
    return call(executable(made),
                {{DNNL_ARG_FROM, from},
                 {DNNL_ARG_TO, to},
                 {DNNL_ARG_SCRATCHPAD, in_workspace(layout_of(made, DNNL_ARG_SCRATCHPAD))}});
  }

  // A part of the columns of a row-major matrix becomes dense first, where oneDNN needs that.
  void convert_whole(const Operand& from, const Operand& to, std::vector<Call>& calls) {
    if (reorder(from.layout, to.layout) != nullptr) return calls.push_back(convert(from, to));
    dnnl_memory_desc_t plain;
    const auto rank = static_cast<size_t>(from.layout.ndims);
    const Dims strides = row_major_strides(Shape(std::span<const int64_t>(from.layout.dims, rank)));
    check(dnnl_memory_desc_init_by_strides(&plain, from.layout.ndims, from.layout.dims,
                                           from.layout.data_type, strides.begin()),
          "dnnl_memory_desc_init_by_strides");
    const Operand between = in_workspace(plain);
    calls.push_back(convert(from, between));
    calls.push_back(convert(between, to));
  }

  // Returns whether every piece has the whole of this operand.
  bool is_shared(Base operand) const {
    auto part = [&](const Piece& piece) -> const Tensor& {
      return operand == base_a ? piece.problem.a : piece.problem.b;
    };
    const Tensor& first = part(pieces_.front());
    return std::ranges::all_of(pieces_, [&](const Piece& piece) {
      return piece.begin[operand] == pieces_.front().begin[operand] &&
             part(piece).shape == first.shape && piece.per_image[operand] == 0;
    });
  }

  // Converts an operand that all pieces read, once and by the whole team, before the pieces begin.
  // Pieces of different sizes may need different layouts; each layout is converted once.
  Operand shared(const Operand& given, const dnnl_memory_desc_t& chosen, bool is_b) {
    for (const Operand& known : converted_)
      if (dnnl_memory_desc_equal(&known.layout, &chosen)) return known;
    const bool packs = is_b && pieces_.front().problem.packs_b;
    const Operand to = packs ? in_packed(chosen) : in_workspace(chosen);
    converted_.push_back(to);
    Stage& stage = is_b ? shared_b_ : shared_a_;
    const int64_t extent = given.layout.dims[0];
    const int64_t units = ceil_div(extent, shared_unit);
    const int64_t parts = std::min<int64_t>(units, thread_count());
    stage.resize(std::max(stage.size(), static_cast<size_t>(parts)));
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = units * part / parts * shared_unit;
      const int64_t end = std::min(extent, units * (part + 1) / parts * shared_unit);
      const auto from_part = slice(given, begin, end), to_part = slice(to, begin, end);
      if (!from_part || !to_part) {
        convert_whole(given, to, stage.front());
        break;
      }
      stage[static_cast<size_t>(part)].push_back(convert(*from_part, *to_part));
    }
    return to;
  }
  // Returns a slice of the outermost axis, or nullopt where it would split a block of the layout,
  // or the layout ends with sums over the whole (of i8 weights, for sources with a sign).
  static std::optional<Operand> slice(const Operand& whole, int64_t begin, int64_t end) {
    if (whole.layout.extra.flags != dnnl_memory_extra_flag_none) return std::nullopt;
    dnnl_dims_t dims, offsets{begin};
    std::copy_n(whole.layout.dims, whole.layout.ndims, dims);
    dims[0] = end - begin;
    Operand part{.layout = {}, .at = whole.at};
    if (dnnl_memory_desc_init_submemory(&part.layout, &whole.layout, dims, offsets) != dnnl_success)
      return std::nullopt;
    part.at.offset += static_cast<size_t>(std::exchange(part.layout.offset0, 0)) *
                      dnnl_data_type_size(whole.layout.data_type);
    return part;
  }

  static constexpr int64_t shared_unit = 64;  // no layout of oneDNN has longer blocks
  std::vector<Piece> pieces_;
  std::array<int, 3> names_;
  Stage shared_a_, shared_b_;  // conversions of operands that all pieces read
  std::vector<Operand> converted_;
};
}  // namespace

Primitive::Primitive(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Primitive::Primitive(Primitive&&) noexcept = default;
Primitive& Primitive::operator=(Primitive&&) noexcept = default;
Primitive::~Primitive() = default;

std::optional<Primitive> Primitive::make(const Problem& problem) {
  const SingleThreaded single;
  std::vector<Piece> pieces = cut(problem, thread_count());
  if (pieces.empty()) return std::nullopt;
  Builder builder(std::move(pieces));
  if (!builder.build()) return std::nullopt;
  return Primitive(std::make_unique<Parts>(
      Parts{std::move(builder.implementation), builder.workspace, builder.packed_bytes,
            std::move(builder.packing), std::move(builder.stages), std::move(builder.partials)}));
}

const std::string& Primitive::implementation() const { return parts_->implementation; }
size_t Primitive::workspace() const { return parts_->workspace; }
size_t Primitive::packed_bytes() const { return parts_->packed_bytes; }
int Primitive::objects() const {
  int objects = objects_of(parts_->packing);
  for (const Stage& stage : parts_->stages) objects += objects_of(stage);
  return objects;
}

namespace {
std::byte* bytes(const void* at) { return static_cast<std::byte*>(const_cast<void*>(at)); }
}  // namespace

void Primitive::run(const void* a, const void* b, void* result, void* workspace, void* packed,
                    bool packs) const {
  const Addresses addresses{bytes(a), bytes(b), bytes(result), bytes(workspace), bytes(packed)};
  if (packs) run_stage(parts_->packing, addresses);
  for (const Stage& stage : parts_->stages) run_stage(stage, addresses);
  const Partials& partials = parts_->partials;
  if (partials.offsets.empty()) return;
  cpu::with_float(partials.result, [&](auto element, auto) {
    partials.add(bytes(workspace), static_cast<decltype(element)*>(result));
  });
}

struct Strips::Parts {
  size_t workspace = 0, packed_bytes = 0;
  Stage packing;                   // converts b to the packed layout
  std::vector<Stage> conversions;  // of b, run before the strips
  Stage calls;                     // [kind of strip][thread]
  std::vector<size_t> kinds;       // per strip: the first entry in `calls` of its kind
};

Strips::Strips(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Strips::Strips(Strips&&) noexcept = default;
Strips& Strips::operator=(Strips&&) noexcept = default;
Strips::~Strips() = default;

std::optional<Strips> Strips::make(const Problem& problem, std::span<const Range> strips) {
  const SingleThreaded single;
  const int threads = thread_count();
  auto parts = std::make_unique<Parts>();
  std::vector<Piece> pieces;  // strips of the same extents and padding share a piece
  const auto alike = [](const Problem& a, const Problem& b) {
    return a.a.shape == b.a.shape && a.result.shape == b.result.shape && a.padding == b.padding &&
           a.padding_after == b.padding_after;
  };
  for (const Range& strip : strips) {
    std::optional<Piece> piece = cut_rows(problem, strip);
    if (!piece) return std::nullopt;
    const auto known = std::ranges::find_if(
        pieces, [&](const Piece& other) { return alike(other.problem, piece->problem); });
    parts->kinds.push_back(static_cast<size_t>(known - pieces.begin()) *
                           static_cast<size_t>(threads));
    if (known == pieces.end()) pieces.push_back({piece->problem});
  }
  Builder builder(std::move(pieces));
  if (!builder.build(threads, true)) return std::nullopt;
  parts->workspace = builder.workspace, parts->packed_bytes = builder.packed_bytes;
  parts->packing = std::move(builder.packing);
  parts->calls = std::move(builder.stages.back());
  builder.stages.pop_back();
  parts->conversions = std::move(builder.stages);
  return Strips(std::move(parts));
}

size_t Strips::workspace() const { return parts_->workspace; }
size_t Strips::packed_bytes() const { return parts_->packed_bytes; }
int Strips::objects() const {
  int objects = objects_of(parts_->packing) + objects_of(parts_->calls);
  for (const Stage& stage : parts_->conversions) objects += objects_of(stage);
  return objects;
}

void Strips::prepare(const void* b, void* workspace, void* packed, bool packs) const {
  const Addresses addresses{nullptr, bytes(b), nullptr, bytes(workspace), bytes(packed)};
  if (packs) run_stage(parts_->packing, addresses);
  for (const Stage& stage : parts_->conversions) run_stage(stage, addresses);
}

bool Strips::run(size_t strip, int64_t thread, const void* a, const void* b, void* result,
                 void* workspace, void* packed) const {
  const SingleThreaded single;
  const Addresses addresses{bytes(a), bytes(b), bytes(result), bytes(workspace), bytes(packed)};
  bool succeeded = true;
  for (const Call& call : parts_->calls[parts_->kinds[strip] + static_cast<size_t>(thread)])
    succeeded &= call.run(addresses) == dnnl_success;
  return succeeded;
}

bool supports(DType dtype) {
  if (dtype == DType::f32) return true;
  if (dtype != DType::bf16) return false;
  Problem probe;
  probe.a = probe.b = probe.result = {DType::bf16, {16, 16}, {16, 1}};
  static const bool supported = describe(probe) != nullptr;
  return supported;
}

bool multiplies_bytes() {
  Problem probe;
  probe.a = {DType::u8, {16, 64}, {64, 1}};
  probe.b = {DType::i8, {64, 64}, {64, 1}, true};
  probe.result = {DType::i32, {16, 64}, {64, 1}};
  static const bool exact = describe(probe) != nullptr;  // without these sets it has only gemm
  return exact;
}

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return fmt::format("{}.{}.{}", v->major, v->minor, v->patch);
}
}  // namespace weft::onednn
