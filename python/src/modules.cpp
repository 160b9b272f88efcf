// Modules: the named tree of parameters. weft/nn.py has the classes that programs derive from; they
// build the modules of C++ here once the tree is known, as a module of C++ names its parent when it
// is constructed.
#include "python/src/modules.h"

#include "weft/tensor/compile.h"
#include "weft/tensor/session.h"

namespace weft::python {
namespace {
using nn::Init;
using nn::Module;
using nn::NamedVariable;

// A Net is a module whose variables and children Python registers.
struct Net : Module {
  using Module::buffer;
  using Module::Module;
  using Module::parameter;
  using Module::share;
};

using Named = std::vector<std::pair<std::string, Variable>>;
Named pairs(std::vector<NamedVariable> named) {
  Named all;
  for (NamedVariable& each : named) all.emplace_back(std::move(each.name), each.variable);
  return all;
}

// A Building is the scope in which modules of a tree are constructed: their type, the path of the
// root, and the seed that was current when the program wrote the root, if it is another by now.
class Building {
 public:
  Building(DType dtype, bool initialize, std::string root, int64_t seed)
      : options_{.dtype = dtype, .initialize = initialize, .root = std::move(root)}, seed_(seed) {}

  void enter() {
    if (seed_ != current_seed())
      session_.emplace(Session({.threads = current_session().threads(), .seed = seed_}));
    scope_.emplace(options_);
  }
  void leave() {
    scope_.reset();
    session_.reset();
  }

 private:
  nn::BuildOptions options_;
  int64_t seed_;
  std::optional<SessionScope> session_;
  std::optional<nn::BuildScope> scope_;
};

// A ModeContext is `with weft.ModeScope("eval"):`.
class ModeContext {
 public:
  explicit ModeContext(const std::string& mode) : mode_(mode == "eval" ? Mode::eval : Mode::train) {
    if (mode != "eval" && mode != "train")
      throw Error(ErrorKind::usage, "[mode] a mode is 'train' or 'eval'. Got '{}'.", mode);
  }
  void enter() { scope_.emplace(mode_); }
  void leave() { scope_.reset(); }

 private:
  Mode mode_;
  std::optional<ModeScope> scope_;
};

template <class Scope>
void def_context(nb::class_<Scope>& type) {
  type.def("__enter__", &Scope::enter).def("__exit__", [](Scope& self, const nb::args&) {
    self.leave();
  });
}

void bind_module(nb::module_& m) {
  nb::class_<Module>(m, "Module")
      .def_prop_ro("name", &Module::name)
      .def_prop_ro("path", &Module::path)
      .def("named_parameters", [](const Module& self) { return pairs(self.named_parameters()); })
      .def("named_buffers", [](const Module& self) { return pairs(self.named_buffers()); })
      .def("state", [](const Module& self) { return pairs(self.state()); })
      .def("parameters", &Module::parameters)
      .def("buffers", &Module::buffers)
      .def("variables", &Module::variables)
      .def("parameter_count", &Module::parameter_count)
      .def(
          "freeze",
          [](const Module& self, const std::string& pattern) {
            const CallSite site(python_line(), "freeze");
            self.freeze(pattern);
          },
          "pattern"_a = "*")
      .def(
          "unfreeze",
          [](const Module& self, const std::string& pattern) {
            const CallSite site(python_line(), "unfreeze");
            self.unfreeze(pattern);
          },
          "pattern"_a = "*");
  nb::class_<nn::Layer, Module>(m, "Layer")
      .def("__call__", [](const nn::Layer& self, const Arg& x) { return self(x); }, "x"_a);

  nb::class_<Net, Module> net(m, "Net");
  net.def(nb::init<>());
  def_constructor(
      net, +[](Net* self, Module& parent, std::string name) { new (self) Net(parent, name); });
  net.def(
         "parameter",
         [](Net& self, const std::string& name, const Shape& shape, const Init& init) {
           const CallSite site(python_line(), "parameter");
           return self.parameter(name, shape, init);
         },
         "name"_a, "shape"_a, "init"_a)
      .def(
          "buffer",
          [](Net& self, const std::string& name, const Shape& shape, double value) {
            const CallSite site(python_line(), "buffer");
            return self.buffer(name, shape, value);
          },
          "name"_a, "shape"_a, "value"_a)
      .def("share", &Net::share, "name"_a, "variable"_a);
}
}  // namespace

void bind_modules(nb::module_& package) {
  nb::module_ m = package.def_submodule("_nn", "The modules of weft/nn, as C++ constructs them.");
  nb::class_<Init>(m, "Init", "Initial values of a parameter.")
      .def_static("constant", &Init::constant, "value"_a)
      .def_static("uniform", &Init::uniform, "low"_a, "high"_a)
      .def_static("normal", &Init::normal, "mean"_a, "deviation"_a)
      .def_static("fan_in", &Init::fan_in, "fan_in"_a)
      .def_static("xavier", &Init::xavier, "fan_in"_a, "fan_out"_a);
  nb::class_<Building> building(m, "Building");
  building.def(nb::init<DType, bool, std::string, int64_t>(), "dtype"_a, "initialize"_a, "root"_a,
               "seed"_a);
  def_context(building);
  nb::class_<ModeContext> mode(package, "ModeScope",
                               "with ModeScope('eval'): dropout and batch norm outside of compiled "
                               "steps work as in evaluation.");
  mode.def(nb::init<const std::string&>(), "mode"_a);
  def_context(mode);
  package.def("current_seed", &current_seed);
  bind_module(m);
  bind_simple_layers(m);
  bind_sequence_layers(m);
}

}  // namespace weft::python
