// Holds what the fit found: constants of kernels, links and programs, each for a scope.
//
// A scope is a program on an architecture ("megatron@Hopper"), a program, a device, an
// architecture, or "all". The narrowest scope that has a value wins, so that a device that nobody
// measured takes what its architecture has, and an architecture that nobody measured what holds for
// all.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::estimate {

struct Constant {
  std::string name, scope;
  double value = 0;
};

class Constants {
 public:
  explicit Constants(std::vector<Constant> values);

  // Returns the value of the first of these scopes that has one, else that of "all".
  double value(std::string_view name, std::span<const std::string> scopes) const;
  void set(const Constant& constant);  // replaces the scope's value

 private:
  const Constant* find(std::string_view name, std::string_view scope) const;
  std::vector<Constant> values_;  // by name, then by scope
};

// Returns those of catalogue/costs/fitted.yaml.
const Constants& shipped_constants();

}  // namespace weft::estimate
