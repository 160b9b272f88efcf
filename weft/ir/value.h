// Declares tensors, and the nodes of the graph that compute them.
//
// A Tensor is a handle to one immutable result: "this op, on these inputs, with these attributes".
// The compiler calls it a Value, as compilers call the results in a graph. Building one computes
// nothing. Every node yields exactly one value; shapes are static; there is
// no control flow. A handle is one pointer, cheap to copy; nodes live as long as a handle reaches
// them.
//
// Operands of one elementwise node have equal shapes and dtypes: broadcasts and casts are nodes of
// their own. Reductions keep their axes with extent 1. These two rules give every fused kernel one
// iteration space, in which each value either spans an axis or has extent 1 there.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "weft/base/dtype.h"
#include "weft/base/error.h"
#include "weft/base/shape.h"

namespace weft {

struct Arg;
struct Buffer;
struct Index;
struct Node;
struct OpDef;
struct VariableState;
class RowIterator;
class Storage;
class Tensor;
using Value = Tensor;

struct Type {
  DType dtype = DType::f32;
  Shape shape;

  int64_t elements() const { return element_count(shape); }
  size_t bytes() const;
  friend bool operator==(const Type&, const Type&) = default;
};
std::string to_string(const Type& type);  // "f32[2, 3]"

// Attrs are the named constants of a node ("axes", "stride"), few, in the order written.
using Attr = std::variant<int64_t, double, std::string, Dims>;
class Attrs {
 public:
  struct Entry {
    std::string_view key;  // a string literal
    Attr value;
  };
  Attrs() = default;
  Attrs(std::initializer_list<Entry> entries);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // accepts integers, too
  const std::string& text(std::string_view key) const;
  const Dims& dims(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  Attrs with(Entry more) const;

 private:
  const Attr* find(std::string_view key) const;
  const Attr& get(std::string_view key) const;
  std::vector<Entry> entries_;
};
std::string to_string(const Attrs& attrs);  // ", stride=[1, 1], tf32=1", in the order of entries

// Axes are the axes that a method works on: x.sum(1), x.sum({0, -1}). None means all.
struct Axes : Dims {
  using Dims::Dims;
  Axes(int64_t axis) : Dims{axis} {}
};

// TensorMethods are those functions of weft/ops/ops.h that programs chain most, for a Self that
// converts to Tensor: Tensor itself (weft/ops/methods.cpp) and Variable (weft/tensor/state.cpp).
template <class Self>
class TensorMethods {
 public:
  using Where = std::source_location;
  Tensor reshape(const Shape& shape, Where where = Where::current()) const;
  Tensor permute(const Dims& order, Where where = Where::current()) const;
  Tensor transpose(int a = -2, int b = -1, Where where = Where::current()) const;
  Tensor flatten(int first = 0, int last = -1, Where where = Where::current()) const;
  Tensor squeeze(int axis, Where where = Where::current()) const;
  Tensor unsqueeze(int axis, Where where = Where::current()) const;
  Tensor broadcast_to(const Shape& shape, Where where = Where::current()) const;
  Tensor cast(DType dtype, Where where = Where::current()) const;
  Tensor sum(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor mean(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor prod(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor max(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor min(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor any(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor all(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor argmax(std::optional<int> axis = {}, bool keepdim = false,
                Where where = Where::current()) const;
  Tensor argmin(std::optional<int> axis = {}, bool keepdim = false,
                Where where = Where::current()) const;
  Tensor variance(const Axes& axes = {}, bool keepdim = false,
                  Where where = Where::current()) const;
  Tensor stddev(const Axes& axes = {}, bool keepdim = false, Where where = Where::current()) const;
  Tensor norm(Where where = Where::current()) const;  // the norm over all elements
  Tensor sort(int axis = -1, bool descending = false, Where where = Where::current()) const;
  Tensor cumsum(int axis, Where where = Where::current()) const;

 private:
  friend Self;
  TensorMethods() = default;
  Arg self(const Where& where) const;  // `where`: the place of the call
};

class Tensor : public TensorMethods<Tensor> {
 public:
  Tensor() = default;
  // The destructor is not inline, because programs destroy tensors at every turn: each place would
  // compile the release of a reference count.
  ~Tensor();
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;
  void operator=(const Tensor&) && = delete;  // x[0] = y would change nothing: see update_at
  void operator=(double) && = delete;         // nor would x[0] = 1: see update_at
  explicit Tensor(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  // Returns whether the handle refers to a node. There is no conversion to bool, since
  // `if (x < 1.0)` would test just that: write x.item() < 1.0, or any() or all() for many elements.
  bool defined() const { return node_ != nullptr; }
  Node* node() const { return node_.get(); }
  Node* operator->() const { return node_.get(); }
  const std::shared_ptr<Node>& shared() const { return node_; }

  const Type& type() const;
  const Shape& shape() const;
  DType dtype() const;
  int rank() const;
  int64_t dim(int axis) const;  // extent; negative axes count from the end
  int64_t elements() const;

  // The next four functions run pending work.
  const Tensor& eval() const;
  // Returns the element of a value that has only one.
  double item(std::source_location where = std::source_location::current()) const;
  // Returns the elements in row-major order.
  std::vector<double> to_doubles(
      std::source_location where = std::source_location::current()) const;
  template <class T>  // the value's dtype
  std::vector<T> to_vector(std::source_location where = std::source_location::current()) const;

  // Indexes as x[0] or x[{0, range(2, 5)}]: see weft/ops/index.h.
  Tensor operator[](const Index& index) const;
  Tensor operator[](std::initializer_list<Index> indices) const;
  // Iterate over the rows: for (Tensor row : x) goes through x[0], x[1], ... A scalar has no rows
  // and throws Error(usage).
  RowIterator begin(std::source_location where = std::source_location::current()) const;
  RowIterator end() const;

 private:
  std::shared_ptr<Node> node_;
};

class RowIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Tensor;
  using difference_type = std::ptrdiff_t;

  RowIterator(Tensor of, int64_t at, const UserLocation& where)
      : of_(std::move(of)), at_(at), where_(where) {}
  Tensor operator*() const;
  RowIterator& operator++() {
    ++at_;
    return *this;
  }
  friend bool operator==(const RowIterator& a, const RowIterator& b) { return a.at_ == b.at_; }

 private:
  Tensor of_;
  int64_t at_;
  UserLocation where_;
};

// An Origin says where a node was written: the user's line and the module ("blocks.3.attn.qkv").
struct Origin {
  UserLocation where;
  const std::string* module = nullptr;  // interned; null outside modules
  bool backward = false;                // made by a gradient rule
};

// A GradientRule computes the gradients of a value's inputs, or empty ones, from the value's own.
using GradientRule = std::function<std::vector<Tensor>(const Tensor& gradient)>;

// Annotations are notes of passes for later passes; they do not change a node's meaning.
struct Annotations {
  bool tf32 = false;        // a product whose float32 operands may be rounded to TF32
  bool compressed = false;  // a cast of activation compression
  bool fixed = false;       // a variable that the step does not assign
  const std::string* by_kernel = nullptr;  // interned; a tile of rows: the kernel of the whole
  // `composite` is the composite that this value equals, on operands in the same graph, where its
  // expression is one that a library kernel may compute (KernelChooser::is_epilogue). Passes that
  // rewrite a graph carry it over (carry_composite), because after simplify the expression can no
  // longer be recognized.
  Value composite = {};

  // Comparison leaves out `composite`, which follows from the inputs.
  friend bool operator==(const Annotations& a, const Annotations& b) {
    return a.tf32 == b.tf32 && a.compressed == b.compressed && a.fixed == b.fixed &&
           a.by_kernel == b.by_kernel;
  }
};
std::string to_string(const Annotations& annotations);  // ", tf32=1, composite=gelu_tanh"

struct Node {
  // The fields that a graph walk reads come first: with the reference count they fill a cache line.
  const OpDef* op = nullptr;
  uint64_t id = 0;  // grows with creation, so inputs always have smaller ids
  std::vector<Value> inputs;
  Attrs attrs;
  Annotations annotations;
  Type type;
  Origin origin;
  // A leaf "data" has its elements in `storage`, row-major, wherever they are; null before they are
  // computed.
  std::shared_ptr<Storage> storage;
  // A "data" leaf that eval computed keeps it: `expression` is the node that computed it, which
  // gradients go through; `cut` says that it was dropped, so that gradients end with an Error.
  Value expression;
  bool cut = false;
  std::shared_ptr<VariableState> variable;            // leaf "variable"
  std::shared_ptr<const GradientRule> gradient_rule;  // custom_gradient: the user's rule

  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node();  // releases long chains without recursion

  bool has_data() const;    // whether the elements are computed and on the host
  std::byte* data() const;  // the host's elements, which has_data()
  bool is(std::string_view op_name) const;
  const std::string& module() const;  // "" outside modules
};

// An Arg is an argument of an operation: a value or weakly typed scalar, and the line of the call.
struct Arg {
  // Accepts values and what converts to one (variables).
  template <std::convertible_to<Tensor> T>
  Arg(const T& value, std::source_location where = std::source_location::current())
      : value(value), where(where) {}
  Arg(Tensor value, const UserLocation& where) : value(std::move(value)), where(where) {}
  Arg(double scalar, std::source_location where = std::source_location::current())
      : Arg(scalar, UserLocation(where)) {}
  Arg(double scalar, const UserLocation& where) : scalar(scalar), is_scalar(true), where(where) {}
  template <std::integral T>
  Arg(T scalar, std::source_location where = std::source_location::current())
      : Arg(static_cast<int64_t>(scalar), UserLocation(where)) {}
  Arg(int64_t scalar, const UserLocation& where)
      : scalar(static_cast<double>(scalar)), is_scalar(true), integral(true), where(where) {}

  Tensor value;  // empty for a scalar
  double scalar = 0;
  bool is_scalar = false;
  bool integral = false;
  UserLocation where;
};

// Returns a copy that lives as long as the process; equal texts share one.
const std::string& interned(const std::string& text);

// While an OriginScope lives, new nodes carry its module path and, inside weft's own modules, the
// line of the user's call instead of weft's. Scopes nest.
class OriginScope {
 public:
  explicit OriginScope(const std::string& module);  // absolute path
  OriginScope(const std::string& module, UserLocation where);
  ~OriginScope();
  OriginScope(const OriginScope&) = delete;
  OriginScope& operator=(const OriginScope&) = delete;

 private:
  Origin saved_;
};
Origin current_origin();
namespace detail {
void set_origin(const Origin& origin);
// Sets the function that computes `data` for values when they are read; the layer that compiles
// sets it when the program is loaded.
using Evaluate = void (*)(std::span<const Value> values);
void set_evaluate(Evaluate evaluate);
}  // namespace detail
// While a CallSite lives, errors and nodes name the user's line `where`. Inside another CallSite it
// does nothing, so that a composite's nodes carry the line of the composite.
class CallSite {
 public:
  // `callee` is the operation; only its name is kept.
  explicit CallSite(const UserLocation& where,
                    std::source_location callee = std::source_location::current());
  CallSite(const UserLocation& where, std::string_view op);
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

 private:
  bool outermost_;
  Origin saved_;
};
// While an OriginOverride lives, new nodes take their origin from `origin` (used by gradient rules
// and passes).
class OriginOverride {
 public:
  explicit OriginOverride(const Origin& origin);
  ~OriginOverride();
  OriginOverride(const OriginOverride&) = delete;
  OriginOverride& operator=(const OriginOverride&) = delete;

 private:
  Origin saved_;
};

}  // namespace weft
