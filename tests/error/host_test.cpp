// Hosts that are smaller, or asked for more, than most.
#include <sched.h>
#include <sys/resource.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/near.h"
#include "tests/support/program.h"

using namespace weft::test;

namespace {
const std::vector<std::string> train{"train", "tiny.yaml", "--json", "--overwrite"};

struct Place : Workplace {
  Place() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\ntrain: {steps: 3, global_batch_size: 8}\n");
  }
};

// What children inherit, for as long as this lives.
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
class AddressLimit {
 public:
  explicit AddressLimit(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  rlimit before_{};
};
}  // namespace

TEST_CASE("a run on one core, or on more threads than there are cores, learns the same") {
  const Place place;
  const double loss = json_of(place.weft(train))["loss"];
  CHECK(json_of(place.weft(train, {{"WEFT_THREADS", "100"}}))["loss"].get<double>() ==
        weft::testing::near(loss, 1e-5));
  const OneCore alone;
  CHECK(json_of(place.weft(train))["loss"].get<double>() == weft::testing::near(loss, 1e-5));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which map terabytes
TEST_CASE("a process of 512 MiB trains what fits, and refuses at once what does not") {
  const Place place;
  const AddressLimit limit(rlim_t{512} << 20);
  CHECK(place.weft(train).code == 0);
  CHECK(fails_with(place.weft({"bench", "gpt2"}), /*does not fit=*/3, "This process can have 0.") ==
        "");
}
#endif
