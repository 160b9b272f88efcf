#include "weft/nn/module.h"

#include <algorithm>

#include "weft/base/numbers/block_format.h"
#include "weft/base/text/pattern.h"

namespace weft::nn {
namespace {
thread_local BuildOptions build;

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() || name.empty() ? prefix + name : prefix + "." + name;
}
std::string described(const std::string& path) {
  return path.empty() ? "the model" : '"' + path + '"';
}

std::vector<Variable> variables_of(const std::vector<NamedVariable>& named) {
  std::vector<Variable> variables;
  variables.reserve(named.size());
  for (const NamedVariable& entry : named) variables.push_back(entry.variable);
  return variables;
}
}  // namespace

BuildScope::BuildScope(const BuildOptions& options) : saved_(build) {
  WEFT_CHECK(is_float(options.dtype) && !info(options.dtype).stored_only,
             "[module] parameters are floating point. Got {}.", weft::name(options.dtype));
  build = options;
  if (build.root.empty()) build.root = saved_.root;
}
BuildScope::~BuildScope() { build = saved_; }
DType parameter_dtype() { return build.dtype; }
bool initializes_parameters() { return build.initialize; }
const BlockFormat* weight_blocks(const Module& layer, int64_t row, const std::string& name) {
  std::string path = join_path(layer.path(), name);
  if (!build.root.empty()) path.erase(0, build.root.size() + 1);  // names in files have no root
  const std::string_view wanted = build.blocks ? build.blocks(layer, path) : std::string_view();
  if (wanted.empty()) return nullptr;
  const BlockFormat& format = block_format(wanted);
  return row % format.numbers == 0 ? &format : nullptr;
}

Module::Module() : path_(build.root) {}

Module::Module(Module& parent, std::string name)
    : name_(std::move(name)),
      path_(join_path(parent.path_, name_)),
      parent_(&parent),
      root_(parent.root_) {
  parent.check_new(name_);
  parent.children_.push_back(this);
}

Module::~Module() {
  if (parent_ == nullptr) return;
  parent_->names_.erase(name_);
  std::vector<Module*>& siblings = parent_->children_;  // the newest child usually goes first
  auto self = std::find(siblings.rbegin(), siblings.rend(), this);
  if (self != siblings.rend()) siblings.erase(std::next(self).base());
}

void Module::check_new(const std::string& name) {
  WEFT_CHECK(names_.insert(name).second, "[module] {} has two members named \"{}\".",
             described(path_), name);
}

Variable Module::add(const std::string& name, const Type& type, const Init& init,
                     Category category) {
  check_new(name);
  for (int64_t extent : type.shape)
    WEFT_CHECK(extent > 0, "[module] \"{}\" needs positive extents. Got {}.",
               join_path(path_, name), to_string(type.shape));
  Variable variable(join_path(path_, name), type, category);
  if (build.initialize && is_float(type.dtype))
    initialize(variable, init, current_seed(), root_->streams_.next(variable.name()));
  variables_.push_back({name, variable});
  return variable;
}

Variable Module::parameter(const std::string& name, const Shape& shape, const Init& init) {
  return add(name, {build.dtype, shape}, init, Category::parameter);
}
// Running statistics of 16-bit activations are sums, so they are float32.
Variable Module::buffer(const std::string& name, const Shape& shape, double value) {
  return add(name, {accumulator(build.dtype), shape}, Init::constant(value),
             Category::buffer_state);
}
Variable Module::stored(const std::string& name, const Type& type) {
  const Variable variable = add(name, type, Init::constant(0), Category::parameter);
  variable.freeze();
  return variable;
}
void Module::share(const std::string& name, const Variable& variable) {
  check_new(name);
  variables_.push_back({name, variable});
}

struct Module::Collected {
  std::vector<NamedVariable> named;
  std::unordered_set<const VariableState*> known;  // a shared variable is listed once
};

void Module::collect(const std::string& prefix, bool parameters, Collected& into) const {
  for (const auto& [name, variable] : variables_)
    if ((variable.category() == Category::parameter) == parameters &&
        into.known.insert(variable.state().get()).second)
      into.named.push_back({join_path(prefix, name), variable});
  for (const Module* child : children_)
    child->collect(join_path(prefix, child->name_), parameters, into);
}

std::vector<NamedVariable> Module::named_parameters() const {
  Collected all;
  collect("", true, all);
  return std::move(all.named);
}
std::vector<NamedVariable> Module::named_buffers() const {
  Collected all;
  collect("", false, all);
  return std::move(all.named);
}
std::vector<NamedVariable> Module::state() const {
  std::vector<NamedVariable> named = named_parameters();
  for (NamedVariable& entry : named_buffers()) named.push_back(std::move(entry));
  return named;
}
std::vector<Variable> Module::parameters() const {
  std::vector<Variable> training = variables_of(named_parameters());
  std::erase_if(training, [](const Variable& variable) { return variable.frozen(); });
  return training;
}
std::vector<Variable> Module::buffers() const { return variables_of(named_buffers()); }
std::vector<Variable> Module::variables() const { return variables_of(state()); }

void Module::set_frozen(std::string_view pattern, bool frozen) const {
  bool any = false;
  for (const auto& [name, variable] : named_parameters()) {
    if (!matches(name, pattern)) continue;
    variable.freeze(frozen);
    any = true;
  }
  WEFT_CHECK(any, "[module] no parameter of {} has a name like \"{}\".", described(path_), pattern);
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const NamedVariable& entry : named_parameters()) count += entry.variable.type().elements();
  return count;
}

}  // namespace weft::nn
