// Tests `weft run` on runs, checkpoints, published models and ONNX files, with arrays and pictures.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/error/pets_run.h"
#include "tests/error/tiny_run.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "weft/io/npy.h"
#include "weft/models/pretrained.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;

TEST_CASE_FIXTURE(Pets,
                  "a run takes pictures as its recipe prepares them, and names their classes") {
  const Outcome of_arrays = weft({"run", "pets", "--input", "images=rows.npy", "-o", "a.npy"});
  REQUIRE_MESSAGE(of_arrays.code == 0, of_arrays.err);
  CHECK(of_arrays.out.find("logits  f32[40, 2]") != std::string::npos);
  const Outcome of_folder = weft({"run", "pets", "--input", "photos", "-o", "b.npz", "--json"});
  const json found = json_of(of_folder);
  const std::vector<io::NamedTensor> outputs = io::read_npz(path("b.npz"));
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].name == "logits");
  CHECK(max(abs(outputs[0].tensor - array("a.npy"))).item() < 1e-6);

  const std::vector<double> logits = array("a.npy").to_doubles();
  REQUIRE(found["pictures"].size() == count);
  for (size_t i = 0; i < count; ++i) {
    const json& row = found["pictures"][i];
    CHECK(row["file"] == fmt::format("photos/{:02}.png", i));
    const bool is_dog = logits[2 * i + 1] > logits[2 * i];
    REQUIRE(row["classes"].size() == 2);
    CHECK(row["classes"][0]["class"] == (is_dog ? "dog" : "cat"));
    const double apart = std::abs(logits[2 * i + 1] - logits[2 * i]);
    CHECK(row["classes"][0]["probability"].get<double>() ==
          doctest::Approx(1 / (1 + std::exp(-apart))).epsilon(1e-5));
  }

  const Outcome two = weft({"run", "--input", "photos/03.png", "photos/01.png", "--top", "1",
                            "runs/pets/checkpoints/latest"});
  CHECK(two.code == 0);
  CHECK(two.out.find("picture        class  probability\nphotos/03.png  ") == 0);
  CHECK(std::ranges::count(two.out, '\n') == 3);
}

TEST_CASE_FIXTURE(Pets, "an ONNX file takes pictures as flags say") {
  REQUIRE(weft({"convert", "pets", "pets.onnx", "--to", "onnx"}).code == 0);
  REQUIRE(weft({"run", "pets", "--input", "rows.npy", "-o", "a.npy"}).code == 0);
  const Outcome outcome = weft({"run", "pets.onnx", "--input", "photos", "--data.transforms",
                                transforms, "-o", "b.npy", "--top", "1"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("picture        class") == 0);
  CHECK(outcome.out.find("logits") != std::string::npos);
  CHECK(difference("a.npy", "b.npy") < 1e-5);

  // A file of three rows takes as many at a time; the last ones of forty are no multiple.
  REQUIRE(weft({"convert", "pets", "three.onnx", "--to", "onnx", "--batch", "3"}).code == 0);
  REQUIRE(weft({"run", "three.onnx", "--input", "photos", "--data.transforms", transforms, "-o",
                "c.npy"})
              .code == 0);
  CHECK(difference("a.npy", "c.npy") < 1e-5);
}

TEST_CASE_FIXTURE(TinyRun, "a run of a language model takes ids, as many as it has tokens for") {
  io::write_npy(path("ids.npy"), tensor({1, 2, 3, 4}, {2, 2}, DType::i64));
  const Outcome outcome = weft({"run", "tiny", "--input", "input_ids=ids.npy", "-o", "out.npy"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  REQUIRE(weft({"convert", "tiny", "tiny.onnx", "--to", "onnx", "--context", "2"}).code == 0);
  REQUIRE(weft({"run", "tiny.onnx", "--input", "ids.npy", "-o", "file.npy"}).code == 0);
  CHECK(max(abs(io::read_npy(path("out.npy")) - io::read_npy(path("file.npy")))).item() < 1e-5);
}

TEST_CASE("a published model takes ids, and gives the logits of each") {
  const Workplace work;
  write_published(work.path("model"));
  const Tensor ids = tensor({5, 3, 8, 1}, {2, 2}, DType::i64);
  io::write_npy(work.path("ids.npy"), ids);
  const Outcome outcome = work.weft({"run", "model", "--input", "ids.npy", "-o", "out.npy"});
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const models::Pretrained model = models::load_pretrained(work.path("model"));
  const ModeScope inference(Mode::eval);
  const Tensor expected = cast((*model.model)(ids), DType::f32);
  CHECK(max(abs(cast(io::read_npy(work.path("out.npy")), DType::f32) - expected)).item() < 1e-5);
}
