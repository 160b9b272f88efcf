// Modules form a named tree of parameters and buffers, from which users build models. They are
// neither copied nor moved: a child names its parent when it is constructed,
//
//   struct Mlp : nn::Module {
//     nn::Linear hidden{*this, "hidden", 784, 256};
//     ...
//   };
//
// and from then on knows its full path ("blocks.3.attn.qkv"), which is also the prefix of the names
// of its variables, of errors in it, and of its rows in profiles and memory tables.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "weft/base/numbers/random_streams.h"
#include "weft/nn/init.h"
#include "weft/tensor/tensor.h"

namespace weft {
struct BlockFormat;
}

namespace weft::nn {

class Module;

// BuildOptions says how modules make their variables; BuildScope applies it on its thread.
struct BuildOptions {
  DType dtype = DType::f32;  // type of parameters and floating point buffers
  bool initialize = true;    // false: zeros, for planning and for weights from a file
  // The path of the root module. It tells the paths of two models apart; "": the root of the
  // enclosing scope.
  std::string root = {};
  // Returns the block format of a layer's weight (weft/base/numbers/block_format.h), which is then
  // frozen; "": plain numbers of `dtype`, as without a function. `path` is the layer's path, with
  // the weight's name if the layer has several weights.
  std::function<std::string_view(const Module& layer, const std::string& path)> blocks = {};
};
class BuildScope {
 public:
  explicit BuildScope(const BuildOptions& options);
  ~BuildScope();
  BuildScope(const BuildScope&) = delete;
  BuildScope& operator=(const BuildScope&) = delete;

 private:
  BuildOptions saved_;
};

DType parameter_dtype();        // type for modules that are constructed now
bool initializes_parameters();  // whether new modules draw initial values
// Returns the block format of the layer's weight, or of its weight `name`. Null: plain numbers,
// also if rows of `row` numbers are not whole blocks.
const BlockFormat* weight_blocks(const Module& layer, int64_t row, const std::string& name = {});

struct NamedVariable {
  std::string name;  // relative to the module that was asked: "hidden.weight"
  Variable variable;
};

class Module {
 public:
  Module();  // a root: a whole model
  // An empty name adds nothing to the path. Throws if the parent has a child of this name.
  Module(Module& parent, std::string name);
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }  // BuildOptions::root at the root
  const std::vector<Module*>& children() const { return children_; }

  // The lists have PyTorch's order: a module's own variables, in order of registration, then the
  // variables of its children. A variable that several modules share is listed once, under its
  // first name.
  std::vector<NamedVariable> named_parameters() const;
  std::vector<NamedVariable> named_buffers() const;  // running statistics
  std::vector<NamedVariable> state() const;          // all variables, as in a state_dict()
  std::vector<Variable> parameters() const;          // parameters that are not frozen
  std::vector<Variable> buffers() const;
  std::vector<Variable> variables() const;  // the variables of state()
  int64_t parameter_count() const;          // elements of all parameters

  // Freezes parameters whose names match: they get neither gradients nor optimizer state
  // (requires_grad_(False)). '*' stands for any characters: freeze("encoder.*"). An optimizer that
  // exists already keeps its parameters. Throws Error(usage) if no name matches.
  void freeze(std::string_view pattern = "*") const { set_frozen(pattern, true); }
  void unfreeze(std::string_view pattern = "*") const { set_frozen(pattern, false); }

 protected:
  // Make new variables of this module. Initial values follow current_seed() and the variable's
  // path: two models made under one seed start equal, and a further module does not change the
  // values of other modules.
  Variable parameter(const std::string& name, const Shape& shape, const Init& init);
  Variable buffer(const std::string& name, const Shape& shape, double value);
  // Makes a frozen parameter of any type, filled with zeros.
  Variable stored(const std::string& name, const Type& type);
  // Registers a variable of another module under a name of this module (a head tied to the
  // embedding).
  void share(const std::string& name, const Variable& variable);

 private:
  Variable add(const std::string& name, const Type& type, const Init& init, Category category);
  struct Collected;
  void check_new(const std::string& name);
  void set_frozen(std::string_view pattern, bool frozen) const;
  void collect(const std::string& prefix, bool parameters, Collected& into) const;

  std::string name_, path_;
  Module* parent_ = nullptr;
  Module* root_ = this;
  std::vector<Module*> children_;
  std::vector<NamedVariable> variables_;
  std::unordered_set<std::string> names_;  // names of children and variables
  RandomStreams streams_;  // streams of initial values in the whole tree, at the root
};

}  // namespace weft::nn
