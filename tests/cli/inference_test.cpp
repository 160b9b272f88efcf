// Checks what `weft plan MODEL` and `weft profile MODEL` say of the inference of published models.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/json_rows.h"
#include "tests/support/near.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "weft/io/safetensors.h"

using namespace weft::test;
using nlohmann::json;
using weft::testing::near;

namespace {
std::vector<std::string> operator+(std::vector<std::string> command,
                                   const std::vector<std::string>& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

double flops_of(const json& rows) {
  double flops = 0;
  for (const json& row : rows)
    flops += 1e6 * row["gflops_per_s"].get<double>() * row["ms"].get<double>();
  return flops;
}

// Returns the elements of the matrices whose names contain `part`.
double matrix_elements(const std::string& file, const std::string& part) {
  const weft::io::Safetensors weights = weft::io::Safetensors::open(file);
  double elements = 0;
  for (const auto& entry : weights.entries())
    if (entry.type.shape.size() == 2 && entry.name.find(part) != std::string::npos)
      elements += static_cast<double>(weft::element_count(entry.type.shape));
  return elements;
}
}  // namespace

TEST_CASE("a profile of a published model has the work of a prompt and of a token, as planned") {
  Workplace place;
  write_published(place.path("model"));
  REQUIRE(place.weft({"convert", "model", "model.gguf", "--to", "gguf"}).code == 0);
  const std::string weights = place.path("model/model.safetensors");
  const double layers = matrix_elements(weights, "layers."),
               head = matrix_elements(weights, "lm_head");
  for (const char* model : {"model", "model.gguf"}) {
    CAPTURE(model);
    const std::vector<std::string> flags = {model, "--batch",  "3",   "--context",
                                            "24",  "--device", "cpu", "--json"};
    const json planned = json_of(place.weft(std::vector<std::string>{"plan"} + flags));
    const json profile = json_of(place.weft(
        std::vector<std::string>{"profile", "--steps", "2", "--trace", "t.json"} + flags));
    CHECK(profile.size() == 2);
    std::map<std::string, double> traced;  // seconds by plan
    int updates = 0;
    double last = 0;
    const json trace = json::parse(place.read("t.json"));
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] != "X") continue;
      CHECK(event["ts"] >= last);
      last = event["ts"];
      if (event["cat"] == "step")
        ++updates;
      else
        traced[event["args"]["plan"]] += event["dur"].get<double>();
    }
    CHECK(updates == 4);
    for (const char* step : {"prefill", "decode"}) {
      CAPTURE(step);
      const json& of_step = profile[step];
      CHECK(of_step["steps"] == 2);
      CHECK(of_step["kernels_ms"] <= of_step["mean_ms"]);
      for (const char* table : {"modules", "operations", "kernels", "plan"}) {
        CHECK(sum_of(of_step[table], "count") == near(planned[step]["kernels"].get<double>()));
        CHECK(flops_of(of_step[table]) == near(planned[step]["flops"].get<double>()));
      }
      CHECK(traced[step] / 2e3 == near(of_step["kernels_ms"].get<double>()));
      // A prompt has logits after its last token only. What is fused into products adds to them.
      const double tokens = std::string(step) == "prefill" ? 24 : 1;
      const double products = 2 * 3 * (tokens * layers + head);
      for (const json& row : of_step["operations"])
        if (row["operation"] == "matmul") {
          CHECK(flops_of(json::array({row})) > 0.999 * products);
          CHECK(flops_of(json::array({row})) < 1.5 * products);
        }
    }
  }
}

TEST_CASE("a profile of a published model prints a table for each step and draws both") {
  Workplace place;
  write_published(place.path("model"));
  const Outcome outcome =
      place.weft({"profile", "model", "--steps", "1", "--dtype", "bf16", "--memory-svg", "m.svg",
                  "--roofline-svg", "r.svg", "--trace", "t.json"},
                 {{"COLUMNS", "200"}});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  // The cache has room for what the model takes, which is less than 768 tokens.
  const size_t prompt = outcome.out.find("model, prompt of 64 tokens, 1 of at most 64 tokens\n");
  const size_t token = outcome.out.find("model, each next token, 1 of at most 64 tokens\n");
  CHECK(prompt < token);
  REQUIRE(token != std::string::npos);
  for (const char* title : {"module ", "operation ", "kernel ", "roofline", "tok/s"}) {
    CHECK(outcome.out.find(title) < token);
    CHECK(outcome.out.find(title, token) != std::string::npos);
  }
  int working = 0, dots = 0;  // kernels with arithmetic
  const json trace = json::parse(place.read("t.json"));
  for (const json& event : trace["traceEvents"])
    working += event["ph"] == "X" && event["cat"] != "step" && event["args"]["flops"] > 0 ? 1 : 0;
  const std::string roof = place.read("r.svg");
  for (size_t at = roof.find("<circle"); at != std::string::npos; at = roof.find("<circle", at + 1))
    ++dots;
  CHECK(dots == working);
  CHECK(place.read("m.svg").find("model, prefill") != std::string::npos);
}

TEST_CASE(
    "plan and profile of an encoder are those of its forward pass, without files of weights") {
  for (const char* family : {"bert", "roberta", "distilbert"})
    for (const char* head :
         {"ForMaskedLM", "ForTokenClassification", "ForSequenceClassification"}) {
      CAPTURE(family);
      CAPTURE(head);
      const Workplace place;
      write_published_encoder(place.path("encoder"), {.family = family, .head = head});
      const std::string file = place.path("encoder/model.safetensors");
      double bytes = 0;
      {
        const weft::io::Safetensors weights = weft::io::Safetensors::open(file);
        for (const auto& entry : weights.entries()) bytes += entry.type.bytes();
      }
      const std::vector<std::string> flags = {"encoder", "--batch",  "3",   "--context",
                                              "12",      "--device", "cpu", "--json"};
      const json profile =
          json_of(place.weft(std::vector<std::string>{"profile", "--steps", "1"} + flags));
      const double layers = matrix_elements(file, "layer.");
      std::filesystem::remove(file);
      const json planned = json_of(place.weft(std::vector<std::string>{"plan"} + flags));
      CHECK(planned["weight_bytes"] == bytes);
      CHECK(planned["cache_bytes"] == 0);
      CHECK(planned["context"] == 12);
      CHECK(planned["forward"]["tokens"] == 3 * 12);
      CHECK(planned["total_bytes"] ==
            bytes + planned["arena_bytes"].get<double>() + planned["constant_bytes"].get<double>());
      CHECK(sum_of(profile["forward"]["kernels"], "count") ==
            near(planned["forward"]["kernels"].get<double>()));
      CHECK(flops_of(profile["forward"]["operations"]) ==
            near(planned["forward"]["flops"].get<double>()));
      // The products of all layers are computed for each token; embeddings are none.
      CHECK(planned["forward"]["flops"] > 2 * 3 * 12 * layers);
    }
}

TEST_CASE("an encoder is planned for GPUs that are not here, in one table") {
  const Workplace place;
  write_published_encoder(place.path("encoder"));
  const std::vector<std::string> question = {"plan", "encoder", "--batch", "8"};
  const Outcome alone = place.weft(question);
  REQUIRE_MESSAGE(alone.code == 0, alone.err);
  for (const char* part : {"sequences ", "8 of at most 32 tokens", "weights ", "arena ", "total ",
                           "forward pass of 8 x 32 "})
    CHECK(alone.out.find(part) != std::string::npos);
  CHECK(alone.out.find("cache") == std::string::npos);
  const json plans =
      json_of(place.weft(question + std::vector<std::string>{"--on", "t4,h100", "--json"}));
  REQUIRE(plans.size() == 2);
  CHECK(plans[0]["on"] == "h100");
  CHECK(plans[0]["plan"]["forward"]["seconds"] < plans[1]["plan"]["forward"]["seconds"]);
  const json half = json_of(
      place.weft(question + std::vector<std::string>{"--on", "h100", "--dtype", "bf16", "--json"}));
  CHECK(2 * half["weight_bytes"].get<int64_t>() == plans[0]["plan"]["weight_bytes"]);
  const Outcome table = place.weft(question + std::vector<std::string>{"--on", "t4,h100"});
  CHECK(table.out.starts_with("device "));
  CHECK(table.out.find("forward pass of 8 x 32") != std::string::npos);
}
