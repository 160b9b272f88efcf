// Tests compiled models: what `weft compile` writes computes what the model computes, in another
// process.
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/error/pets_run.h"
#include "tests/error/tiny_run.h"
#include "tests/support/exit_codes.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "tests/support/skip.h"
#include "weft/base/host/isa.h"
#include "weft/io/npy.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

namespace {
json generated(const Workplace& place, const std::string& model,
               std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {
      "generate", model,           "--prompt", "A cat, a hat:", "--max-new-tokens",
      "20",       "--temperature", "0",        "--json",        "--log-probabilities"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = place.weft(arguments);
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  json result = json::parse(outcome.out);
  result.erase("tokens_per_second");
  return result;
}
}  // namespace

TEST_CASE("a compiled language model generates the tokens and probabilities of its folder") {
  const Workplace place;
  write_published(place.path("model"));
  const Outcome made = place.weft({"compile", "model", "--context", "64", "-o", "m.weft"});
  REQUIRE_MESSAGE(made.code == 0, made.err);
  CHECK(made.out.starts_with("wrote m.weft: 4 plans, "));
  CHECK(generated(place, "m.weft") == generated(place, "model"));
  // Equal inputs give equal files.
  REQUIRE(place.weft({"compile", "model", "--context", "64", "-o", "again.weft"}).code == 0);
  CHECK(place.read("again.weft") == place.read("m.weft"));

  SUBCASE("its weights may be beside it, or another model's") {
    write_published(place.path("other"), {.initializer_range = 0.2});
    for (const std::string model : {"model", "other"})
      REQUIRE(place
                  .weft({"compile", model, "--context", "64", "-o", model + ".weft", "--weights",
                         model + ".safetensors"})
                  .code == 0);
    CHECK(generated(place, "model.weft") == generated(place, "model"));
    CHECK(generated(place, "model.weft", {"--weights", "other.safetensors"}) ==
          generated(place, "other"));
  }
  SUBCASE("it maps arrays of tokens to the logits of the next one") {
    io::write_npy(place.path("ids.npy"), tensor({5, 6, 7, 8, 9}, {1, 5}, DType::i64));
    REQUIRE(place.weft({"run", "m.weft", "--input", "ids.npy", "-o", "next.npy"}).code == 0);
    REQUIRE(place.weft({"run", "model", "--input", "ids.npy", "-o", "all.npy"}).code == 0);
    const Tensor all = io::read_npy(place.path("all.npy")),
                 next = io::read_npy(place.path("next.npy"));
    CHECK(max(abs(reshape(slice(all, 1, 4, 5), next.shape()) - next)).item() < 1e-4);
  }
}

TEST_CASE_FIXTURE(TinyRun,
                  "a compiled run generates with the vocabulary that it was trained with") {
  REQUIRE(weft({"compile", "tiny", "-o", "tiny.weft"}).code == 0);
  const std::vector<std::string> more = {"--prompt", "1+2=",          "--max-new-tokens",
                                         "3",        "--temperature", "0"};
  const auto text_of = [&](const std::string& model) {
    std::vector<std::string> arguments{"generate", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = weft(arguments);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.out;
  };
  CHECK(text_of("tiny.weft") == text_of("tiny"));
}

TEST_CASE_FIXTURE(Pets, "a compiled net takes pictures as the recipe of its run prepares them") {
  REQUIRE(weft({"compile", "pets", "--batch", "40", "-o", "pets.weft"}).code == 0);
  for (const std::string model : {"pets", "pets.weft"})
    REQUIRE(weft({"run", model, "--input", "rows.npy", "-o", model + ".npy"}).code == 0);
  CHECK(read("pets.weft.npy") == read("pets.npy"));
  const json found = json_of(weft({"run", "pets.weft", "--input", "photos", "--json"}));
  CHECK(found["pictures"] ==
        json_of(weft({"run", "pets", "--input", "photos", "--json"}))["pictures"]);
}

TEST_CASE_FIXTURE(Pets, "a compiled net computes on an OpenCL device what its run computes there") {
  const Outcome made =
      weft({"compile", "pets", "--batch", "40", "--device", "opencl:pthread", "-o", "pets.weft"});
  if (made.code == device_code) return weft::testing::skipped(made.err);
  REQUIRE_MESSAGE(made.code == 0, made.err);
  REQUIRE(
      weft({"run", "pets", "--device", "opencl:pthread", "--input", "rows.npy", "-o", "want.npy"})
          .code == 0);
  const Outcome outcome = weft({"run", "pets.weft", "--input", "rows.npy", "-o", "found.npy"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.err == "");
  CHECK(read("found.npy") == read("want.npy"));
}

TEST_CASE_FIXTURE(Pets,
                  "machine code for another instruction set is compiled again, which is said") {
  // A set that WEFT_ISA names gives code for every CPU that has it, not for this CPU alone.
  const std::string isa(name(weft::host_isa()));
  REQUIRE(weft({"compile", "pets", "--batch", "40", "-o", "pets.weft"}, {{"WEFT_ISA", isa}}).code ==
          0);
  const Outcome outcome =
      weft({"run", "pets.weft", "--input", "rows.npy", "-o", "out.npy"}, {{"WEFT_ISA", "auto"}});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.err ==
        "weft: note: pets.weft: its machine code is of another build of weft or for another "
        "WEFT_ISA, so its kernels are compiled again.\n");
}
