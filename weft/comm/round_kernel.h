// Declares what the communicators have in common: how a collective is named, and its kernels.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "weft/device/compiler.h"
#include "weft/ir/origin.h"

namespace weft::comm {

// Returns the words for a collective, which live as long as the process.
inline const std::string& name_of(const Launch& launch) {
  return interned(launch.module.empty() ? launch.kernel
                                        : fmt::format("{} ({})", launch.kernel, launch.module));
}

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
