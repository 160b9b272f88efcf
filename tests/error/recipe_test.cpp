// Tests errors in recipes, and in the flags and variables for their keys.
#include <doctest/doctest.h>

#include "tests/support/program.h"

using namespace weft::test;

namespace {
const std::string sums = "data: {dataset: addition}\ntrain: {steps: 5}\nmodel: {name: gpt}\n";
}

TEST_CASE("a mistake in a recipe names the file, the line, the key and the limit") {
  struct Mistake {
    std::string recipe, message;
  };
  const std::vector<Mistake> mistakes = {
      {"optimiser: {lr: 1}\n", "wrong.yaml:1: optimiser is no recipe key. Did you mean optimizer?"},
      // yaml-cpp would parse this text forever.
      {std::string(", betas:\001\000\000\0009, 0.99], nesterov: true/}\n", 39),
       "wrong.yaml:1: a recipe is UTF-8 text without control characters. Got the byte 0x01."},
      {"seed: 1\nname: \"\xe9\"\n",
       "wrong.yaml:2: a recipe is UTF-8 text without control characters. Got the byte 0xe9."},
      {"seed: 1\noptimizer:\n  lrr: 1\n",
       "wrong.yaml:3: optimizer.lrr is no recipe key. Did you mean optimizer.lr?"},
      {"optimizer: {lr: fast}\n", "wrong.yaml:1: optimizer.lr must be a number. Got 'fast'."},
      {"optimizer: {lr: -1}\n", "wrong.yaml:1: optimizer.lr must be in 0 .. 100. Got '-1'."},
      {"optimizer: {lr: [1]}\n", "optimizer.lr must be a number. Got a list."},
      {"optimizer: {name: adamm}\n",
       "optimizer.name must be one of adamw, adam, sgd. Got 'adamm'."},
      {"loss: {name: hinge}\n",
       "loss.name must be one of auto, cross_entropy, mse, l1, huber. Got 'hinge'."},
      {"eval: {metrics: [recall]}\n",
       "eval.metrics must be one of accuracy, exact_match, perplexity, mae, rmse, r2. Got "
       "'recall'."},
      {sums + "loss: {name: mse}\n",
       "loss.name mse takes numbers. The task of these data is causal_lm. Hint: --loss.name auto."},
      {sums + "loss: {delta: 2}\n", "loss.delta is a key of huber. Got loss.name auto."},
      {sums + "eval: {metrics: [r2]}\n",
       "eval.metrics: r2 takes numbers. The task of these data is causal_lm."},
      {sums + "checkpoint: {best: r2}\n",
       "checkpoint.best is loss or accuracy with these data. Got r2."},
      {sums + "eval: {metrics: [accuracy]}\n",
       "eval.metrics: evaluations report exact_match as accuracy with these data."},
      {"train: {steps: 0}\n", "train.steps must be at least 1. Got '0'."},
      {"train: {steps: 1.5}\n", "train.steps must be a whole number. Got '1.5'."},
      {"train: {precision: int3}\n", "train.precision must be one of"},
      {"train: {device: gpu}\n",
       "train.device must be one of auto, cpu, cuda, cuda:N, cuda:GPU, opencl, opencl:DEVICE, "
       "reference. Got 'gpu'."},
      {"model: {name: gpt}\ndata: {dataset: addition}\ntrain: {steps: 5, rounding: kahan}\n",
       "train.rounding is for train.precision bf16: the parameters of fp32 are not rounded."},
      {"data: {reversed: perhaps}\n", "data.reversed must be true or false. Got 'perhaps'."},
      {"train: 5\n", "wrong.yaml:1: train must be a map. Got '5'."},
      {"- a\n- b\n", "a recipe is a map of keys. Got a list."},
      {"train: {steps: 5\n", "not YAML"},
      {"a: &b 1\nc: *b\n", "a recipe has no anchors and aliases"},
      {"a: b#c\nd: e#f: &g 1\n", "a recipe has no anchors and aliases"},
      {"data: {seq_len: 2M}\n", "data.seq_len must be in 1 .. 1048576. Got '2M'."},
      {"", "wrong.yaml: exactly one of model.name, model.pretrained and model.layers must be set."},
      {"seed: 1\nmodel: {name: gpt, layers: [relu]}\n",
       "wrong.yaml:2: exactly one of model.name, model.pretrained and model.layers must be set."},
      {"model: {name: gpt}\n", "exactly one of data.dataset and data.format must be set."},
      {"model: {name: gpt}\ndata: {format: text}\n", "data.format needs data.path."},
      {"model: {name: gpt}\ndata: {dataset: addition}\n",
       "exactly one of train.epochs and train.steps must be set."},
      {sums + "name: ../up\n", "name must be a folder name"},
      {sums + "task: masked_lm\n", "task masked_lm needs text or random-tokens."},
      {sums + "task: classification\n", "the task of these data is causal_lm. Got classification."},
      {sums + "eval: {every: often}\n", "eval.every must be 'epoch' or a number of steps"},
      {"model: {name: gpt}\ndata: {dataset: addition}\ntrain: {steps: 5, global_batch_size: 10, "
       "micro_batch_size: 3}\n",
       "train.micro_batch_size must divide train.global_batch_size. Got 3 and 10."},
      {"seed: 1\nname: a\nseed: 2\n", "wrong.yaml:3: seed is given twice."},
      {"train:\n  steps: 1\n  steps: 2\n", "wrong.yaml:3: train.steps is given twice."},
      {"model: {config: {depth: 1, depth: 2}}\n", "model.config.depth is given twice."},
      {"train: {steps: 3X}\n", "train.steps must be a whole number. Got '3X'."},
      {"train: {steps: 9999999999G}\n", "train.steps must be at most 9000000000000000."},
      {sums + "scheduler: {name: wsd}\n", "scheduler.decay_steps is required by wsd"},
      {sums + "scheduler: {name: wsd, decay_steps: 6}\n",
       "scheduler.decay_steps is at most the 5 steps after warmup. Got 6."},
      {sums + "scheduler: {name: step}\n", "scheduler.step_size is required by step"},
      {sums + "scheduler: {name: cosine, warmup_steps: 7}\n",
       "scheduler.warmup_steps must leave some of the 5 steps of the run to cosine. Got 7."},
      {sums + "scheduler: {name: linear, warmup_ratio: 1}\n", "scheduler.warmup_ratio must leave"},
      {sums + "scheduler: {warmup_steps: 2, warmup_ratio: 0.1}\n",
       "at most one of scheduler.warmup_steps and scheduler.warmup_ratio can be set."},
      {sums + "scheduler: {min_lr: 0.5}\n",
       "wrong.yaml:4: scheduler.min_lr is at most optimizer.lr. Got 0.5 and 0.001."},
      {sums + "optimizer: {betas: [0.9]}\n", "optimizer.betas has two numbers. Got 1."},
      {sums + "optimizer: {name: adamw, momentum: 0.9}\n", "adamw has no momentum."},
      {"model: {name: gpt}\ndata: {dataset: addition, transforms: [random_crop]}\ntrain: {steps: "
       "5}\n",
       "data.transforms are for images."},
      {"model: {name: gpt}\ndata: {dataset: addition, mean: [0], std: [1]}\ntrain: {steps: 5}\n",
       "data.mean and data.std apply only to images read from files."},
      {"model: {name: gpt}\ndata: {dataset: addition, mean: [0]}\ntrain: {steps: 5}\n",
       "data.mean and data.std must be set together."},
      {"model: {name: gpt}\ndata: {dataset: addition, mean: [123], std: [58]}\n",
       "data.mean must be in 0 .. 1. Got"},
      {"model: {name: gpt}\ndata: {dataset: addition}\ntrain: {steps: 5, global_batch_size: "
       "10000000}\n",
       "wrong.yaml:3: train.global_batch_size is at most the 100000 samples of an epoch."},
  };
  Workplace place;
  for (const Mistake& mistake : mistakes) {
    place.write("wrong.yaml", mistake.recipe);
    CHECK(fails_with(place.weft({"plan", "wrong.yaml"}), 2, mistake.message) == "");
  }
}

TEST_CASE("a mistake in a flag or a variable names it") {
  Workplace place;
  place.write("sums.yaml", sums);
  auto plan = [&](std::vector<std::string> flags, const Workplace::Environment& environment = {}) {
    flags.insert(flags.begin(), {"plan", "sums.yaml"});
    return place.weft(flags, environment);
  };
  CHECK(fails_with(plan({"--optimizer.lr", "fast"}), 2,
                   "--optimizer.lr: optimizer.lr must be a number. Got 'fast'.") == "");
  CHECK(fails_with(plan({"--scheduler.min_lr", "0.5"}), 2,
                   "--scheduler.min_lr: scheduler.min_lr is at most optimizer.lr.") == "");
  CHECK(fails_with(plan({"--model.config.heads", "[a]"}), 2,
                   "--model.config.heads: model.config lists hold numbers.") == "");
  CHECK(fails_with(plan({"--model.configuration.heads", "3"}), 2,
                   "model.configuration.heads is no recipe key.") == "");
  CHECK(fails_with(plan({"--optimizer.lr"}), 2, "--optimizer.lr needs a value.") == "");
  CHECK(fails_with(plan({"--optimizer.rate", "1"}), 2, "optimizer.rate is no recipe key.") == "");
  CHECK(fails_with(plan({"--lr", "fast"}), 2, "--lr: optimizer.lr must be a number. Got 'fast'.") ==
        "");
  CHECK(fails_with(plan({"--device", "gpu"}), 2, "--device: train.device must be one of") == "");
  CHECK(fails_with(plan({"--no-optimizer.lr"}), 2, "optimizer.lr is not true or false.") == "");
  CHECK(fails_with(plan({"--steps", "5", "--epochs", "5"}), 2,
                   "exactly one of train.epochs and train.steps") == "");
  CHECK(fails_with(plan({}, {{"WEFT__OPTIMIZER__LR", "fast"}}), 2,
                   "WEFT__OPTIMIZER__LR: optimizer.lr must be a number.") == "");
  CHECK(fails_with(plan({}, {{"WEFT__OPTIMIZER__RATE", "1"}}), 2,
                   "optimizer.rate is no recipe key.") == "");
}
