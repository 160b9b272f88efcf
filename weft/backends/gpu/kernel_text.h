// Fills in templates of handwritten kernels: C after gpu_prelude(language), in which words such as
// $rows stand for a launch's numbers and types.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "weft/codegen/gpu_emit.h"
#include "weft/ir/plan.h"

namespace weft::gpu {

using Words = std::map<std::string, std::string, std::less<>>;  // lower-case letters only

// KernelText collects the launches of one kernel. Every template knows the words prefix, parameters
// (in0_memory and in0_at, ..., out0_memory and out0_at, ..., scratch_memory and scratch_at) and
// local (the qualifier of pointers to shared memory).
class KernelText {
 public:
  KernelText(const Launch& launch, loop::GpuLanguage language, const std::string& prefix);

  // Sets a word. Words within `text` are substituted now.
  void set(const std::string& word, std::string_view text) { words_[word] = filled(text); }
  void set(const std::string& word, int64_t number) { words_[word] = std::to_string(number); }
  // Returns `text` with each $word substituted, from `more` first, whose values may contain words.
  std::string filled(std::string_view text, const Words& more = {}) const;

  void define(std::string_view text) { kernel_.source += filled(text); }
  // Adds a launch of a function of all parameters, in whose body $threads stands for `threads`.
  void launch(int64_t groups, int threads, std::string_view body);
  loop::GpuKernel finish(size_t scratch);

 private:
  Words words_;
  loop::GpuKernel kernel_;
};

// Defines $prefix_pack: $vector neighbours of type $element, loaded and stored by one access.
inline constexpr const char* define_pack = R"(
typedef struct __attribute__((aligned($vector * sizeof($element)))) {
  $element at[$vector];
} $prefix_pack;
)";

std::string literal(double value);  // of float32

// Returns the pointer to the first element: "(GLOBAL f32*)(in0_memory + in0_at) + 64".
std::string pointer(const char* kind, size_t index, const Access& access);

// Returns the widest vector, of at most 16 bytes, whose number of elements divides all `counts`
// (strides, offsets, extents, in elements).
int vector_of(DType dtype, std::span<const int64_t> counts);

}  // namespace weft::gpu
