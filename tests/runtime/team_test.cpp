// Tests the team of threads, with more threads than this machine has cores.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
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
    for (int i = 0; i < 4; ++i) callers.emplace_back(nested);
  }
  CHECK(positions == 4 * 200 * 5 * 4);
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
