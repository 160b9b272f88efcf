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
#include "tests/support/onnx_net.h"
#include "tests/support/program.h"
#include "tests/support/published_model.h"
#include "weft/io/files.h"
#include "weft/io/npy.h"
#include "weft/models/pretrained.h"
#include "weft/pictures/image.h"
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

namespace {
// Upscaling is a net that doubles the sides of pictures by repeating pixels, with three pictures.
struct Upscaling : Workplace {
  Upscaling() {
    onnx::Model model;
    model.ir_version = 8;
    model.opsets = {{"", 17}};
    model.graph.inputs = {{.name = "x",
                           .dtype = DType::f32,
                           .shape = {{{-1, "n"}, {3, ""}, {-1, "h"}, {-1, "w"}}},
                           .refused = {}}};
    model.graph.outputs = {{.name = "y", .dtype = DType::f32, .shape = {}, .refused = {}}};
    model.graph.initializers = {
        {.name = "scales", .value = tensor({1.0, 1.0, 2.0, 2.0}, {4}, DType::f32).eval()}};
    model.graph.nodes = {{.op = "Resize",
                          .inputs = {"x", "", "scales"},
                          .outputs = {"y"},
                          .attributes = {{"mode", "nearest"},
                                         {"coordinate_transformation_mode", "asymmetric"},
                                         {"nearest_mode", "floor"}}}};
    onnx::write(model, path("net.onnx"));
    for (int i = 0; i < 3; ++i) pictures::write_image(path(fmt::format("{}.png", i)), picture(i));
  }
  // Runs a net on pictures.
  Outcome run(std::vector<std::string> words, const std::string& net = "net.onnx") const {
    words.insert(words.begin(), {"run", net, "--data.transforms",
                                 "[{normalize: {mean: [0, 0, 0], std: [1, 1, 1]}}]", "--input"});
    return weft(words);
  }
  std::vector<uint8_t> pixels(const std::string& name, int channels = 3) const {
    return pictures::read_image(path(name), channels).pixels;
  }
};

std::vector<uint8_t> doubled(const pictures::Image& image) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < 2 * image.height; ++y)
    for (int64_t x = 0; x < 2 * image.width; ++x)
      for (int64_t c = 0; c < image.channels; ++c)
        pixels.push_back(
            image.pixels[static_cast<size_t>((y / 2 * image.width + x / 2) * image.channels + c)]);
  return pixels;
}
}  // namespace

TEST_CASE_FIXTURE(Upscaling, "pictures go into a net, and its output is written as pictures") {
  const Outcome one = run({"0.png", "-o", "out.png"});
  REQUIRE_MESSAGE(one.code == 0, one.err);
  CHECK(one.out.ends_with("\nwrote out.png\n"));
  CHECK(one.err.empty());
  CHECK(pixels("out.png") == doubled(picture(0)));

  const Outcome all = run({"0.png", "1.png", "2.png", "-o", "out.png"});
  REQUIRE_MESSAGE(all.code == 0, all.err);
  CHECK(all.out.ends_with("\nwrote 3 pictures, out-1.png to out-3.png\n"));
  for (int i = 0; i < 3; ++i)
    CHECK(pixels(fmt::format("out-{}.png", i + 1)) == doubled(picture(i)));

  std::vector<std::string> ten(10, "1.png");
  ten.insert(ten.end(), {"-o", "many.png", "--json"});
  const json written = json_of(run(ten))["written"];
  REQUIRE(written.size() == 10);
  CHECK(written[0] == "many-01.png");
  CHECK(written[9] == "many-10.png");
  CHECK(pixels("many-10.png") == doubled(picture(1)));
}

TEST_CASE_FIXTURE(Upscaling,
                  "an array takes the place of the default that a file has for an input") {
  onnx::Model model = onnx::read(path("net.onnx"));
  model.graph.defaults = {{.name = "scales", .dtype = DType::f32, .shape = {{{4, ""}}}}};
  onnx::write(model, path("default.onnx"));
  CHECK(onnx::read(path("default.onnx")).graph.inputs.size() == 1);
  io::write_npy(path("x.npy"), ones({1, 3, 2, 2}));
  io::write_npy(path("wide.npy"), tensor({1.0, 1.0, 1.0, 3.0}, {4}, DType::f32));
  const auto shape_with = [&](std::vector<std::string> arrays) {
    arrays.insert(arrays.begin(), {"run", "default.onnx", "-o", "y.npy", "--input", "x.npy"});
    const Outcome outcome = weft(arrays);
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return io::read_npy(path("y.npy")).shape();
  };
  CHECK(shape_with({}) == Shape{1, 3, 4, 4});
  CHECK(shape_with({"scales=wide.npy"}) == Shape{1, 3, 2, 6});
}

TEST_CASE_FIXTURE(Upscaling, "a JPEG of an output is near to its pixels") {
  pictures::Image slope{.height = 16, .width = 16, .channels = 3};
  for (int i = 0; i < 16 * 16 * 3; ++i) slope.pixels.push_back(static_cast<uint8_t>(i / 3));
  pictures::write_image(path("slope.png"), slope);
  for (const char* name : {"out.jpg", "out.JPEG"}) {
    const Outcome outcome = run({"slope.png", "-o", name});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    const std::vector<uint8_t> wanted = doubled(slope), got = pixels(name);
    REQUIRE(got.size() == wanted.size());
    int largest = 0;
    for (size_t i = 0; i < got.size(); ++i)
      largest = std::max(largest, std::abs(got[i] - wanted[i]));
    CHECK(largest <= 16);
  }
}

TEST_CASE_FIXTURE(Upscaling, "a net whose rows have no channels gives gray pictures") {
  write_net(path("mean.onnx"),
            {.op = "ReduceMax",
             .inputs = {"x"},
             .outputs = {"y"},
             .attributes = {{"axes", std::vector<int64_t>{1}}, {"keepdims", int64_t{0}}}},
            DType::f32, {{-1, "n"}, {3, ""}, {-1, "h"}, {-1, "w"}});
  const Outcome outcome = run({"0.png", "1.png", "2.png", "-o", "out.png"}, "mean.onnx");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::vector<uint8_t> colours = picture(2).pixels;
  std::vector<uint8_t> gray;
  for (size_t i = 0; i < colours.size(); i += 3)
    gray.push_back(std::max({colours[i], colours[i + 1], colours[i + 2]}));
  CHECK(pixels("out-3.png", 1) == gray);
}

TEST_CASE("arrays become pictures: u8 as it is, floats from 0 to 1, rounded and clipped") {
  const Workplace work;
  const auto run = [&](const Tensor& x, const std::string& output) {
    std::vector<onnx::Dim> shape;
    for (int64_t extent : x.shape()) shape.push_back({extent, ""});
    write_identity(work.path("net.onnx"), x.dtype(), shape);
    io::write_npy(work.path("x.npy"), x);
    const Outcome outcome = work.weft({"run", "net.onnx", "--input", "x.npy", "-o", output});
    REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
    return outcome.err;
  };
  const auto pixels = [&](int channels) {
    return pictures::read_image(work.path("a.png"), channels).pixels;
  };
  using Bytes = std::vector<uint8_t>;
  const auto of = [](const Bytes& bytes, const Shape& shape) {
    return tensor(std::vector<double>(bytes.begin(), bytes.end()), shape, DType::u8);
  };
  const Bytes planes{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};  // [C, H, W] of 1 x 3 pixels
  CHECK(run(of(Bytes(planes.begin(), planes.begin() + 9), {3, 1, 3}), "a.png").empty());
  CHECK(pixels(3) == Bytes{1, 4, 7, 2, 5, 8, 3, 6, 9});
  CHECK(run(of(planes, {4, 1, 3}), "a.png").empty());
  CHECK(pixels(3) == Bytes{1, 4, 7, 2, 5, 8, 3, 6, 9});  // readers drop alpha
  constexpr size_t colour_type = 25;
  CHECK(work.read("a.png")[colour_type] == 6);  // RGBA
  CHECK(run(of(planes, {1, 1, 3, 4}), "a.png").empty());
  CHECK(pixels(1) == planes);

  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    const Tensor x = tensor({0.0, 0.4 / 255, 0.6 / 255, 127.4 / 255, 127.6 / 255, 1.0}, {1, 2, 3});
    CHECK(run(cast(x, dtype).eval(), "a.png").empty());
    CHECK(pixels(1) == Bytes{0, 0, 1, 127, 128, 255});
  }
  CHECK(run(tensor({-0.5, 0.5, 1.25, INFINITY}, {1, 1, 2, 2}, DType::f32), "a.png") ==
        "weft: note: output 'y': 3 of 4 values are outside of [0, 1], from -0.5 to inf, and are "
        "clipped. Hint: .npy has them as they are.\n");
  CHECK(pixels(1) == Bytes{0, 128, 255, 255});
}
