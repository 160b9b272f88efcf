// Runs one library kernel in isolation, with operands in the layout that a test requests, and
// compares its results element by element with those of the reference.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/device/device.h"
#include "weft/ir/graph.h"

namespace weft::testing {

// A Lie is the layout of an operand: axes from outermost to innermost (empty: row-major), with
// `gap` unused elements after each run of the innermost axis and `offset` before the first element.
struct Lie {
  Dims order;
  int64_t gap = 0;
  int64_t offset = 0;
  std::vector<int> broadcast = {};  // axes of stride 0
  std::vector<int> flipped = {};    // axes of negative stride
};

// Returns the names of all kernels that can compute the node on operands in these layouts.
std::vector<std::string> kernels_of(const Value& node, const std::vector<Lie>& lies = {});

class KernelCase {
 public:
  // `node` is one operation; only the types of its inputs matter. Elements are integers from -3 to
  // 3 where `whole`, else uniform in [-1, 1]; indices are in [-1, rows], counts of E groups in
  // [-1, 2 rows / E]. `kernel` names one of the alternatives; where it is empty, the heuristic
  // chooses.
  KernelCase(const Value& node, const std::vector<Lie>& lies = {}, bool whole = false,
             uint64_t seed = 1, const std::string& kernel = "");
  ~KernelCase();

  const KernelChoice& choice() const { return choice_; }
  const Launch& step() const { return step_; }
  // Lets the result overwrite operand 0, as a plan does for an in-place kernel.
  void in_place();
  void run();
  // Describes where the result differs from the reference by more than rounding allows
  // (rounding.h); returns "" if it does not.
  std::string disagreement();
  std::vector<std::byte> result_bytes() const;

 private:
  struct Memory;
  Launch step_;
  KernelChoice choice_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace weft::testing
