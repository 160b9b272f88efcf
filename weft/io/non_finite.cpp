#include "weft/io/non_finite.h"

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "weft/base/host/parallel.h"
#include "weft/io/files.h"

namespace weft::io {
namespace {

// Counts by the bits of the elements, as a Word each: in most types a number is not finite if all
// bits of its exponent are set.
template <class Word>
NonFinite counted(std::span<const std::byte> bytes, const FloatFormat& format) {
  const auto fraction = static_cast<Word>((Word{1} << format.fraction) - 1);
  const auto exponent = static_cast<Word>(((Word{1} << format.exponent) - 1) << format.fraction);
  // Where the format has no infinities, NaN has all bits set.
  const Word least_nan = format.has_infinities ? Word(exponent | 1) : Word(exponent | fraction);
  const Word infinity = format.has_infinities ? exponent : Word(least_nan + 1);
  const auto elements = static_cast<int64_t>(bytes.size() / sizeof(Word));
  std::atomic<int64_t> nans = 0, infinities = 0;
  parallel_for(elements, [&](int64_t begin, int64_t end) {
    int64_t nans_here = 0, infinities_here = 0;
    for (int64_t i = begin; i < end; ++i) {
      Word word;
      std::memcpy(&word, bytes.data() + static_cast<size_t>(i) * sizeof word, sizeof word);
      word &= exponent | fraction;
      nans_here += word >= least_nan ? 1 : 0;
      infinities_here += word == infinity ? 1 : 0;
    }
    nans += nans_here;
    infinities += infinities_here;
  });
  return {.nans = nans, .infinities = infinities, .elements = elements};
}

}  // namespace

NonFinite count_non_finite(std::span<const std::byte> bytes, DType dtype) {
  if (!is_float(dtype)) return {};
  const FloatFormat& format = info(dtype).format;
  switch (size_of(dtype)) {
    case 1:
      return counted<uint8_t>(bytes, format);
    case 2:
      return counted<uint16_t>(bytes, format);
    case 4:
      return counted<uint32_t>(bytes, format);
    default:
      return counted<uint64_t>(bytes, format);
  }
}

std::vector<NonFinite> non_finite(std::span<const NamedBytes> tensors) {
  std::vector<NonFinite> found;
  for (const NamedBytes& tensor : tensors) {
    NonFinite count = count_non_finite(tensor.bytes, tensor.from.value_or(tensor.type.dtype));
    if (count.nans == 0 && count.infinities == 0) continue;
    count.name = tensor.name;
    found.push_back(std::move(count));
  }
  return found;
}

std::string to_text(std::span<const NonFinite> found) {
  constexpr size_t most = 3;
  std::string text;
  for (const NonFinite& each : found.first(std::min(most, found.size()))) {
    const std::string nans = each.nans > 0 ? fmt::format("{} NaN", each.nans) : "";
    const std::string infinities =
        each.infinities > 0 ? fmt::format("{} infinite", each.infinities) : "";
    text += fmt::format(
        "{}\"{}\" has {}{}{} of {} numbers", text.empty() ? "" : ", ", printable(each.name), nans,
        nans.empty() || infinities.empty() ? "" : " and ", infinities, each.elements);
  }
  if (found.size() > most)
    text += fmt::format(", and {} more tensors have such", found.size() - most);
  return text;
}

}  // namespace weft::io
