// Tests hosts with fewer resources than usual, or with higher demands.
#include <sched.h>
#include <set>
#include <unistd.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/error/address_limit.h"
#include "tests/support/known_peaks.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/skip.h"
#include "weft/base/host/parallel.h"

using namespace weft::test;

namespace {
const std::vector<std::string> train_command{"train", "tiny.yaml", "--json", "--overwrite"};

struct Place : Workplace {
  Place() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\ntrain: {steps: 3, global_batch_size: 8}\n");
  }
};

// Sets the affinity that child processes inherit, during its lifetime.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    int first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};
}  // namespace

TEST_CASE("losses agree on one core and with more threads than cores") {
  const Place place;
  for (const int threads : {1, 100, weft::thread_count()}) write_peaks(place, "cache", threads);
  Workplace::Environment settings{{"WEFT_CACHE_DIR", place.path("cache")}};
  const double loss = json_of(place.weft(train_command, settings))["eval_loss"];
  settings["WEFT_THREADS"] = "100";
  const Outcome many = place.weft(train_command, settings);
  settings.erase("WEFT_THREADS");
  CHECK(json_of(many)["eval_loss"].get<double>() == weft::testing::near(loss, 1e-5));
  if (sysconf(_SC_NPROCESSORS_ONLN) < 25) CHECK(goes_on_with(many, "100 threads share ") == "");
  const OneCore alone;
  CHECK(json_of(place.weft(train_command, settings))["eval_loss"].get<double>() ==
        weft::testing::near(loss, 1e-5));
}

TEST_CASE("an unwritable home is named once and the run continues") {
  Place place;
  place.write("home", "no folder");
  const Outcome outcome =
      place.weft(train_command,
                 {{"WEFT_CACHE_DIR", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", place.path("home")}});
  CHECK(goes_on_with(outcome, "cannot be a cache") == "");
  const std::string warning = "weft: warning: " + place.path("home") +
                              "/.cache/weft cannot be a cache: Not a directory. Each run compiles "
                              "its kernels again. Hint: WEFT_CACHE_DIR.\n";
  CHECK(outcome.err == warning);
  // The reported cause is that of the first folder that cannot be created, not of those below it.
  const Outcome system =
      place.weft({"plan", "tiny.yaml"},
                 {{"WEFT_CACHE_DIR", ""}, {"XDG_CACHE_HOME", ""}, {"HOME", "/sys/nobody"}});
  CHECK(system.code == 0);  // the reason is up to the system
  CHECK(system.err.find("/sys/nobody/.cache/weft cannot be a cache: ") != std::string::npos);
  CHECK(system.err.find("No such file or directory") == std::string::npos);
}

TEST_CASE("a process of 512 MiB trains what fits and refuses at once what does not") {
  if (weft::testing::sanitized) return weft::testing::skipped("sanitizers map terabytes");
  const Place place;
  const AddressLimit limit(rlim_t{512} << 20);
  CHECK(place.weft(train_command, {{"WEFT_THREADS", "2"}}).code == 0);
  for (const char* threads : {"8", "100"}) {
    const Outcome outcome = place.weft(train_command, {{"WEFT_THREADS", threads}});
    CHECK(goes_on_with(outcome,
                       " threads do not fit in the address space of this process (ulimit -v); ") ==
          "");
  }
  CHECK(fails_with(place.weft({"bench", "gpt2"}), /*does not fit=*/3, "This process can use 0.") ==
        "");
  // Batches go from small to too large: a plan that fits runs, and nothing kills the process. The
  // heaps of two processes differ by some MiB: where plans differ within 16 MiB, either is right.
  constexpr int fits = 0, does_not_fit = 3;
  std::set<int> answers;
  for (const int batch : {4000, 50000, 62000, 66000, 80000}) {
    CAPTURE(batch);
    auto with = [&](rlim_t mebibytes, const char* verb) {
      const AddressLimit within(mebibytes << 20);
      const std::string size = std::to_string(batch);
      return place
          .weft({verb, "tiny.yaml", "--batch", size, "--steps", "1", "--name", size},
                {{"WEFT_THREADS", "2"}, {"WEFT_PATIENCE", "1"}})
          .code;
    };
    const int trained = with(512, "train"), surely = with(512 - 16, "plan");
    if (surely == fits || with(512 + 16, "plan") == does_not_fit) CHECK(trained == surely);
    CHECK(std::set{fits, does_not_fit}.contains(trained));
    answers.insert(trained);
  }
  CHECK(answers == std::set{fits, does_not_fit});
}

TEST_CASE("the address space of a process is spent only on planned memory") {
  if (weft::testing::sanitized) return weft::testing::skipped("sanitizers map terabytes");
  Place place;
  place.write("wide.yaml",
              "model: {name: gpt, config: {hidden_size: 512, num_hidden_layers: 6, "
              "num_attention_heads: 4}}\n"
              "data: {dataset: addition, digits: 1}\ntrain: {steps: 1, global_batch_size: 8}\n");
  const AddressLimit limit(rlim_t{450} << 20);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "wide.yaml"}, {"train", "wide.yaml"}})
    CHECK(place.weft(words, {{"WEFT_THREADS", "2"}}).code == 0);
}
