// One body of code, compiled for several instruction sets, the best one picked when it runs.
//
//   struct Body { [[gnu::always_inline]] static inline void run(...) { ... } };
//   run_on_best<Body>(arguments...);
//
// Include it below a file's own #pragma about optimisation, which must cover these wrappers too.
// Lambdas in a body must be always_inline as well: they do not inherit the instruction set.
#pragma once

namespace weft {

enum class Isa { any, avx2, avx512 };
inline Isa best_isa() {
  static const Isa best = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return Isa::avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
    return Isa::any;
  }();
  return best;
}

template <class Body, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]] void run_avx512(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
[[gnu::target("avx2,fma,f16c")]] void run_avx2(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
void run_any(Args... args) {
  Body::run(args...);
}
template <class Body, class... Args>
void run_on_best(Args... args) {
  switch (best_isa()) {
    case Isa::avx512:
      return run_avx512<Body, Args...>(args...);
    case Isa::avx2:
      return run_avx2<Body, Args...>(args...);
    case Isa::any:
      return run_any<Body, Args...>(args...);
  }
}

}  // namespace weft
