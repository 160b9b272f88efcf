#include "weft/passes/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

namespace weft {
namespace {
using Order = std::vector<int>;

class Packer {
 public:
  Packer(const std::vector<Block>& blocks, int64_t patience)
      : blocks_(blocks), patience_(patience), offset_(blocks.size()), best_(blocks.size()) {}

  // Places the blocks one after another, each in the smallest gap that holds it among those that live at
  // the same time; keeps the placement if none so far is lower.
  void try_order(const Order& order) {
    placed_.clear();
    size_t height = 0;
    for (int block : order) {
      height = std::max(height, place(block));
      if (height > best_height_) return;
    }
    best_height_ = height;
    best_ = offset_;
    order_ = order;
  }

  // Moves blocks that lie at the top, or beneath it, to the front of the order while that helps.
  void improve(size_t good_enough) {
    uint64_t random = 0x9E3779B97F4A7C15;
    auto next = [&](size_t below) {  // xorshift: the same everywhere
      random ^= random << 13, random ^= random >> 7, random ^= random << 17;
      return static_cast<size_t>(random % below);
    };
    size_t count = order_.size();
    while (patience_ > 0 && best_height_ > good_enough && count > 1) {
      Order changed = order_;
      size_t from = next(2) == 0 ? top() : next(count);
      size_t to = next(from + 1);
      auto at = [&](size_t i) { return changed.begin() + static_cast<std::ptrdiff_t>(i); };
      std::rotate(at(to), at(from), at(from + 1));
      size_t a = next(count), b = next(count);
      if (next(2) == 0) std::swap(changed[a], changed[b]);
      try_order(changed);
    }
  }

  size_t height() const { return best_height_; }
  const Order& order() const { return order_; }
  const std::vector<size_t>& offsets() const { return best_; }

 private:
  size_t place(int index) {
    const Block& block = blocks_[static_cast<size_t>(index)];
    size_t best_gap = std::numeric_limits<size_t>::max(), chosen = 0, free_from = 0;
    bool found = false;
    for (const Placed& other : placed_) {  // ascending offsets
      if (other.first > block.last || other.last < block.first) continue;
      if (other.offset >= free_from + block.bytes && other.offset - free_from < best_gap) {
        best_gap = other.offset - free_from;
        chosen = free_from;
        found = true;
      }
      free_from = std::max(free_from, other.end);
    }
    patience_ -= static_cast<int64_t>(placed_.size()) + 1;
    size_t offset = found ? chosen : free_from;
    offset_[static_cast<size_t>(index)] = offset;
    Placed placed{offset, offset + block.bytes, block.first, block.last};
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), placed,
                                    [](const Placed& a, const Placed& b) { return a.offset < b.offset; }),
                   placed);
    return placed.end;
  }

  // Where in the order the block is that reaches the height of the best packing.
  size_t top() const {
    for (size_t i = 0; i < order_.size(); ++i) {
      size_t block = static_cast<size_t>(order_[i]);
      if (best_[block] + blocks_[block].bytes == best_height_) return i;
    }
    return 0;
  }

  struct Placed {
    size_t offset, end;
    int first, last;
  };
  const std::vector<Block>& blocks_;
  int64_t patience_;
  std::vector<Placed> placed_;
  std::vector<size_t> offset_, best_;
  Order order_;  // of the best placement
  size_t best_height_ = std::numeric_limits<size_t>::max();
};

// The step with most live bytes, and those bytes.
std::pair<int, size_t> find_peak(const std::vector<Block>& blocks) {
  std::map<int, std::ptrdiff_t> changes;
  for (const Block& block : blocks) {
    changes[block.first] += static_cast<std::ptrdiff_t>(block.bytes);
    changes[block.last + 1] -= static_cast<std::ptrdiff_t>(block.bytes);
  }
  std::ptrdiff_t live = 0, most = 0;
  int busiest = 0;
  for (auto [step, change] : changes)
    if ((live += change) > most) most = live, busiest = step;
  return {busiest, static_cast<size_t>(most)};
}

int duration(const Block& block) { return block.last - block.first + 1; }
double area(const Block& block) { return static_cast<double>(block.bytes) * duration(block); }

std::vector<Order> orders(const std::vector<Block>& blocks) {
  Order plain(blocks.size());
  std::iota(plain.begin(), plain.end(), 0);
  std::vector<Order> all;
  auto add = [&](auto before) {
    all.push_back(plain);
    std::stable_sort(all.back().begin(), all.back().end(), [&](int a, int b) {
      return before(blocks[static_cast<size_t>(a)], blocks[static_cast<size_t>(b)]);
    });
  };
  add([](const Block& a, const Block& b) { return a.bytes > b.bytes; });
  int busiest = find_peak(blocks).first;
  auto at_peak = [busiest](const Block& block) { return block.first <= busiest && busiest <= block.last; };
  add([&](const Block& a, const Block& b) { return at_peak(a) != at_peak(b) ? at_peak(a) : a.bytes > b.bytes; });
  add([&](const Block& a, const Block& b) { return at_peak(a) != at_peak(b) ? at_peak(a) : area(a) > area(b); });
  add([](const Block& a, const Block& b) { return area(a) > area(b); });
  add([](const Block& a, const Block& b) {
    return duration(a) != duration(b) ? duration(a) > duration(b) : a.bytes > b.bytes;
  });
  add([](const Block& a, const Block& b) { return a.first != b.first ? a.first < b.first : a.bytes > b.bytes; });
  add([](const Block& a, const Block& b) { return a.last != b.last ? a.last > b.last : a.bytes > b.bytes; });
  return all;
}
}  // namespace

size_t live_peak(const std::vector<Block>& blocks) { return find_peak(blocks).second; }

size_t pack(std::vector<Block>& blocks, int64_t patience) {
  if (blocks.empty()) return 0;
  size_t peak = live_peak(blocks), good_enough = peak + peak / 100;
  Packer all(blocks, patience / 2), large(blocks, patience / 2);
  for (const Order& order : orders(blocks)) {
    all.try_order(order);
    if (all.height() == peak) break;
  }
  if (all.height() > good_enough) {
    // The few large blocks decide; searching their order alone is quick, and the small fill the gaps.
    auto is_large = [&](int block) { return blocks[static_cast<size_t>(block)].bytes >= peak / 256; };
    for (Order order : orders(blocks)) {
      std::erase_if(order, [&](int block) { return !is_large(block); });
      large.try_order(order);
    }
    large.improve(good_enough);
    for (const Order& order : orders(blocks)) {
      Order joined = large.order();
      std::copy_if(order.begin(), order.end(), std::back_inserter(joined), std::not_fn(is_large));
      all.try_order(joined);
    }
    all.improve(good_enough);
  }
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = all.offsets()[i];
  return all.height();
}

}  // namespace weft
