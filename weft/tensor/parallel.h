// Parallel makes a program one of the ranks of a run, which compute each step together. The program
// is written for the whole batch:
//
//   weft::Parallel parallel;                                   // alone without a launcher
//   auto step = compile([&](Tensor x, Tensor y) { ... }, {.mesh = parallel.mesh()});
//   for (...) step(parallel.rows(x), parallel.rows(y));        // gives this rank's rows
//   if (parallel.rank() == 0) print("loss {}", loss.item());
//
//   weft launch -n 2 -- ./my_program
//
// All ranks run the same steps in the same order. Results of a step are those of the whole batch,
// the same bits on every rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weft/tensor/tensor.h"

namespace weft {

struct Mesh;

class Parallel {
 public:
  // Joins the ranks that a launcher started; one rank without a launcher. Throws Error(usage) where
  // launchers disagree, Error(device) where ranks are on several hosts and have no MPI, and
  // Error(rank_lost) where a rank does not come.
  Parallel();
  // Waits until all ranks are done.
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  int64_t rank() const;
  int64_t ranks() const;
  const std::shared_ptr<const Mesh>& mesh() const { return mesh_; }  // null for one rank
  // Returns this rank's rows of a tensor whose first axis the ranks share out equally. Throws
  // Error(usage) where they cannot.
  Tensor rows(const Tensor& whole) const;
  // Leaves each rank a part of these variables, such as an optimizer's state (ZeRO, Rajbhandari et
  // al. 2020), before steps that use them are compiled. Steps compute what they did; outside of
  // them a variable in parts cannot be read. Small ones, and those of which no axis can be cut,
  // stay whole.
  void share_out(std::span<const Variable> state) const;

 private:
  std::shared_ptr<const Mesh> mesh_;
};

}  // namespace weft
