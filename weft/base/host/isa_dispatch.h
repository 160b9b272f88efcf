// Compiles one function body for several instruction sets and selects the best at run time.
//
//   struct Body { [[gnu::always_inline]] static inline void run(...) { ... } };
//   run_on_best<Body>(arguments...);
//
// Include this header below a file's own #pragma about optimization, which must cover these
// wrappers too. Lambdas in a body must be always_inline as well, as they do not inherit the
// instruction set.
#pragma once

#include "weft/base/host/isa.h"

namespace weft {

template <class Body, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]] void run_avx512(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
[[gnu::target("avx2,fma,f16c")]] void run_avx2(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
void run_baseline(Args... args) {
  Body::run(args...);
}

// Selects the widest variant (64, 32 or 16 byte vectors) that the instruction set supports.
template <class Function>
Function best_of(Isa set, Function avx512, Function avx2, Function baseline) {
  return set >= Isa::avx512 ? avx512 : set >= Isa::avx2 ? avx2 : baseline;
}
// Selects the variant for this process's instruction set.
template <class Function>
Function best_of(Function avx512, Function avx2, Function baseline) {
  return best_of(isa(), avx512, avx2, baseline);
}
template <class Body, class... Args>
void run_on_best(Args... args) {
  best_of(&run_avx512<Body, Args...>, &run_avx2<Body, Args...>,
          &run_baseline<Body, Args...>)(args...);
}

}  // namespace weft
