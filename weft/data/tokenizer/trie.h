// A trie over bytes finds all keys that a text begins with in one walk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::data::tokenizer {

// A Trie maps keys to values that are not negative. Its nodes are numbers; an edge is an entry of
// one hash table, so that following an edge takes one look-up, and a node takes no more memory than
// its edge.
class Trie {
 public:
  // Adds a key, which must not be empty. A later value of the same key takes the place of the
  // first.
  void add(std::string_view key, int32_t value);
  bool empty() const { return values_.size() == 1; }
  // Returns whether a key begins with this byte.
  bool begins(char byte) const { return first_[static_cast<unsigned char>(byte)] >= 0; }

  // Calls use(bytes, value) for each key that `text` begins with, the shortest first.
  template <class Use>
  void for_each_prefix(std::string_view text, Use&& use) const {
    if (text.empty()) return;
    int32_t node = first_[static_cast<unsigned char>(text[0])];
    for (size_t i = 1; node >= 0; ++i) {
      const int32_t value = values_[static_cast<size_t>(node)];
      if (value >= 0) use(i, value);
      if (i >= text.size()) return;
      node = child(node, static_cast<unsigned char>(text[i]));
    }
  }

 private:
  struct Edge {
    uint64_t key = ~uint64_t{0};  // node << 8 | byte
    int32_t to = -1;
  };
  static uint64_t key_of(int32_t node, unsigned char byte) {
    return static_cast<uint64_t>(node) << 8 | byte;
  }
  size_t slot_of(uint64_t key) const {
    size_t slot = (key * 0x9e3779b97f4a7c15) >> shift_;
    while (edges_[slot].key != key && edges_[slot].to >= 0) slot = (slot + 1) & (edges_.size() - 1);
    return slot;
  }
  int32_t child(int32_t node, unsigned char byte) const {
    return edges_[slot_of(key_of(node, byte))].to;
  }
  int32_t add_child(int32_t node, unsigned char byte);

  std::vector<int32_t> values_ = {-1};  // by node; -1 where no key ends. Node 0 is the root.
  std::vector<int32_t> first_ = std::vector<int32_t>(256, -1);  // children of the root
  std::vector<Edge> edges_ = std::vector<Edge>(64);
  int shift_ = 58;  // 64 - log2(edges_.size())
};

}  // namespace weft::data::tokenizer
