// Tests `weft plan --as`: estimates of runs on devices that need not be here.
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/support/exit_codes.h"
#include "tests/support/program.h"

using namespace weft::test;
using nlohmann::json;

namespace {
struct Estimated : Workplace {
  // Llama 3.1 8B, none of whose files are here.
  Estimated() {
    write(
        "8b.yaml",
        "model: {name: llama-8b}\ndata: {dataset: random-tokens, classes: 128256, seq_len: 2048}\n"
        "train: {steps: 100, global_batch_size: 64, precision: bf16-mixed}\n");
    write(
        "resnet.yaml",
        "model: {name: resnet50}\ndata: {dataset: random-images, image_size: 224, classes: 1000}\n"
        "optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n"
        "train: {epochs: 90, global_batch_size: 256, precision: bf16-mixed}\n");
  }
  Outcome ask(std::vector<std::string> more, const std::string& recipe = "8b.yaml") const {
    more.insert(more.begin(), {"plan", recipe});
    return weft(more);
  }
  json answer(std::vector<std::string> more, const std::string& recipe = "8b.yaml") const {
    more.emplace_back("--json");
    const Outcome outcome = ask(std::move(more), recipe);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    return json::parse(outcome.out);
  }
};

double sum(const json& parts) {
  double all = 0;
  for (const auto& part : parts) all += part.get<double>();
  return all;
}
}  // namespace

TEST_CASE("an estimate says layout, memory and time by part, hours, money and energy") {
  const Estimated place;
  const json one = place.answer({"--as", "pytorch", "--on", "h100x8"});
  CHECK(one["fits"] == true);
  CHECK(one["layout"]["shards"].get<int>() * one["layout"]["tensor"].get<int>() *
            one["layout"]["pipeline"].get<int>() ==
        8);
  CHECK(sum(one["memory"]) == doctest::Approx(one["memory_bytes"].get<double>()));
  CHECK(sum(one["time"]) == doctest::Approx(one["step_seconds"].get<double>()));
  CHECK(one["memory_bytes"] < one["memory_available_bytes"]);
  CHECK(one["device_hours"].get<double>() ==
        doctest::Approx(100 * one["step_seconds"].get<double>() * 8 / 3600));
  CHECK(one["usd"].get<double>() == doctest::Approx(one["device_hours"].get<double>() *
                                                    one["usd_per_device_hour"].get<double>()));
  // The devices do no more operations than their peak allows: 6 for each parameter and token.
  CHECK(one["units_per_second"].get<double>() * 6 * 8.03e9 < 8 * 989.4e12);
  const Outcome text = place.ask({"--as", "pytorch", "--on", "h100x8", "--plan.usd_per_hour", "2"});
  CHECK(text.code == 0);
  CHECK(says(text.out, "fits, with"));
  CHECK(says(text.out, "at $2.00 a device"));
}

TEST_CASE("a misfit is refused with what fits: other state, adapters, more devices") {
  const Estimated place;
  const Outcome outcome = place.ask({"--as", "pytorch", "--on", "rtx4090"});
  CHECK(outcome.code == does_not_fit);
  CHECK(says(outcome.out, "--method lora"));
  CHECK(says(outcome.out, "--method qlora"));
  CHECK(says(outcome.err, "does not fit"));
  CHECK(says(outcome.err, "Hint: --on rtx4090x"));
  CHECK(place.ask({"--as", "pytorch", "--on", "rtx4090", "--method", "qlora"}).code == 0);
}

TEST_CASE(
    "several devices are one table, and those that the catalogue knows too little of are named") {
  const Estimated place;
  const json all = place.answer({"--as", "megatron", "--on", "allx8", "--batch", "64"});
  CHECK(all.size() > 100);
  double last = 0;
  bool fit = true;
  for (const json& each : all) {
    CHECK((fit || !each["fits"].get<bool>()));  // those that fit come first
    fit = each["fits"].get<bool>();
    if (!fit) continue;
    CHECK(each["seconds"].get<double>() >= last);
    last = each["seconds"].get<double>();
  }
  const Outcome table = place.ask({"--as", "pytorch", "--on", "h100x8,t4x8,rtx3090"});
  CHECK(says(table.out, "rtx3090  does not fit"));
  CHECK(says(table.out, "t4x8: the catalogue does not know its dense peak in bf16"));
  CHECK(says(table.out, "--precision fp16-mixed"));
}

TEST_CASE("a deadline and a budget choose how many devices") {
  const Estimated place;
  const auto hours = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = {"--as", "pytorch", "--on", "h100", "--tokens", "1B"};
    flags.insert(flags.end(), more.begin(), more.end());
    return place.answer(flags);
  };
  const json slow = hours({"--deadline", "24h"}), quick = hours({"--deadline", "1h"});
  CHECK(slow["seconds"] <= 24 * 3600);
  CHECK(quick["seconds"] <= 3600);
  CHECK(quick["devices"] > slow["devices"]);
  CHECK(hours({"--budget", "100"})["usd"] <= 100);
  const Outcome poor =
      place.ask({"--as", "pytorch", "--on", "h100", "--tokens", "1T", "--budget", "10"});
  CHECK(poor.code == does_not_fit);
  CHECK(says(poor.err, "misses its deadline or budget"));
}

TEST_CASE("the largest batch fits, one more sample does not, and a smaller one suffices") {
  const Estimated place;
  const json one =
      place.answer({"--as", "pytorch", "--on", "h200", "--batch", "max", "--precision", "bf16"});
  const double largest = one["batches"].back()["batch"];
  const auto whole = [&](double batch) {
    const std::string count = std::to_string(static_cast<int64_t>(batch));
    return place
        .ask({"--as", "pytorch", "--on", "h200", "--precision", "bf16", "--batch", count,
              "--train.micro_batch_size", count})
        .code;
  };
  CHECK(whole(largest) == 0);
  CHECK(whole(largest + 1) == does_not_fit);
}

TEST_CASE("samples and epochs replace the data of a recipe") {
  const Estimated place;
  const json one =
      place.answer({"--as", "pytorch-amp", "--on", "a100", "--samples", "1281167"}, "resnet.yaml");
  CHECK(one["steps"] == 1281167 / 256 * 90);
  // Published: 13.0 h on an A100 at 2,470 images a second.
  CHECK(one["seconds"].get<double>() / 3600 == doctest::Approx(13).epsilon(0.2));
}

TEST_CASE("what cannot be estimated is refused by name") {
  const Estimated place;
  const auto refused = [&](std::vector<std::string> flags, const std::string& by) {
    CAPTURE(by);
    const Outcome outcome = place.ask(std::move(flags));
    CHECK(outcome.code == usage);
    CHECK(says(outcome.err, by));
  };
  refused({"--as", "pytorch"}, "needs devices");
  refused({"--as", "torch", "--on", "h100"}, "--as torch: no such program. They are weft, pytorch");
  refused({"--as", "pytorch", "--on", "h1000"}, "Did you mean h100?");
  refused({"--as", "pytorch", "--on", "h100x0"}, "between 1 and 65536");
  refused({"--as", "pytorch", "--on", "h100x3"}, "no layout of 3 devices divides llama-8b");
  refused({"--as", "pytorch", "--on", "h100", "--deadline", "7"},
          "--deadline is a time such as 7d");
  refused({"--as", "pytorch", "--on", "h100", "--method", "dora"}, "full, lora and qlora");
  refused({"--as", "pytorch", "--on", "h100", "--products", "f9"}, "no such type");
  refused({"--batch", "max"}, "--batch max is for estimates");
  refused({"--deadline", "7d"}, "--deadline is for estimates. Hint: --as weft.");
  refused({"--parallel.tensor", "2"}, "does not run yet");
}
