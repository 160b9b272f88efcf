// Reports tests, or parts of them, that cannot run; tools/test.sh counts and lists these lines.
#pragma once

#include <string_view>

namespace weft::testing {

// Sanitizers use additional memory, and map terabytes.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true, thread_sanitizer = false;
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool address_sanitizer = false, thread_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false, thread_sanitizer = false;
#endif
inline constexpr bool sanitized = address_sanitizer || thread_sanitizer;

// Prints 'skipped: why (in "TEST CASE")' with the first line of `why`, once per test case.
void skipped(std::string_view why);

}  // namespace weft::testing
