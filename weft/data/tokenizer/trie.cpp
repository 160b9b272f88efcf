#include "weft/data/tokenizer/trie.h"

#include <utility>

namespace weft::data::tokenizer {

int32_t Trie::add_child(int32_t node, unsigned char byte) {
  if (edges_.size() < 2 * values_.size()) {
    std::vector<Edge> old = std::exchange(edges_, std::vector<Edge>(2 * edges_.size()));
    --shift_;
    for (const Edge& edge : old)
      if (edge.to >= 0) edges_[slot_of(edge.key)] = edge;
  }
  const uint64_t key = key_of(node, byte);
  Edge& edge = edges_[slot_of(key)];
  if (edge.to < 0) {
    edge = {key, static_cast<int32_t>(values_.size())};
    values_.push_back(-1);
    if (node == 0) first_[byte] = edge.to;
  }
  return edge.to;
}

void Trie::add(std::string_view key, int32_t value) {
  int32_t node = 0;
  for (char c : key) node = add_child(node, static_cast<unsigned char>(c));
  values_[static_cast<size_t>(node)] = value;
}

}  // namespace weft::data::tokenizer
