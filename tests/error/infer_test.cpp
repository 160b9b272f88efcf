// Tests what `weft run` refuses of runs and checkpoints: arrays, pictures and flags.
#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/error/pets_run.h"
#include "tests/error/tiny_run.h"
#include "tests/support/onnx_net.h"

using namespace weft;
using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE_FIXTURE(Pets, "what a run does not take is refused in one line") {
  io::write_npy(path("doubles.npy"), tensor({0.5, 1.0}, {1, 2}, DType::f64));
  io::write_npy(path("wide.npy"), zeros({1, 3, picture_side, picture_side + 1}).eval());
  pictures::Image large = picture(0);
  large.height = 2 * picture_side;
  large.pixels.insert(large.pixels.end(), large.pixels.begin(), large.pixels.end());
  pictures::write_image(path("large.png"), large);
  write("cut.png", read("photos/00.png").substr(0, 60));
  write("none.jpg", "no picture");
  fs::create_directory(path("empty"));
  const auto refused = [&](std::vector<std::string> input, int code, const std::string& message) {
    input.insert(input.begin(), {"run", "pets", "--input"});
    return fails_with(weft(input), code, message);
  };
  CHECK(refused({"doubles.npy"}, usage, "pets: input 'images' is f32. Got f64.") == "");
  CHECK(refused({"wide.npy"}, usage,
                "pets: input 'images' has the shape [batch, 3, 6, 6]. Got [1, 3, 6, 7].") == "");
  CHECK(refused({"image=rows.npy"}, usage,
                "pets: it has no input 'image'. Did you mean 'images'? Its inputs: images.") == "");
  CHECK(refused({"rows.npy", "photos"}, usage,
                "--input rows.npy: arrays are not given together with pictures.") == "");
  CHECK(
      refused({"pets.yaml"}, usage,
              "--input pets.yaml: inputs are arrays (.npy, .npz, .pb) or pictures (.jpg, .png).") ==
      "");
  CHECK(refused({"images=rows.npy", "images=rows.npy"}, usage,
                "pets: input 'images' is given twice.") == "");
  CHECK(refused({"nothing.png"}, usage, "--input nothing.png: there is no such file.") == "");
  CHECK(refused({"photos", "-o", "out.txt"}, usage,
                "--output out.txt: outputs are written to .npy or .npz files, or as pictures to "
                ".png or .jpg files.") == "");
  CHECK(refused({"photos", "-o", "out.png"}, usage,
                "--output out.png: output 'logits' is f32[32, 2]. A PNG is written of floats or u8 "
                "[rows, C, H, W] or [C, H, W], C 1, 3 or 4. Hint: .npy.") == "");
  // What is wrong with an archive's names and types is said before its arrays are read.
  const auto damaged = [&](const char* name, const Tensor& array) {
    const std::string file = std::string(name) + ".npz";
    io::write_npz(path(file), std::array{io::NamedTensor{name, array.eval()}});
    std::string bytes = read(file);
    bytes[bytes.find("PK\x01\x02") - 1] ^= 1;  // of the last element
    write(file, bytes);
    return file;
  };
  const Tensor rows = zeros({1, 3, picture_side, picture_side});
  CHECK(refused({damaged("image", rows)}, usage,
                "pets: it has no input 'image'. Did you mean 'images'? Its inputs: images.") == "");
  CHECK(refused({damaged("images", zeros({1, 3, 6, 7}))}, usage,
                "pets: input 'images' has the shape [batch, 3, 6, 6]. Got [1, 3, 6, 7].") == "");
  CHECK(refused({damaged("images", cast(rows, DType::f64))}, usage,
                "pets: input 'images' is f32. Got f64.") == "");
  CHECK(refused({damaged("images", rows)}, data_code,
                "[zip] images.npz: member 'images.npy' is damaged: its checksum is ") == "");
  CHECK(
      refused({"large.png"}, data_code,
              "large.png: the picture is [3, 12, 6] after data.transforms, the model takes [3, 6, "
              "6].") == "");
  CHECK(refused({"cut.png"}, data_code, "[image] cut.png: ") == "");
  CHECK(refused({"none.jpg"}, data_code, "[image] none.jpg is neither a JPEG nor a PNG.") == "");
  CHECK(refused({"empty"}, data_code,
                "[image_folder] empty has no pictures (.jpg, .jpeg or .png).") == "");
}

TEST_CASE_FIXTURE(Pets, "an ONNX file whose pictures nothing prepares is refused") {
  REQUIRE(weft({"convert", "pets", "pets.onnx", "--to", "onnx"}).code == 0);
  CHECK(fails_with(weft({"run", "pets.onnx", "--input", "photos"}), usage,
                   "pets.onnx: an ONNX file does not say how pictures are normalized for its input "
                   "'images' (f32[batch, 3, 6, 6]).") == "");
  CHECK(fails_with(weft({"run", "pets.onnx", "--input", "photos", "--train.steps", "1"}), usage,
                   "--train.steps is for runs of weft's own. pets.onnx is an ONNX file.") == "");
}

TEST_CASE_FIXTURE(Pets,
                  "extents that bind nothing, and batches that a file does not take, are refused") {
  REQUIRE(weft({"convert", "pets", "pets.onnx", "--to", "onnx"}).code == 0);
  REQUIRE(weft({"convert", "pets", "three.onnx", "--to", "onnx", "--batch", "3"}).code == 0);
  CHECK(fails_with(weft({"plan", "pets.onnx", "--dim", "bach=3"}), usage,
                   "[onnx] pets.onnx: its inputs have no extent 'bach' to bind. Did you mean "
                   "'batch'? Known: batch.") == "");
  CHECK(fails_with(weft({"plan", "pets.onnx", "--dim", "batch=3", "--dim", "batch=4"}), usage,
                   "--dim binds batch twice.") == "");
  CHECK(fails_with(weft({"plan", "pets.onnx", "--dim", "batch=0"}), usage,
                   "--dim binds an extent of at least 1 by name, as in batch=4. Got 'batch=0'.") ==
        "");
  CHECK(fails_with(weft({"plan", "pets.onnx", "--batch", "2", "--dim", "batch=3"}), usage,
                   "[onnx] pets.onnx: --batch 2 does not bind its first input, f32[3, 3, 6, 6].") ==
        "");
  CHECK(fails_with(
            weft({"plan", "three.onnx", "--batch", "2"}), usage,
            "[onnx] three.onnx: --batch 2 does not bind its first input, f32[3, 3, 6, 6].") == "");
  const auto eval = [&](const std::string& batch) {
    return weft({"eval", "three.onnx", "--data.dataset", "random-images", "--data.image_size", "6",
                 "--data.classes", "2", "--eval.batch_size", batch});
  };
  CHECK(fails_with(eval("2"), usage,
                   "weft: error: three.onnx does not take a batch of f32[2, 3, 6, 6]: ") == "");
  CHECK(eval("3").code == 0);
}

TEST_CASE_FIXTURE(Pets, "a net whose plan does not fit is refused with its largest value") {
  REQUIRE(weft({"convert", "pets", "pets.onnx", "--to", "onnx"}).code == 0);
  CHECK(fails_with(weft({"plan", "pets.onnx", "--dim", "batch=1000000000"}), does_not_fit,
                   "The largest value is f32[1000000000, ") == "");
}

TEST_CASE("what is no picture is not written as one") {
  const Workplace work;
  const auto refused = [&](const Tensor& x, const std::string& output, int code,
                           const std::string& message) {
    std::vector<onnx::Dim> shape;
    for (int64_t extent : x.shape()) shape.push_back({extent, ""});
    write_identity(work.path("net.onnx"), x.dtype(), shape);
    io::write_npy(work.path("x.npy"), x);
    const Outcome outcome = work.weft({"run", "net.onnx", "--input", "x.npy", "-o", output});
    CHECK_FALSE(fs::exists(work.path(output)));
    return fails_with(outcome, code, "--output " + output + ": " + message);
  };
  CHECK(
      refused(zeros({2, 5, 4, 4}), "out.png", usage,
              "output 'y' is f32[2, 5, 4, 4]. A PNG is written of floats or u8 [rows, C, H, W] or "
              "[C, H, W], C 1, 3 or 4. Hint: .npy.") == "");
  CHECK(refused(zeros({1, 4, 4, 4}), "out.jpg", usage,
                "output 'y' is f32[1, 4, 4, 4]. A JPEG is written of floats or u8 [rows, C, H, W] "
                "or [C, H, W], C 1 or 3. Hint: .npy.") == "");
  CHECK(refused(zeros({1, 1, 4, 4}, DType::i64), "out.png", usage,
                "output 'y' is i64[1, 1, 4, 4]. A PNG is written of floats or u8 ") == "");
  CHECK(refused(zeros({1, 1, 65501}, DType::u8), "out.jpg", usage,
                "output 'y' is u8[1, 1, 65501]. A JPEG has 1 to 65500 lines of 1 to 65500 "
                "pixels.") == "");
  std::vector<float> values(24, 0.5F);
  values[17] = NAN;
  CHECK(refused(tensor(values, {2, 3, 2, 2}), "out.png", failed,
                "output 'y' is NaN in row 1, channel 1, at y 0, x 1. Nothing was written.") == "");
  CHECK_FALSE(fs::exists(work.path("out-1.png")));

  write_net(work.path("split.onnx"), {.op = "Split", .inputs = {"x"}, .outputs = {"a", "b"}},
            DType::f32, {{2, ""}, {3, ""}, {4, ""}, {4, ""}});
  io::write_npy(work.path("x.npy"), zeros({2, 3, 4, 4}).eval());
  CHECK(fails_with(work.weft({"run", "split.onnx", "--input", "x.npy", "-o", "out.png"}), usage,
                   "--output out.png: pictures are written of one output, and the model has 2: 'a' "
                   "(f32[1, 3, 4, 4]), 'b' (f32[1, 3, 4, 4]). Hint: .npz.") == "");

  // Rows are written to names of their own, which must not be those of what is read, either.
  write_identity(work.path("net.onnx"), DType::f32,
                 {{-1, "n"}, {3, ""}, {picture_side, ""}, {picture_side, ""}});
  for (int i = 1; i <= 2; ++i)
    pictures::write_image(work.path(fmt::format("a-{}.png", i)), picture(i));
  CHECK(fails_with(work.weft({"run", "net.onnx", "--input", "a-1.png", "a-2.png", "-o", "a.png",
                              "--data.transforms", transforms}),
                   usage, "--output a-1.png would replace a file that this command reads.") == "");
}

TEST_CASE_FIXTURE(TinyRun, "ids that a language model does not take are refused") {
  io::write_npy(path("high.npy"), tensor({1, 1000}, {1, 2}, DType::i64));
  io::write_npy(path("long.npy"), zeros({1, 1000}, DType::i64).eval());
  CHECK(fails_with(weft({"run", "tiny", "--input", "high.npy"}), data_code,
                   "tiny: input_ids are 0 to ") == "");
  CHECK(fails_with(weft({"run", "tiny", "--input", "long.npy"}), usage,
                   "tiny: sequences have at most ") == "");
  write("cat.png", "");
  CHECK(fails_with(weft({"run", "tiny", "--input", "cat.png"}), usage,
                   "tiny takes no pictures: its input is 'input_ids' (i64[batch, tokens]).") == "");
}
