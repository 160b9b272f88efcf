// Tests teams of threads, with more threads than this machine has cores.
#include "weft/base/host/team.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/threads.h"
#include "weft/base/host/parallel.h"
#include "weft/tensor/compile.h"
#include "weft/tensor/tensor.h"

namespace weft::testing {
namespace {

TEST_CASE(
    "a region visits each position once in a partition that depends only on the thread count") {
  for (int threads : thread_counts) {
    const Threads with(threads);
    for (int64_t count : {0, 1, 2, 3, 7, 8, 1000}) {
      CAPTURE(threads);
      CAPTURE(count);
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      std::atomic<int64_t> parts = 0;
      parallel_for(count, [&](int64_t begin, int64_t end) {
        ++parts;
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      CHECK(std::ranges::all_of(visits, [](const auto& visit) { return visit == 1; }));
      CHECK(parts == std::min<int64_t>(count, threads));
    }
  }
}

// These regions end within microseconds, one after another: a late thread must not run a part of
// the next region with the body of the last.
TEST_CASE("consecutive short regions of changing sizes do not interfere") {
  const Threads with(8);
  int64_t wrong = 0;
  for (int64_t round = 0; round < 20000; ++round) {
    const int64_t count = 1 + round * 7 % 11;
    std::atomic<int64_t> sum = 0;
    parallel_for(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum += round + i;
    });
    wrong += sum != round * count + count * (count - 1) / 2;
  }
  CHECK(wrong == 0);
}

TEST_CASE("nested regions and regions of several threads complete") {
  const Threads with(3);
  std::atomic<int64_t> positions = 0;
  auto nested = [&] {
    for (int round = 0; round < 200; ++round)
      parallel_for(5, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          parallel_for(4, [&](int64_t from, int64_t to) { positions += to - from; });
      });
  };
  {
    std::vector<std::jthread> callers;
    callers.reserve(4);
    for (int i = 0; i < 4; ++i) callers.emplace_back(nested);
  }
  CHECK(positions == 4 * 200 * 5 * 4);
}

// A region that found another thread's under way once ran on its caller alone.
TEST_CASE("regions that several threads open in one team take turns, and each is divided") {
  const Threads with(3);
  std::atomic<int64_t> parts = 0, positions = 0;
  std::barrier begin(4);
  {
    std::vector<std::jthread> callers;
    callers.reserve(4);
    for (int i = 0; i < 4; ++i)
      callers.emplace_back([&] {
        begin.arrive_and_wait();
        for (int round = 0; round < 500; ++round)
          parallel_for(5, [&](int64_t from, int64_t to) {
            ++parts, positions += to - from;
            std::this_thread::sleep_for(std::chrono::microseconds(1));  // others begin meanwhile
          });
      });
  }
  CHECK(parts == 4 * 500 * 3);
  CHECK(positions == 4 * 500 * 5);
}

// Returns the threads that run parts of regions of `team`, seen in a while of regions.
std::set<std::thread::id> threads_of(Team& team) {
  const TeamScope scope(team);
  std::set<std::thread::id> seen;
  std::mutex mutex;
  for (int round = 0; round < 100; ++round)
    parallel_for(team.threads(), [&](int64_t, int64_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  return seen;
}

// Returns whether all parts of a region of the team run at the same time.
bool meet(Team& team) {
  const TeamScope scope(team);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::atomic<int> here = 0;
  parallel_for(team.threads(), [&](int64_t, int64_t) {
    ++here;
    while (here < team.threads() && std::chrono::steady_clock::now() < give_up)
      std::this_thread::yield();
  });
  return std::chrono::steady_clock::now() < give_up;
}

TEST_CASE("a team takes the threads that an idle team had") {
  const Threads with(4);
  const std::shared_ptr<Team> teams[] = {make_team(4), make_team(3)};
  for (int round = 0; round < 3; ++round) {
    CHECK(meet(*teams[0]));
    CHECK(meet(*teams[1]));
    CHECK(meet(whole_team()));
  }
}

TEST_CASE("teams that compute at the same time share no thread") {
  const Threads with(8);
  const std::shared_ptr<Team> teams[] = {make_team(3), make_team(3), make_team(2)};
  for (int round = 0; round < 20; ++round) {  // threads go from team to team between rounds
    std::set<std::thread::id> seen[3];
    std::barrier all_compute(3);
    {
      std::vector<std::jthread> callers;
      callers.reserve(3);
      for (size_t i = 0; i < 3; ++i)
        callers.emplace_back([&, i] {
          const TeamScope scope(*teams[i]);
          const Computing threads;
          all_compute.arrive_and_wait();
          seen[i] = threads_of(*teams[i]);
          all_compute.arrive_and_wait();
        });
    }
    std::set<std::thread::id> together;
    for (size_t i = 0; i < 3; ++i) {
      CHECK(std::ssize(seen[i]) <= teams[i]->threads());
      together.insert(seen[i].begin(), seen[i].end());
    }
    CHECK(together.size() == seen[0].size() + seen[1].size() + seen[2].size());
    CHECK(threads_of(whole_team()).size() <= 8);
  }
}

// Counts threads in parts of regions, of all teams.
struct Busy {
  std::atomic<int> now = 0, most = 0;
  void part() {
    const int busy = ++now;
    for (int seen = most; busy > seen && !most.compare_exchange_weak(seen, busy);) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    --now;
  }
};

TEST_CASE("teams that have more threads than the process take turns, and none starts more") {
  const Threads with(5);
  start_team();
  const size_t before = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  Busy busy;
  std::atomic<int64_t> parts = 0;
  {
    std::vector<std::jthread> callers;
    for (int threads : {5, 4, 3, 2, 2})
      callers.emplace_back([&, threads] {
        const std::shared_ptr<Team> team = make_team(threads);
        const TeamScope scope(*team);
        for (int round = 0; round < 50; ++round) {
          const Computing all;
          for (int region = 0; region < 3; ++region)
            parallel_for(threads, [&](int64_t, int64_t) { busy.part(), ++parts; });
        }
      });
    const size_t during = std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    CHECK(during <= before + callers.size());
  }
  CHECK(parts == 50 * 3 * (5 + 4 + 3 + 2 + 2));
  CHECK(busy.most <= 5);
  CHECK(busy.most >= 2);
}

// Two teams of one thread compute by turns, and each goes on until the other one has begun, so that
// one always does; a third one that needs both threads comes to its turn.
TEST_CASE("a team that needs all threads does not wait forever for smaller ones") {
  const Threads with(2);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::atomic<bool> came = false;
  std::atomic<int64_t> begun[2] = {0, 0};
  auto small = [&](int own) {
    const std::shared_ptr<Team> team = make_team(1);
    const TeamScope scope(*team);
    while (!came && std::chrono::steady_clock::now() < give_up) {
      const Computing thread;
      const int64_t others = begun[1 - own];
      ++begun[own];
      const auto wait = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      while (begun[1 - own] == others && !came && std::chrono::steady_clock::now() < wait)
        std::this_thread::yield();
    }
  };
  std::jthread one(small, 0), two(small, 1);
  while (begun[0] == 0 || begun[1] == 0) std::this_thread::yield();
  const Computing all;
  CHECK(std::chrono::steady_clock::now() < give_up);
  came = true;
}

TEST_CASE("a region of another team runs on its caller while a thread computes") {
  const Threads with(4);
  const std::shared_ptr<Team> team = make_team(4);
  const Computing all;
  const TeamScope scope(*team);
  int parts = 0;
  parallel_for(100, [&](int64_t begin, int64_t end) { parts += begin == 0 && end == 100 ? 1 : 2; });
  CHECK(parts == 1);
}

std::set<std::string> threads_of_process() {
  std::set<std::string> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    threads.insert(task.path().filename());
  return threads;
}

// The test uses more threads than any before it, so that every new thread is its own.
TEST_CASE("only the team's threads run products and convolutions") {
  const Threads with(11);
  start_team();
  const std::set<std::string> before = threads_of_process();
  auto step = compile(
      [](const Tensor& x, const Tensor& weight) {
        const Tensor y = conv(x, weight);
        return mean(matmul(reshape(y, {16, -1}), transpose(reshape(y, {16, -1}))));
      },
      {.device = "cpu"});
  auto ramp = [](const Shape& shape) {
    std::vector<float> elements(static_cast<size_t>(element_count(shape)));
    std::iota(elements.begin(), elements.end(), -1.0f);
    return tensor(elements, shape);
  };
  const Tensor loss = step(ramp({4, 16, 20, 20}), ramp({24, 16, 5, 5}));
  CHECK(std::isfinite(loss.item()));
  // Threads that ended, such as compiling ones, remain listed for a moment.
  auto nobody_else = [&] { return std::ranges::includes(before, threads_of_process()); };
  for (int i = 0; i < 1000 && !nobody_else(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(nobody_else());
}
}  // namespace
}  // namespace weft::testing
