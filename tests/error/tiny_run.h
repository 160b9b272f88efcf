// Declares a small run to damage.
#pragma once

#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/exit_codes.h"
#include "tests/support/program.h"

namespace weft::test {

struct TrainedTiny : Workplace {
  TrainedTiny() {
    write("tiny.yaml",
          "name: tiny\nmodel: {name: gpt, config: {hidden_size: 16, num_hidden_layers: 1, "
          "num_attention_heads: 2}}\n"
          "data: {dataset: addition, digits: 1}\ntrain: {steps: 2, global_batch_size: 4}\n"
          "eval: {batch_size: 4}\ncheckpoint: {every: 1}\n");
    Outcome outcome = weft({"train", "tiny.yaml", "--json"});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  }
};

// TinyRun is a run of two steps with a tiny model, saved as runs/tiny: a copy of one that is
// trained once for all tests.
struct TinyRun : Workplace {
  TinyRun() {
    static const TrainedTiny trained;
    std::filesystem::copy(
        trained.folder(), folder(),
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  }
};

}  // namespace weft::test
