#include "weft/base/numbers/random_streams.h"

#include "weft/base/numbers/hash.h"

namespace weft {
int64_t RandomStreams::next(std::string_view path) {
  constexpr int64_t mask = 0x7FFFFFFF;  // bit 31 selects the second number that a normal draw takes
  auto stream = static_cast<int64_t>(hash_text(path)) & mask;
  while (!taken_.insert(stream).second) stream = (stream + 1) & mask;
  return stream;
}
}  // namespace weft
