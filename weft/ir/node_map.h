// A NodeMap holds what a pass knows of each node of a graph.
//
// It is a hash table with open addressing, keyed by node id. Entries of eight consecutive ids are
// adjacent, so a pass that walks a graph in order of creation finds most of them in the cache line
// it has just read. The groups of eight are scattered, because long runs of consecutive ids would
// otherwise probe through each other. Ids are never reused, so an entry may outlive its node.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/ir/value.h"

namespace weft {

template <class T>  // default-constructible
class NodeMap {
 public:
  NodeMap() = default;
  explicit NodeMap(size_t expected) { reserve(expected); }

  // Makes room for `expected` entries. References stay valid up to that many entries; beyond, until
  // the next insertion.
  void reserve(size_t expected) {
    size_t room = least_room;
    while (room < 2 * expected) room *= 2;
    if (room > entries_.size()) resize(room);
  }

  size_t size() const { return count_; }
  bool contains(const Node* node) const { return find(node) != nullptr; }
  // Returns null where there is no entry.
  const T* find(const Node* node) const {
    if (entries_.empty()) return nullptr;
    const Entry& entry = entries_[place_of(key_of(node))];
    return entry.key == 0 ? nullptr : &entry.value;
  }
  T* find(const Node* node) { return const_cast<T*>(std::as_const(*this).find(node)); }
  const T& at(const Node* node) const {
    const T* found = find(node);
    WEFT_ASSERT(found != nullptr, "node {} is not in the map", node->id);
    return *found;
  }
  T& at(const Node* node) { return const_cast<T&>(std::as_const(*this).at(node)); }
  T& operator[](const Node* node) { return *insert(node, T()).first; }
  // Returns the node's entry and whether it is new; an existing entry keeps its value.
  std::pair<T*, bool> insert(const Node* node, T value) {
    if (2 * (count_ + 1) > entries_.size()) reserve(count_ + 1);
    Entry& entry = entries_[place_of(key_of(node))];
    const bool is_new = entry.key == 0;
    if (is_new) {
      entry = {key_of(node), std::move(value)};
      ++count_;
    }
    return {&entry.value, is_new};
  }

 private:
  static constexpr size_t group = 8;
  static constexpr size_t least_room = 16;  // a power of two, as all sizes are
  struct Entry {
    uint64_t key = 0;  // 0: free
    T value{};
  };

  static uint64_t key_of(const Node* node) { return node->id + 1; }
  // Returns the index of the key, or of the free entry where it would go; half of them are free.
  size_t place_of(uint64_t key) const {
    constexpr uint64_t golden_ratio = 0x9E3779B97F4A7C15;  // Fibonacci hashing (Knuth, 6.4)
    const size_t mask = entries_.size() - 1;
    size_t at = (((key / group) * golden_ratio >> 32) * group + key % group) & mask;
    while (entries_[at].key != 0 && entries_[at].key != key) at = (at + 1) & mask;
    return at;
  }
  void resize(size_t room) {
    std::vector<Entry> before = std::exchange(entries_, std::vector<Entry>(room));
    for (Entry& entry : before)
      if (entry.key != 0) entries_[place_of(entry.key)] = std::move(entry);
  }

  std::vector<Entry> entries_;
  size_t count_ = 0;
};

}  // namespace weft
