// Tests sessions: two at the same time, one from two threads, and what belongs to a session.
#include "weft/tensor/session.h"

#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/threads.h"
#include "weft/base/error.h"
#include "weft/base/host/parallel.h"
#include "weft/nn/nn.h"
#include "weft/optim/optim.h"
#include "weft/tensor/compile.h"

namespace weft::testing {
namespace {
using Floats = std::vector<float>;

// A net whose products, of several parts and with packed weights, fill its arena.
struct Mlp : nn::Module {
  nn::Linear first, second, third;
  explicit Mlp(int64_t width)
      : first(*this, "first", 256, width),
        second(*this, "second", width, width),
        third(*this, "third", width, 64) {}
  Tensor operator()(const Tensor& x) const { return third(gelu(second(gelu(first(x))))); }
};

Tensor waves() {
  Floats elements(32 * 256);
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = std::sin(0.37f * static_cast<float>(i));
  return tensor(elements, {32, 256}).eval();
}

auto compiled(const Mlp& net) {
  return compile([&net](const Tensor& x) { return net(x); }, {.mode = Mode::eval, .device = "cpu"});
}

// Calls `both` with 0 and 1, on two threads at the same time.
void at_once(const std::function<void(int)>& both) {
  std::thread other([&] { both(0); });
  both(1);
  other.join();
}

// Returns how many of `rounds` results of `run` differ from the first one, which no other thread's
// run was beside.
class Repeats {
 public:
  explicit Repeats(std::function<Floats()> run) : run_(std::move(run)), first_(run_()) {}
  int wrong(int rounds) const {
    int wrong = 0;
    for (int i = 0; i < rounds; ++i) wrong += run_() != first_ ? 1 : 0;
    return wrong;
  }

 private:
  std::function<Floats()> run_;
  Floats first_;
};

// Two nets, each in a session that `session_of` returns, run at the same time, and each has the
// bits that it has alone.
int wrong_results(int rounds, const std::function<Session(int)>& session_of) {
  const Mlp wide(512), narrow(384);
  const Tensor x = waves(), y = waves();
  std::vector<Session> sessions = {session_of(0), session_of(1)};
  std::vector<Repeats> runs;
  for (int i = 0; i < 2; ++i) {
    const SessionScope scope(sessions[static_cast<size_t>(i)]);
    auto step = std::make_shared<decltype(compiled(wide))>(compiled(i == 0 ? wide : narrow));
    runs.emplace_back([step, in = i == 0 ? x : y] { return (*step)(in).to_vector<float>(); });
  }
  std::atomic<int> wrong = 0;
  at_once([&](int i) { wrong += runs[static_cast<size_t>(i)].wrong(rounds); });
  return wrong;
}

Session share_of_two(int) { return Session({.threads = thread_limit() / 2}); }
Session same(int) { return default_session(); }

TEST_CASE("two sessions on two threads have the bits of each alone") {
  for (int threads : {2, 4}) {
    const Threads with(threads);
    CHECK(wrong_results(100, share_of_two) == 0);
  }
}

TEST_CASE("sessions of all threads take turns, and have the bits of each alone") {
  const Threads with(2);
  CHECK(wrong_results(50, [](int i) { return i == 0 ? default_session() : Session(); }) == 0);
}

TEST_CASE("two steps of one session on two threads have the bits of each alone") {
  for (int threads : {1, 2}) {
    const Threads with(threads);
    CHECK(wrong_results(100, same) == 0);
  }
}

TEST_CASE("two threads call one step, and each has the result of its own input") {
  const Threads with(2);
  const Mlp net(384);
  auto step = compiled(net);
  const Tensor x[] = {waves(), (waves() * 2).eval()};
  const Repeats runs[] = {Repeats([&] { return step(x[0]).to_vector<float>(); }),
                          Repeats([&] { return step(x[1]).to_vector<float>(); })};
  std::atomic<int> wrong = 0;
  at_once([&](int i) { wrong += runs[i].wrong(100); });
  CHECK(wrong == 0);
}

TEST_CASE("two sessions share the weights of one net") {
  const Threads with(2);
  const Mlp net(256);
  const Tensor x = waves();
  std::atomic<int> wrong = 0;
  for (const Precision precision : {Precision::as_written, Precision::bf16_mixed}) {
    auto results_in = [&](const Session& session, int rounds) {
      const SessionScope scope(session);
      auto step = compile([&net](const Tensor& input) { return net(input); },
                          {.mode = Mode::eval, .device = "cpu", .precision = precision});
      std::set<Floats> results;
      for (int i = 0; i < rounds; ++i) results.insert(step(x).to_vector<float>());
      return results;
    };
    for (const Variable& parameter : net.parameters()) (void)parameter.floats();  // stale copies
    const std::set<Floats> want = results_in(Session({.threads = 1}), 1);
    for (const Variable& parameter : net.parameters()) (void)parameter.floats();
    at_once([&](int) { wrong += results_in(Session({.threads = 1}), 50) != want ? 1 : 0; });
  }
  CHECK(wrong == 0);
}

// Trains a net with dropout, whose numbers follow the session's seed and count of steps.
Floats trained(int64_t width, int steps) {
  manual_seed(width);
  Mlp net(width);
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-3});
  auto step = compile(
      [&](const Tensor& x) {
        const Tensor loss = mean(square(dropout(net(x), 0.2)));
        optimizer.step(grad(loss, net.parameters()));
        return loss;
      },
      {.device = "cpu"});
  Floats losses;
  const Tensor x = waves();
  for (int i = 0; i < steps; ++i) losses.push_back(static_cast<float>(step(x).item()));
  return losses;
}

TEST_CASE("two trainings in two sessions draw the numbers and have the losses of each alone") {
  const Threads with(2);
  const SessionScope outer(Session({.threads = 1}));
  const Floats alone[] = {trained(96, 12), trained(64, 12)};
  CHECK(alone[0] != alone[1]);
  Floats together[2];
  at_once([&](int i) {
    const SessionScope scope(Session({.threads = 1}));
    together[i] = trained(i == 0 ? 96 : 64, 12);
  });
  CHECK(together[0] == alone[0]);
  CHECK(together[1] == alone[1]);
}

TEST_CASE("two threads evaluate tensors in one session") {
  std::atomic<int> wrong = 0;
  at_once([&](int i) {
    for (int round = 0; round < 1000; ++round) {
      const Tensor sum = full({1000}, i, DType::i64) + arange(1000);
      wrong += sum.to_doubles()[999] != 999 + i ? 1 : 0;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a session has a seed of its own, from which its numbers are drawn") {
  const auto numbers = [] { return rand({8}).to_doubles(); };
  manual_seed(5);
  const auto of_five = numbers();
  const Session five({.seed = 5}), six({.seed = 6});
  manual_seed(0);
  const auto of_zero = numbers();
  {
    const SessionScope in_six(six);
    CHECK(current_seed() == 6);
    CHECK(numbers() != of_five);
    const SessionScope in_five(five);
    CHECK(current_session() == five);
    CHECK(numbers() == of_five);
    manual_seed(0);
  }
  CHECK(current_session() == default_session());
  CHECK(current_seed() == 0);
  CHECK(numbers() != of_zero);  // the second draw of the default session
  CHECK(random_step().value().item() == 0);
}

TEST_CASE("a step is planned for the threads of its session, and keeps it alive") {
  const Threads with(4);
  auto step_in = [](const Session& session) {
    const SessionScope scope(session);
    CHECK(thread_count() == session.threads());
    return compile([](const Tensor& x) { return exp(x) + thread_count(); }, {.device = "cpu"});
  };
  auto step = step_in(Session({.threads = 3}));
  CHECK(thread_count() == 4);
  CHECK(step(zeros({2})).to_doubles() == std::vector<double>{4, 4});
  CHECK(Session().threads() == 4);
  CHECK(default_session().threads() == 4);
}

TEST_CASE("the results of one session stay while another one runs") {
  const Threads with(2);
  const auto step_in = [](const Session& session, double factor) {
    const SessionScope scope(session);
    return compile([factor](const Tensor& x) { return exp(x * factor); }, {.device = "cpu"});
  };
  const Tensor x = full({4096}, 0.5).eval();
  auto one = step_in(Session({.threads = 1}), 1), two = step_in(Session({.threads = 1}), 2);
  const Tensor held = one(x);
  const std::byte* const place = held->data();
  two(x);
  CHECK(held->data() == place);  // in the arena of its session, still
  CHECK(held.to_doubles()[0] == doctest::Approx(std::exp(0.5)));
}

TEST_CASE("a session of more threads than the process has is refused") {
  const Threads with(2);
  CHECK_THROWS_WITH_AS(Session({.threads = 3}),
                       "[session] threads must be from 1 to 2, those of the process, or 0 for all "
                       "of them. Got 3. Hint: WEFT_THREADS sets how many the process has.",
                       Error);
  CHECK_THROWS_WITH_AS(Session({.threads = -1}), doctest::Contains("Got -1."), Error);
}

TEST_SUITE("slow sessions") {
  TEST_CASE("two nets of two thousand rounds at once, twenty times, have their bits") {
    const Threads with(2);
    for (int run = 0; run < 20; ++run) {
      CHECK(wrong_results(2000, share_of_two) == 0);
      CHECK(wrong_results(2000, same) == 0);
    }
  }
}
}  // namespace
}  // namespace weft::testing
