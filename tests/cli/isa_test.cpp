// Tests the instruction set that WEFT_ISA allows, read from the machine code of the kernels.
#include "weft/base/host/isa.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/known_peaks.h"
#include "tests/support/program.h"
#include "weft/base/host/parallel.h"

using namespace weft::test;
using nlohmann::json;

namespace {
// Returns the smallest instruction set that the code of these kernels needs: 'x' is SSE, 'y' AVX
// (VEX encodings or ymm registers), 'z' AVX-512. A cache file is a line of text followed by an
// object file.
char set_of(const Workplace& place, const std::set<std::string>& kernels) {
  static const std::regex line("\\t([a-z0-9]+) +([^#<]*)");
  static const std::regex avx512("%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])");
  char least = 'x';
  for (const std::string& kernel : kernels) {
    const std::string object = place.read("cache/kernels/" + kernel);
    place.write("kernel.o", object.substr(object.find("\x7f"
                                                      "ELF")));
    const std::string listing = place.path("kernel.s");
    REQUIRE(std::system(("objdump -d --no-show-raw-insn " + place.path("kernel.o") + " >" + listing)
                            .c_str()) == 0);
    std::istringstream code(place.read("kernel.s"));
    for (std::string text; std::getline(code, text);) {
      std::smatch found;
      if (!std::regex_search(text, found, line)) continue;
      const std::string name = found[1], operands = found[2];
      if (std::regex_search(operands, avx512)) least = 'z';
      if (name.starts_with('v') || operands.find("%ymm") != std::string::npos)
        least = std::max(least, 'y');
    }
  }
  return least;
}
}  // namespace

TEST_CASE("the instruction set of WEFT_ISA applies to kernels, plans and caches") {
  Workplace place;
  place.write("sums.yaml",
              "model: {name: gpt, config: {hidden_size: 16, num_attention_heads: 2}}\n"
              "data: {dataset: addition}\ntrain: {steps: 1}\n");
  const std::string kernels = place.path("cache/kernels");
  auto weft = [&](const std::vector<std::string>& arguments, const std::string& isa) {
    const Workplace::Environment held{{"WEFT_ISA", isa}, {"WEFT_CACHE_DIR", place.path("cache")}};
    const auto result = place.weft(arguments, held);
    REQUIRE(result.code == 0);
    return result.out;
  };
  std::set<std::string> used, objects;
  for (const std::string isa : {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (weft::isa_named(isa) > weft::host_isa()) continue;
    CAPTURE(isa);
    write_peaks(place, "cache", weft::thread_count(), *weft::isa_named(isa));
    CHECK(json::parse(weft({"devices", "--json"}, isa))["isa"] == isa);
    CHECK(weft({"doctor"}, isa).find(", " + isa) != std::string::npos);
    const json plan = json::parse(weft({"plan", "sums.yaml", "--json"}, isa));
    CHECK(plan["isa"] == isa);
    used.insert(plan["machine"].get<std::string>());
    weft({"bench", "mlp", "--steps", "1"}, isa);
    std::set<std::string> made;
    for (const auto& file : std::filesystem::directory_iterator(kernels))
      if (const std::string name = file.path().filename(); objects.insert(name).second)
        made.insert(name);
    CHECK(!made.empty());
    CHECK(set_of(place, made) == (isa == "baseline" ? 'x' : isa == "avx2" ? 'y' : 'z'));
  }
  CHECK(used.size() == static_cast<size_t>(weft::host_isa()) + 1);
  auto written = [&] {
    std::map<std::string, std::filesystem::file_time_type> times;
    for (const auto& file : std::filesystem::directory_iterator(kernels))
      times[file.path()] = file.last_write_time();
    return times;
  };
  const auto before = written();
  weft({"bench", "mlp", "--steps", "1"}, "baseline");
  CHECK(written() == before);  // all kernels come from the cache
}
