// The text of kernels written by hand: C below gpu_prelude(language), with words such as $rows that
// stand for a step's numbers and types.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "weft/codegen/gpu_emit.h"
#include "weft/ir/plan.h"

namespace weft::gpu {

using Words = std::map<std::string, std::string, std::less<>>;  // of small letters

// Launches of one kernel, and the words that every one of them knows: prefix, parameters
// (in0_memory and in0_at, ..., out0_memory and out0_at, ..., scratch_memory and scratch_at), local
// (what pointers to shared memory begin with).
class KernelText {
 public:
  KernelText(const Step& step, loop::GpuLanguage language, const std::string& prefix);

  // Words of `text` stand for what they do now.
  void set(const std::string& word, std::string_view text) { words_[word] = filled(text); }
  void set(const std::string& word, int64_t number) { words_[word] = std::to_string(number); }
  // `text` with what stands for each $word, those of `more` first, which may have words in them.
  std::string filled(std::string_view text, const Words& more = {}) const;

  void define(std::string_view text) { kernel_.source += filled(text); }
  // A function of all parameters, in whose body $threads stands for `threads`.
  void launch(int64_t groups, int threads, std::string_view body);
  loop::GpuKernel finish(size_t scratch);

 private:
  Words words_;
  loop::GpuKernel kernel_;
};

// Where the elements of an operand or result begin: "(GLOBAL f32*)(in0_memory + in0_at) + 64".
std::string pointer(const char* kind, size_t index, const Access& access);

// The most neighbours, of 16 bytes at most, that one access takes where all of `counts` (strides,
// offsets, extents, in elements) are multiples of their number.
int vector_of(DType dtype, std::span<const int64_t> counts);

}  // namespace weft::gpu
