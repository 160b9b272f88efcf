// Estimates the seconds of kernels and of exchanges on a device, as a program runs them.
//
// A product takes its operations over the share of the peak that its type sustains there, times
// what its tiles waste: those at the edges, the last wave over the processors, and the ramp of a
// short sum. It takes no less than its bytes do. Everything that a constant says was fitted to
// measured runs (constants.h); the form follows Williams et al. 2009 ("Roofline") and, for waves
// and tiles, NVIDIA's guide to the performance of matrix products.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/estimate/constants.h"
#include "weft/estimate/device.h"

namespace weft::estimate {

// A Program is whose kernels and schedule are timed: ours, or those of a common framework.
struct Program {
  std::string_view name;          // as in --as
  std::string_view title;         // "Megatron Core with Transformer Engine"
  bool fused_attention = true;    // scores are never in memory
  bool divides_rows = false;      // norms and residuals, too, are divided by tensor parallelism
  bool overlaps_exchange = true;  // gradients are summed while the backward pass goes on
  bool keeps_gradients = false;   // those of the last step until this one replaces them
  bool splits_layers = true;      // by tensor, pipeline, context and expert parallelism
  int zero = 0;                   // what its data parallel ranks divide, as in Layout
  double weight_bytes = 4, gradient_bytes = 4, master_bytes = 0;  // in mixed precision
};
std::span<const Program> programs();
const Program* find_program(std::string_view name);  // null: not in the list

// Attention is softmax(Q K^T) V over `batch` samples.
struct Attention {
  double batch = 1, queries = 0, keys = 0, heads = 0, width = 0;
  bool causal = true;  // half of the scores are not needed
};

class Costs {
 public:
  Costs(const Device& device, const Program& program, const Constants& constants);

  // Returns the seconds of C[m, n] = A[m, k] B[k, n].
  double product(Number number, double m, double n, double k) const;
  // Returns the seconds of casts of elements to `number` with scales, where products need them.
  double casts(Number number, double elements) const;
  double forward(const Attention& attention, Number number) const;
  double backward(const Attention& attention, Number number) const;
  // Returns the seconds of kernels that move bytes and do little else.
  double rows(double bytes) const { return bytes / bytes_per_s_; }
  double convolution(Number number, double operations, double depth) const;

  // Returns the bytes that one device sends or receives per second among `ranks` devices.
  double link(int64_t ranks, int per_host) const;
  // Return the seconds of collectives by a ring (Patarasuk and Yuan 2009), `bytes` being the whole.
  double gather(double bytes, int64_t ranks, int per_host) const;
  double sum(double bytes, int64_t ranks, int per_host) const;  // for all: a scatter and a gather
  // Returns the seconds of an exchange that computation beside it does not hide. `hidden` names the
  // constant for the share that it could hide.
  double exposed(double exchange, double compute, std::string_view hidden) const;

  double constant(std::string_view name) const;
  const Program& program() const { return program_; }

 private:
  double sustained(Number number) const;
  double unfused(const Attention& attention, Number number) const;

  Device device_;
  Program program_;
  const Constants& constants_;
  std::vector<std::string> scopes_;
  double bytes_per_s_ = 0;
  std::array<double, number_count> sustained_ = {};
  double tile_rows_ = 0, tile_columns_ = 0, tile_waste_ = 0, ramp_ = 0, unaligned_ = 0, launch_ = 0;
};

}  // namespace weft::estimate
