#include "weft/data/tokenizer/limits.h"

#include <algorithm>
#include <string>

namespace weft::data::tokenizer {
namespace {

constexpr int64_t most_ids = 1 << 24;  // ids of one text: bounds what padding allocates

bool is_left(const Part& part) {
  const std::string direction = part.text_or("direction", "Right");
  if (direction != "Left" && direction != "Right")
    part.unknown("direction", direction, {"Left", "Right"});
  return direction == "Left";
}

}  // namespace

Truncation read_truncation(const Part& part) {
  return {static_cast<size_t>(part.at("max_length").integer(0, INT64_MAX)), is_left(part)};
}

Padding read_padding(const Part& part) {
  Padding padding{.at_begin = is_left(part), .id = part.at("pad_id").id()};
  const Part strategy = part.at("strategy");
  if (strategy.is_object())
    padding.length = static_cast<size_t>(strategy.at("Fixed").integer(0, most_ids));
  else if (strategy.text() != "BatchLongest")
    part.unknown("strategy", strategy.text(), {"BatchLongest", "Fixed"});
  padding.multiple = static_cast<size_t>(
      std::max<int64_t>(1, part.integer_or("pad_to_multiple_of", 1, 0, most_ids)));
  return padding;
}

void truncate(const Truncation& truncation, size_t before, size_t after,
              std::vector<int32_t>& ids) {
  const size_t around = before + after;
  const size_t most = truncation.most > around ? truncation.most - around : 0;
  const size_t count = ids.size() - before;
  if (count <= most) return;
  const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(before);
  const auto removed = static_cast<std::ptrdiff_t>(count - most);
  if (truncation.at_begin)
    ids.erase(begin, begin + removed);
  else
    ids.erase(ids.end() - removed, ids.end());
}

void pad(const Padding& padding, std::vector<int32_t>& ids) {
  size_t length = std::max(padding.length, ids.size());
  length = (length + padding.multiple - 1) / padding.multiple * padding.multiple;
  ids.insert(padding.at_begin ? ids.begin() : ids.end(), length - ids.size(), padding.id);
}

}  // namespace weft::data::tokenizer
