#include "weft/passes/order/list_scheduler.h"

#include <algorithm>

#include "weft/passes/graph/index.h"

namespace weft {

ListScheduler::ListScheduler(const Dependencies& edges, const ArenaUse& use, bool backward)
    : before_(backward ? edges.after : edges.before),
      after_(backward ? edges.before : edges.after),
      use_(use),
      alive_before_(backward ? use.to_end : use.from_start),
      alive_after_(backward ? use.from_start : use.to_end),
      backward_(backward),
      users_(use.bytes.size()) {
  for (size_t launch = 0; launch < use.launches.size(); ++launch)
    for (int slot : use.launches[launch].slots)
      users_[index(slot)].push_back(static_cast<int>(launch));
}

void ListScheduler::reset(const std::vector<int>& base) {
  size_t launches = before_.size();
  waiting_.clear();
  for (const std::vector<int>& predecessors : before_) waiting_.push_back(predecessors.size());
  place_.assign(launches, 0);
  for (size_t i = 0; i < launches; ++i)
    place_[index(base[i])] = static_cast<int>(backward_ ? launches - i : i);
  version_.assign(launches, 0);
  done_.assign(launches, false);
  alive_ = alive_before_;
  users_left_.clear();
  for (const std::vector<int>& users : users_) users_left_.push_back(users.size());
}

int64_t ListScheduler::growth(int launch) const {
  int64_t bytes = 0;
  for (int slot : use_.launches[index(launch)].slots) {
    if (!alive_[index(slot)]) bytes += static_cast<int64_t>(use_.bytes[index(slot)]);
    if (users_left_[index(slot)] == 1 && !alive_after_[index(slot)])
      bytes -= static_cast<int64_t>(use_.bytes[index(slot)]);
  }
  return bytes;
}

void ListScheduler::offer(int launch) {
  int64_t cost = growth(launch);
  if (rule_ == Rule::eager) cost = cost > 0;
  ready_.push({cost, place_[index(launch)], launch, ++version_[index(launch)]});
}

void ListScheduler::finish(int launch) {
  std::vector<int> changed;  // ready launches whose growth has changed
  for (int slot : use_.launches[index(launch)].slots) {
    bool born = !alive_[index(slot)];
    alive_[index(slot)] = true;
    if (--users_left_[index(slot)] != 1 && !born) continue;
    for (int user : users_[index(slot)])
      if (!done_[index(user)] && waiting_[index(user)] == 0) changed.push_back(user);
  }
  std::sort(changed.begin(), changed.end());
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  for (int user : changed) offer(user);
  for (int next : after_[index(launch)])
    if (--waiting_[index(next)] == 0) offer(next);
}

std::vector<int> ListScheduler::run(const std::vector<int>& base, Rule rule) {
  rule_ = rule;
  reset(base);
  for (int launch : base)
    if (waiting_[index(launch)] == 0) offer(launch);
  std::vector<int> order;
  while (!ready_.empty()) {
    Candidate next = ready_.top();
    ready_.pop();
    if (done_[index(next.launch)] || next.version != version_[index(next.launch)]) continue;
    done_[index(next.launch)] = true;
    order.push_back(next.launch);
    finish(next.launch);
  }
  if (backward_) std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace weft
