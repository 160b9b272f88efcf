// Tests caches that are damaged, cannot be written, or are open to others.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/error/address_limit.h"
#include "tests/error/tiny_run.h"
#include "tests/support/known_peaks.h"
#include "tests/support/skip.h"
#include "weft/base/host/isa.h"
#include "weft/base/host/parallel.h"
#include "weft/base/numbers/hash.h"
#include "weft/device/device.h"
#include "weft/device/registry.h"

using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE("a cache folder open to others is named once and left unchanged") {
  const TinyRun place;
  const std::string cache = place.path("cache");
  place.write("cache/note", "this user's");
  for (const char* mode : {"0755", "0777"}) {
    fs::permissions(cache, static_cast<fs::perms>(std::stoi(mode, nullptr, 8)));
    const Outcome outcome = place.weft({"eval", "tiny"}, {{"WEFT_CACHE_DIR", cache}});
    CHECK(goes_on_with(outcome, "is open to others") == "");
    CHECK(outcome.err ==
          fmt::format("weft: warning: {0} is open to others (mode {1}), and its contents would be "
                      "executed: it is not read. Hint: chmod 700 {0}, or WEFT_CACHE_DIR.\n",
                      cache, mode));
    CHECK(!fs::exists(cache + "/kernels"));
  }
  fs::permissions(cache, fs::perms::owner_all);
  CHECK(place.weft({"eval", "tiny"}, {{"WEFT_CACHE_DIR", cache}}).err.empty());
  CHECK(!fs::is_empty(cache + "/kernels"));
}

TEST_CASE("without a home nothing is cached and no data set is read from the current folder") {
  const TinyRun place;
  auto homeless = [&](const std::vector<std::string>& words, const std::string& cache) {
    std::vector<std::string> arguments{"-u", "HOME", "-u", "XDG_CACHE_HOME", "-u", "XDG_DATA_HOME"};
    arguments.emplace_back(std::getenv("WEFT"));
    arguments.insert(arguments.end(), words.begin(), words.end());
    Outcome outcome =
        place.run("/usr/bin/env", arguments, {{"WEFT_CACHE_DIR", cache}, {"WEFT_DATA_DIR", ""}});
    outcome.command = "env -u HOME weft " + fmt::format("{}", fmt::join(words, " "));
    return outcome;
  };
  const Outcome outcome = homeless({"eval", "tiny"}, "");
  CHECK(goes_on_with(outcome, "there is no cache") == "");
  CHECK(outcome.err ==
        "weft: warning: there is no cache: neither WEFT_CACHE_DIR nor HOME names a folder for it. "
        "Each run compiles its kernels again.\n");
  place.write("mnist/train-images-idx3-ubyte", "of whoever wrote it");
  place.write("images.yaml", "model: {name: mlp}\ndata: {dataset: mnist}\ntrain: {steps: 1}\n");
  CHECK(fails_with(homeless({"train", "images.yaml"}, test_cache()), data_code,
                   "no folder to look for mnist in: neither WEFT_DATA_DIR nor HOME names one. "
                   "Hint: data.path.") == "");
  CHECK(homeless({"list", "data"}, "").out.find("  here\n") == std::string::npos);
}

TEST_CASE("damaged peaks in the cache are measured again") {
  TinyRun place;
  const std::string file = "cache/peaks/" + std::string(name(weft::isa())) + "-1-threads";
  auto plan = [&] {
    return place.weft({"plan", "tiny.yaml", "--device", "cpu"},
                      {{"WEFT_CACHE_DIR", place.path("cache")}, {"WEFT_THREADS", "1"}});
  };
  // Bandwidth is measured in arrays as large as half of what is available.
  std::optional<AddressLimit> limit;
  if (!weft::testing::sanitized) limit.emplace(rlim_t{512} << 20);
  std::string text(10000, '\xff');
  for (const char* made : {"cache", "cache/peaks"}) {
    fs::create_directory(place.path(made));
    fs::permissions(place.path(made), fs::perms::owner_all);
  }
  for (int i = 0; i < 2; ++i) {
    place.write(file, text);
    CHECK(plan().code == 0);
    const std::string whole = place.read(file);
    CHECK(whole.ends_with(" threads\n"));
    CHECK(whole.front() > '0');
    text = "-1" + whole.substr(whole.find(' '));
  }
}

TEST_CASE("a FIFO, folder or link in the user's cache neither blocks nor is replaced") {
  TinyRun place;
  const std::string peaks = "cache/peaks/" + std::string(name(weft::isa())) + "-1-threads";
  const std::vector<std::string> plan{"plan", "tiny.yaml", "--device", "cpu"};
  Workplace::Environment here{{"WEFT_CACHE_DIR", place.path("cache")}, {"WEFT_THREADS", "1"}};
  write_peaks(place, "cache", 1);
  CHECK(place.weft(plan, here).code == 0);
  here["WEFT_TUNE"] = "1";
  const std::vector<std::string> train{"train", "tiny.yaml", "--overwrite", "--device", "cpu"};
  CHECK(place.weft(train, here).code == 0);
  place.write("victim", "precious");
  // Where an instruction set has one kernel for each product, nothing was measured, and no file
  // kept.
  const std::string selection =
      "cache/selection/" + weft::to_hex(weft::hash_text(weft::library("cpu").kernels().machine()));
  place.write(selection, "dnnl:matmul\tno such product\n");
  for (const std::string& file : {peaks, selection})
    for (const mode_t kind : {mode_t{S_IFIFO}, mode_t{S_IFDIR}, mode_t{S_IFLNK}}) {
      const std::string path = place.path(file);
      CAPTURE(path);
      fs::remove(path);
      if (kind == S_IFIFO) REQUIRE(mkfifo(path.c_str(), 0600) == 0);
      if (kind == S_IFDIR) fs::create_directory(path);
      if (kind == S_IFLNK) fs::create_symlink(place.path("victim"), path);
      CHECK(place.weft(file == peaks ? plan : train, here).code == 0);
      struct stat status{};
      REQUIRE(lstat(path.c_str(), &status) == 0);
      CHECK((status.st_mode & S_IFMT) == kind);
    }
  CHECK(place.read("victim") == "precious");
}

TEST_CASE("a cache that others may write is neither read nor written") {
  TinyRun place;
  const std::string victim = place.path("victim"), cache = place.path("cache");
  place.write("victim", "precious");
  fs::create_directories(cache + "/peaks");
  fs::create_symlink(victim, cache + "/peaks/" + std::string(name(weft::isa())) + "-1-threads");
  fs::permissions(cache, fs::perms::all);
  const Outcome outcome = place.weft({"plan", "tiny.yaml", "--device", "cpu"},
                                     {{"WEFT_CACHE_DIR", cache}, {"WEFT_THREADS", "1"}});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find(cache + " is open to others (mode 0777)") != std::string::npos);
  CHECK(place.read("victim") == "precious");
  CHECK(std::distance(fs::directory_iterator(cache), {}) == 1);
}

TEST_CASE("damaged or outdated kernels in the cache are named once and compiled again") {
  Workplace place;
  const Workplace::Environment cache{{"WEFT_CACHE_DIR", place.path("cache")}};
  const std::vector<std::string> bench{"bench", "mlp", "--steps", "1"};
  write_peaks(place, "cache", weft::thread_count());
  CHECK(place.weft(bench, cache).err.empty());
  for (const std::string& text : {std::string("weftobj0 of another layout"), std::string()}) {
    for (const auto& kernel : fs::directory_iterator(place.path("cache/kernels")))
      place.write("cache/kernels/" + kernel.path().filename().string(), text);
    const Outcome outcome = place.weft(bench, cache);
    CHECK(std::ranges::count(outcome.err, '\n') == 1);
    CHECK(goes_on_with(
              outcome,
              " is damaged, or from another version of weft; such kernels are compiled again") ==
          "");
    CHECK(place.weft(bench, cache).err.empty());
  }
}
