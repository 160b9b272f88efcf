#include "tests/support/part.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace weft::testing {
namespace {
struct Part {
  size_t number = 1, count = 1;
};

Part part_of_environment() {
  Part part;
  const char* const text = std::getenv("PART");
  if (text == nullptr) return part;
  char rest = 0;
  const bool is_whole = std::sscanf(text, "%zu/%zu%c", &part.number, &part.count, &rest) == 2;
  if (!is_whole || part.number < 1 || part.number > part.count)
    throw std::invalid_argument("PART must be K/N with 1 <= K <= N");
  return part;
}
}  // namespace

bool in_part(size_t index) {
  static const Part part = part_of_environment();
  return index % part.count == part.number - 1;
}

}  // namespace weft::testing
