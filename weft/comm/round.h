// Declares what the communicators have in common: what a rank computes in a collective, how it is
// named, and its kernels.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "weft/base/host/parallel.h"
#include "weft/comm/board.h"
#include "weft/comm/combine.h"
#include "weft/device/compiler.h"
#include "weft/ops/collective.h"

namespace weft::comm {

constexpr size_t copied_bytes = 16 << 10;  // operands up to it are published by copying
constexpr int64_t sum_grain = 1 << 14;     // least elements for a thread

// CollectiveNames are the words for the last collectives of a run, for any thread.
class CollectiveNames {
 public:
  // `name` lives as long as the process.
  void note(uint64_t sequence, const std::string& name) {
    (*names_)[sequence % most_under_way].store(&name);
  }
  // Returns "all_gather 412 of the run, layers.0.weight" of a collective. It owns what it reads.
  std::function<std::string(uint64_t sequence)> words() const;

 private:
  using Names = std::array<std::atomic<const std::string*>, most_under_way>;
  std::shared_ptr<Names> names_ = std::make_shared<Names>();
};

// CollectiveWork is a collective of a plan, and what a rank computes for it from operands that are
// somewhere in its memory.
struct CollectiveWork {
  CollectiveWork(const Launch& launch, int rank, int ranks);

  // The result of a gather, and the operand of a scatter, are `outer` times a part of each rank.
  void gather_part(std::byte* result, const std::byte* operand, int from_rank) const;
  // `operands` has those of all ranks.
  void sum(std::span<const std::byte* const> operands, std::byte* result, int64_t from,
           int64_t to) const;
  void sum_own_part(std::span<const std::byte* const> operands, std::byte* result) const;
  // The first element of one of the parts of a large sum, which ranks compute apart.
  int64_t part(int64_t number, int64_t parts) const;
  void copy_elements(std::byte* result, const std::byte* from, int64_t first, int64_t end) const;

  int64_t bytes(int64_t count) const { return count * static_cast<int64_t>(size_of(dtype)); }
  bool is_small() const { return operand_bytes <= copied_bytes; }
  Stores stores() const;

  int rank, ranks;
  Collective what;
  DType dtype;
  int64_t operand_at, result_at;  // bytes in their slots
  size_t operand_bytes;
  int64_t elements;         // of the result
  int64_t outer = 1;        // of the result, before the axis of the parts
  const std::string& name;  // which lives as long as the process
};

// Calls body(i, from, to) on several threads: elements [from, to) of row i, for all elements
// [first, end) of rows of `row` elements.
template <class F>
void for_rows(int64_t first, int64_t end, int64_t row, F body) {
  parallel_for((end - first + sum_grain - 1) / sum_grain, [&](int64_t begin, int64_t last) {
    const int64_t stop = std::min(end, first + last * sum_grain);
    for (int64_t at = first + begin * sum_grain; at < stop;) {
      const int64_t i = at / row, from = at % row, to = std::min(row, from + stop - at);
      body(i, from, to);
      at += to - from;
    }
    end_streams();
  });
}

// Throws Error(failed) for a plan with more collectives than boards have entries for.
void check_collectives(const Plan& plan);
// Returns whether a launch between a collective and its await uses the slot of the result.
bool is_used_under_way(const Plan& plan, const Launch& collective);

// A BeginKernel begins a collective, of which a StepKernel does what comes later.
template <class Round>
class BeginKernel : public Kernel {
 public:
  explicit BeginKernel(std::shared_ptr<Round> round) : round_(std::move(round)) {}
  void run(void* const* operands, void* const* results, void*) const override {
    round_->begin(operands[0], results[0]);
  }

 private:
  std::shared_ptr<Round> round_;
};
template <class Round, void (Round::*step)()>
class StepKernel : public Kernel {
 public:
  explicit StepKernel(std::shared_ptr<Round> round) : round_(std::move(round)) {}
  void run(void* const*, void* const*, void*) const override { (*round_.*step)(); }

 private:
  std::shared_ptr<Round> round_;
};

}  // namespace weft::comm
