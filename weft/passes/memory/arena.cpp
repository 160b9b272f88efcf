#include "weft/passes/memory/arena.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

namespace weft {
namespace {
using Order = std::vector<int>;

constexpr int64_t patience = 2'000'000;  // blocks visited in one search: about 5 ms

// Placed is a block with its offset: bytes [offset, end), launches first to last.
struct Placed {
  size_t offset, end;
  int first, last;
};
bool is_below(const Placed& a, const Placed& b) { return a.offset < b.offset; }
using List = std::vector<Placed>;  // ascending offsets
void insert_in_order(List& list, const Placed& placed) {
  list.insert(std::upper_bound(list.begin(), list.end(), placed, is_below), placed);
}

// A LongList is sorted like a List, but split into pieces, so that an insertion moves only a few
// hundred blocks.
class LongList {
 public:
  void clear() { pieces_.clear(); }
  void add(const Placed& placed) {
    if (pieces_.empty()) pieces_.emplace_back();
    auto after = std::upper_bound(
        pieces_.begin() + 1, pieces_.end(), placed,
        [](const Placed& a, const List& piece) { return is_below(a, piece.front()); });
    List& piece = *std::prev(after);
    insert_in_order(piece, placed);
    if (piece.size() < most) return;
    List upper(piece.begin() + most / 2, piece.end());
    piece.resize(most / 2);
    pieces_.insert(after, std::move(upper));
  }
  // Visits the blocks in ascending order until `visit` returns false.
  template <class Visit>
  bool all_of(Visit visit) const {
    return std::ranges::all_of(
        pieces_, [&](const List& piece) { return std::ranges::all_of(piece, visit); });
  }

 private:
  static constexpr size_t most = 512;
  std::vector<List> pieces_;  // none is empty, except a lone first one
};

class Packer {
 public:
  explicit Packer(const std::vector<Block>& blocks)
      : blocks_(blocks), offset_(blocks.size()), best_(blocks.size()) {
    int last = 0;
    for (const Block& block : blocks) last = std::max(last, block.last);
    cells_.resize(cell_of(last) + 1);
  }

  // An order that is already higher than the best one is given up: no search goes on from its
  // offsets.
  void start_with(const Order& order) {
    starts_.push_back(order);
    try_order(order, best_height_);
  }

  // Places the blocks one after another, each as low as blocks with overlapping live ranges allow,
  // and keeps the placement unless a lower one is known. Stops where a block ends above `limit`.
  void try_order(const Order& order, size_t limit = std::numeric_limits<size_t>::max()) {
    placed_.clear(), long_.clear();
    for (List& cell : cells_) cell.clear();
    size_t height = 0;
    for (int block : order) {
      height = std::max(height, place(block));
      if (height > limit) return;
    }
    if (height > best_height_) return;
    best_height_ = height;
    best_ = offset_;
    order_ = order;
  }

  // Squeaky wheel optimization (Joslin and Clements 1999): blocks that end above the goal move
  // toward the front of the order, and all blocks are placed again. After too many attempts without
  // gain, the search restarts from a shuffled earlier order. `patience` bounds the blocks visited.
  void improve(size_t goal, int64_t patience) {
    Order order = order_;
    int fruitless = 0;
    for (looked_at_ = 0; looked_at_ < patience && best_height_ > goal && order.size() > 1;) {
      size_t before = best_height_;
      try_order(order);
      fruitless = best_height_ < before ? 0 : fruitless + 1;
      if (fruitless > most_fruitless) {
        fruitless = 0;
        order = random(2) == 0 ? starts_[random(starts_.size())] : order_;
        for (int i = 0; i < 3; ++i) advance(order, random(order.size()));
      } else {
        for (size_t i = 0; i < order.size(); ++i)
          if (end_of(order[i]) > goal) advance(order, i);
      }
    }
  }

  size_t height() const { return best_height_; }
  const Order& order() const { return order_; }
  const std::vector<size_t>& offsets() const { return best_; }

 private:
  static constexpr int most_fruitless = 20;

  size_t place(int index) {
    const Block& block = blocks_[static_cast<size_t>(index)];
    size_t offset = lowest_fit(block);
    offset_[static_cast<size_t>(index)] = offset;
    Placed placed{offset, offset + block.bytes, block.first, block.last};
    placed_.add(placed);
    if (is_short(block))
      for (size_t cell = cell_of(block.first); cell <= cell_of(block.last); ++cell)
        insert_in_order(cells_[cell], placed);
    else
      long_.add(placed);
    return placed.end;
  }

  // Short-lived blocks are indexed by cells of launches. A block is compared with long-lived blocks
  // and the short-lived ones of its own cells, so the cost per layer does not grow with a net's
  // depth.
  static constexpr int cell_steps = 32;
  static bool is_short(const Block& block) { return block.last - block.first < cell_steps; }
  static size_t cell_of(int launch) { return static_cast<size_t>(launch + 1) / cell_steps; }

  size_t lowest_fit(const Block& block) {
    size_t offset = 0;
    looked_at_ += 8;  // the fixed cost of a placement
    auto overlaps = [&](const Placed& other) {
      ++looked_at_;
      return other.first <= block.last && block.first <= other.last;
    };
    auto rises = [&](const Placed& other) {  // false: the block fits below `other`
      if (!overlaps(other)) return true;
      if (other.offset >= offset + block.bytes) return false;
      offset = std::max(offset, other.end);
      return true;
    };
    if (!is_short(block)) {
      (void)placed_.all_of(rises);
      return offset;
    }
    near_.clear();
    for (size_t cell = cell_of(block.first); cell <= cell_of(block.last); ++cell)
      std::copy_if(cells_[cell].begin(), cells_[cell].end(), std::back_inserter(near_), overlaps);
    std::sort(near_.begin(), near_.end(), is_below);
    auto near = near_.begin();
    const bool open = long_.all_of([&](const Placed& other) {
      for (; near != near_.end() && near->offset <= other.offset; ++near)
        if (!rises(*near)) return false;
      return rises(other);
    });
    if (open) (void)std::all_of(near, near_.end(), rises);
    return offset;
  }

  size_t end_of(int block) const {
    return offset_[static_cast<size_t>(block)] + blocks_[static_cast<size_t>(block)].bytes;
  }

  // Moves the element at `from` to a random earlier place, one time in three a near one.
  void advance(Order& order, size_t from) {
    auto at = [&](size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
    size_t to = random(3) == 0 ? from - random(from / 2 + 1) : random(from + 1);
    std::rotate(at(to), at(from), at(from + 1));
  }

  size_t random(size_t below) {  // xorshift, for reproducibility
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<size_t>(state_ % below);
  }

  const std::vector<Block>& blocks_;
  int64_t looked_at_ = 0;
  uint64_t state_ = 0x9E3779B97F4A7C15;
  LongList placed_, long_;   // all blocks; those that are not short
  std::vector<List> cells_;  // the short blocks that are live in each cell
  List near_;                // scratch
  std::vector<size_t> offset_, best_;
  std::vector<Order> starts_;
  Order order_;  // the order of the best placement
  size_t best_height_ = std::numeric_limits<size_t>::max();
};

// Returns the launch with the most live bytes, and those bytes.
std::pair<int, size_t> find_peak(const std::vector<Block>& blocks) {
  std::map<int, std::ptrdiff_t> changes;
  for (const Block& block : blocks) {
    changes[block.first] += static_cast<std::ptrdiff_t>(block.bytes);
    changes[block.last + 1] -= static_cast<std::ptrdiff_t>(block.bytes);
  }
  std::ptrdiff_t live = 0, most = 0;
  int busiest = 0;
  for (auto [launch, change] : changes) {
    live += change;
    if (live > most) most = live, busiest = launch;
  }
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
  auto at_peak = [busiest](const Block& block) {
    return block.first <= busiest && busiest <= block.last;
  };
  add([&](const Block& a, const Block& b) {
    return at_peak(a) != at_peak(b) ? at_peak(a) : a.bytes > b.bytes;
  });
  add([&](const Block& a, const Block& b) {
    return at_peak(a) != at_peak(b) ? at_peak(a) : area(a) > area(b);
  });
  add([](const Block& a, const Block& b) { return area(a) > area(b); });
  add([](const Block& a, const Block& b) {
    return duration(a) != duration(b) ? duration(a) > duration(b) : a.bytes > b.bytes;
  });
  add([](const Block& a, const Block& b) {
    return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
  });
  add([](const Block& a, const Block& b) {
    return a.last != b.last ? a.last > b.last : a.bytes > b.bytes;
  });
  return all;
}
}  // namespace

size_t live_peak(const std::vector<Block>& blocks) { return find_peak(blocks).second; }

size_t pack(std::vector<Block>& blocks) {
  if (blocks.empty()) return 0;
  size_t peak = live_peak(blocks), goal = peak + peak / 50, promise = peak + peak / 20;
  Packer all(blocks), large(blocks);
  for (const Order& order : orders(blocks)) {
    all.start_with(order);
    if (all.height() <= peak + peak / 200) break;  // within 0.5 % of the lower bound
  }
  if (all.height() > goal) {
    // The few large blocks decide the height, and are fast to search; small ones fill gaps.
    auto is_large = [&](int block) {
      return blocks[static_cast<size_t>(block)].bytes >= peak / 256;
    };
    for (Order order : orders(blocks)) {
      std::erase_if(order, [&](int block) { return !is_large(block); });
      large.start_with(order);
    }
    large.improve(goal, patience);
    for (const Order& order : orders(blocks)) {
      Order joined = large.order();
      std::copy_if(order.begin(), order.end(), std::back_inserter(joined), std::not_fn(is_large));
      all.start_with(joined);
    }
    all.improve(goal, patience);
    all.improve(promise, 10 * patience);
  }
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset = all.offsets()[i];
  return all.height();
}

}  // namespace weft
