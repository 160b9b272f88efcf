// What a test says where it, or a part of it, cannot run; tools/test.sh counts and names these
// lines.
#pragma once

#include <string_view>

namespace weft::testing {

// Sanitizers take memory beside the program, and map terabytes.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitizer = true, thread_sanitizer = false;
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool address_sanitizer = false, thread_sanitizer = true;
#else
inline constexpr bool address_sanitizer = false, thread_sanitizer = false;
#endif
inline constexpr bool sanitized = address_sanitizer || thread_sanitizer;

// Prints 'skipped: why (in "TEST CASE")', once for each test case; of `why` its first line.
void skipped(std::string_view why);

}  // namespace weft::testing
