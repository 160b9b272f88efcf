// `same_abi` is true if a function pointer of ours has the calling convention of NVIDIA's
// declaration: as many parameters, each passed alike. We declare handles as void* and enumerations
// as int.
#pragma once

#include <type_traits>

namespace cuda_headers {

template <class T>
using Passed =
    std::conditional_t<std::is_pointer_v<T>, void*, std::conditional_t<std::is_enum_v<T>, int, T>>;

template <class F>
struct Signature;
template <class R, class... P>
struct Signature<R (*)(P...)> {
  using Type = Passed<R> (*)(Passed<P>...);
};
template <class R, class... P>
struct Signature<R (*)(P...) noexcept> : Signature<R (*)(P...)> {};

template <class Ours, class Theirs>
constexpr bool same_abi =
    std::is_same_v<typename Signature<Ours>::Type, typename Signature<Theirs>::Type>;

}  // namespace cuda_headers
