// On a signal, in any phase of a run, the program saves, reports it, and ends with its exit code.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "tests/support/exit_codes.h"
#include "tests/support/program.h"

namespace fs = std::filesystem;

namespace weft::test {
namespace {
struct Endless : Workplace {
  Endless() {
    write("endless.yaml",
          "name: endless\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\n"
          "train: {steps: 100000000, global_batch_size: 4}\neval: {every: 100000000}\n"
          "checkpoint: {every: 100000000}\nlog: {every: 1}\n");
  }

  std::ptrdiff_t lines_of_log() const {
    return std::ranges::count(read("runs/endless/log.jsonl"), '\n');
  }
  // Returns what is wrong with the end of the run, or "" if it was stopped and can be resumed.
  std::string end_of(const Outcome& outcome) const {
    if (outcome.code != stopped) return "exit code " + std::to_string(outcome.code) + outcome.err;
    if (!outcome.err.empty()) return outcome.err;
    const size_t line = outcome.out.rfind("stopped at step ");
    if (line == std::string::npos || std::ranges::count(outcome.out.substr(line), '\n') != 1 ||
        !outcome.out.ends_with(". --resume continues.\n"))
      return outcome.out;
    return weft({"ckpt", "verify", "endless"}).err;
  }
};

size_t names_in(const std::string& folder) {
  std::error_code absent;
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder, absent), fs::directory_iterator()));
}
}  // namespace

TEST_CASE("SIGTERM, SIGINT and SIGHUP save and stop a run") {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    CAPTURE(number);
    const Endless place;
    Running run = place.start(std::getenv("WEFT"), {"train", "endless.yaml"});
    CHECK(run.until([&] { return place.lines_of_log() >= 2; }));
    run.signal(number);
    CHECK(place.end_of(run.wait()) == "");
  }
}

TEST_CASE("SIGHUP does not end a run that was started with nohup") {
  const Endless place;
  Running run = place.start("/usr/bin/nohup", {std::getenv("WEFT"), "train", "endless.yaml"});
  CHECK(run.until([&] { return place.lines_of_log() >= 2; }));
  run.signal(SIGHUP);
  const std::ptrdiff_t before = place.lines_of_log();
  CHECK(run.until([&] { return place.lines_of_log() >= before + 20; }));
  run.signal(SIGTERM);
  CHECK(place.end_of(run.wait()) == "");
}

TEST_CASE("SIGTERM while kernels are compiled stops a run before its first step") {
  const Endless place;
  const fs::path cache = place.path("cache"), measured = test_cache();
  place.weft({"plan", "endless.yaml"});  // measures the machine if that is still to do
  fs::copy(measured, cache);
  fs::copy(measured / "peaks", cache / "peaks");
  const std::string kernels = cache / "kernels";
  Running run =
      place.start(std::getenv("WEFT"), {"train", "endless.yaml"}, {{"WEFT_CACHE_DIR", cache}});
  CHECK(run.until([&] { return names_in(kernels) > 0; }));
  run.signal(SIGTERM);
  const size_t compiled = names_in(kernels);
  const Outcome outcome = run.wait();
  CHECK(place.end_of(outcome) == "");
  CHECK(outcome.out.find("stopped at step 0 by a signal; saved ") != std::string::npos);
  CHECK(compiled < names_in(kernels));  // it was compiling when signalled
  CHECK(place.weft({"train", "endless.yaml", "--resume", "--steps", "2", "--json"}).code == 0);
}

}  // namespace weft::test
