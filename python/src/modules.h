// Declares how the extension binds modules: every class of weft/nn is constructed from the parent,
// the name and the options of the layer, as in C++.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "weft/ir/origin.h"
#include "weft/nn/layer.h"

#include "python/src/bind.h"

namespace weft::python {

// Defines the constructor of a module by a function that places it: init(self, parent, name, ...).
// Errors carry the line of the Python program. The parent outlives its children.
template <class Class, class M, class... Args, class... Extra>
void def_constructor(Class& type, void (*init)(M*, nn::Module&, std::string, Args...),
                     const Extra&... extra) {
  type.def(
      "__init__",
      [init](M* self, nn::Module& parent, std::string name, Args... args) {
        const CallSite site(python_line(), std::string_view());
        const nb::gil_scoped_release released;  // large parameters take seconds to fill
        init(self, parent, std::move(name), std::forward<Args>(args)...);
      },
      "parent"_a, "name"_a, extra..., nb::keep_alive<1, 2>());
}

// Returns None for a variable that a layer lacks: a linear layer's bias.
inline std::optional<Variable> if_defined(const Variable& variable) {
  return variable.defined() ? std::optional(variable) : std::nullopt;
}
template <class M>
auto member(Variable M::* variable) {
  return [variable](const M& self) { return if_defined(self.*variable); };
}

// Adds the layers of weft/nn that have one input, and those that have several.
void bind_simple_layers(nb::module_& m);
void bind_sequence_layers(nb::module_& m);

}  // namespace weft::python
