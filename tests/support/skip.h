// What a test says where it, or a part of it, cannot run; tools/test.sh counts and names these
// lines.
#pragma once

#include <string_view>

namespace weft::testing {

// Prints "skipped: TEST CASE: why", once for each test case; of `why` its first line.
void skipped(std::string_view why);

}  // namespace weft::testing
