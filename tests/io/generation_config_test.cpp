#include "weft/io/generation_config.h"

#include <doctest/doctest.h>

#include "tests/io/helpers.h"

using namespace weft;
using namespace weft::test;

namespace {
io::GenerationConfig parse_config(std::string_view text) {
  return io::parse_generation_config(text, "file");
}
std::string error(std::string_view text) {
  return error_of([&] { parse_config(text); });
}
}  // namespace

TEST_CASE("a generation config is read and other keys are ignored") {
  const io::GenerationConfig config = parse_config(R"({
    "bos_token_id": 128000, "eos_token_id": [128001, 128008], "pad_token_id": null,
    "do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 50, "min_p": 0,
    "max_length": 4096, "max_new_tokens": 20, "repetition_penalty": 1.5,
    "transformers_version": "4.45.0", "suppress_tokens": [[]]})");
  CHECK(config == io::GenerationConfig{.eos_token_id = {128001, 128008},
                                       .bos_token_id = 128000,
                                       .max_new_tokens = 20,
                                       .max_length = 4096,
                                       .do_sample = true,
                                       .temperature = 0.6,
                                       .top_k = 50,
                                       .top_p = 0.9,
                                       .min_p = 0.0,
                                       .repetition_penalty = 1.5,
                                       .file = "file"});
  CHECK(parse_config("{}") == io::GenerationConfig{.file = "file"});
  CHECK(parse_config(R"({"eos_token_id": 2})").eos_token_id == std::vector<int64_t>{2});
}

TEST_CASE("a model without a generation config has what its config.json says") {
  const TemporaryFolder folder;
  CHECK(io::read_generation_config(folder.path()).eos_token_id.empty());
  const std::string config = folder.file("config.json", R"({"eos_token_id": 3, "top_k": 5})");
  CHECK(io::read_generation_config(folder.path()) ==
        io::GenerationConfig{.eos_token_id = {3}, .top_k = 5, .file = config});
  const std::string own = folder.file("generation_config.json", R"({"top_k": 7})");
  CHECK(io::read_generation_config(folder.path()) == io::GenerationConfig{.top_k = 7, .file = own});
}

TEST_CASE("values of a wrong kind are refused by their key") {
  CHECK(error("{") == "data: file: not JSON: it ends too early, at line 1, column 2.");
  CHECK(error("3") == "data: file: must be an object.");
  CHECK(error(R"({"eos_token_id": "2"})") ==
        "data: file: eos_token_id must be a whole number. Got \"2\".");
  CHECK(error(R"({"eos_token_id": [1, 2.5]})") ==
        "data: file: eos_token_id must be a whole number. Got 2.5.");
  CHECK(error(R"({"top_k": 1e3})") == "data: file: top_k must be a whole number. Got 1000.0.");
  CHECK(error(R"({"temperature": "hot"})") ==
        "data: file: temperature must be a number. Got \"hot\".");
  CHECK(error(R"({"do_sample": 1})") == "data: file: do_sample must be true or false. Got 1.");
  CHECK(error(R"({"max_length": 18446744073709551615})") ==
        "data: file: max_length must be a whole number. Got 18446744073709551615.");
}
