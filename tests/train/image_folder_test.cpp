// Tests folders of pictures as data, and pictures as rows of a model's input.
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/io/helpers.h"
#include "weft/pictures/image.h"
#include "weft/train/task/dataset.h"
#include "weft/train/task/transforms.h"

using namespace weft;
using namespace weft::test;

namespace {

// Writes a picture of one colour, but for its middle pixel, which is black.
void write_picture(const std::string& path, int64_t side, uint8_t red) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  pictures::Image image{.height = side, .width = side, .channels = 3};
  for (int64_t i = 0; i < side * side; ++i) image.pixels.insert(image.pixels.end(), {red, 51, 0});
  for (size_t c = 0; c < 3; ++c)
    image.pixels[static_cast<size_t>(side / 2 * side + side / 2) * 3 + c] = 0;
  pictures::write_image(path, image);
}

train::Recipe image_folder_recipe(const TemporaryFolder& folder, const std::string& more = "") {
  return train::Recipe::parse(
      fmt::format("data: {{format: image_folder, path: {}{}}}\nmodel: {{name: mlp}}\n"
                  "train: {{steps: 1}}\n",
                  folder.path(), more),
      "test");
}
train::TaskData read(const train::Recipe& recipe, const train::DataOptions& options = {}) {
  return train::data_entry(recipe).read(recipe, options);
}

struct LabelledPicture {
  std::vector<float> input;
  int64_t label = 0;
};
LabelledPicture row_of(const data::Source& source, int64_t index, int64_t epoch = 0) {
  LabelledPicture row{std::vector<float>(static_cast<size_t>(source.input_type().elements()))};
  source.write({0, epoch, index}, reinterpret_cast<std::byte*>(row.input.data()), &row.label);
  return row;
}

}  // namespace

TEST_CASE("a folder for each class is read in torchvision's order") {
  const TemporaryFolder folder;
  write_picture(folder.file("dog/a.png"), 3, 10);
  write_picture(folder.file("cat/sub/a.png"), 3, 20);
  write_picture(folder.file("cat/b.PNG.png"), 3, 30);
  const train::TaskData data = read(image_folder_recipe(folder));
  CHECK(data.shape.input == Shape{3, 3, 3});
  CHECK(data.shape.classes == 2);
  REQUIRE(data.train->size() == 3);
  for (const auto& [index, red, label] :
       {std::tuple<int64_t, float, int64_t>{0, 30, 0}, {1, 20, 0}, {2, 10, 1}}) {
    const LabelledPicture row = row_of(*data.train, index);
    CHECK(row.label == label);
    CHECK(row.input[0] == red / 255);
    CHECK(row.input[4] == 0);     // the middle
    CHECK(row.input[9] == 0.2f);  // green: 51 / 255
  }
  CHECK(data.train->bytes() < 1000);  // paths, no pixels
}

TEST_CASE("transforms of a recipe apply in order, random ones to training alone") {
  const TemporaryFolder folder;
  for (const char* name : {"a/1.png", "b/1.png", "b/2.png", "b/3.png"})
    write_picture(folder.file(name), 8, 255);
  const train::Recipe recipe = image_folder_recipe(
      folder,
      ", val_split: 0.5, transforms: [{resize: 6}, {random_resized_crop: 5}, {resize: 5}, "
      "{center_crop: 3}, {normalize: {mean: [0.5, 0.2, 0], std: [0.5, 0.1, 1]}}]");
  const train::TaskData data = read(recipe);
  CHECK(data.shape.input == Shape{3, 3, 3});
  CHECK(data.train->size() == 2);
  REQUIRE(data.validation->size() == 2);
  CHECK(row_of(*data.validation, 0, 0).input == row_of(*data.validation, 0, 1).input);
  CHECK(row_of(*data.train, 0, 0).input != row_of(*data.train, 0, 1).input);
  CHECK(row_of(*data.train, 0, 0).input == row_of(*data.train, 0, 0).input);
  // What a model is asked about is prepared as what it is evaluated on.
  const std::string path = folder.file("a/1.png");
  const Tensor rows = train::picture_rows(recipe, data.shape.input, std::array{path, path});
  CHECK(rows.shape() == Shape{2, 3, 3, 3});
  const std::vector<float> both = rows.to_vector<float>(), row = row_of(*data.validation, 0).input;
  CHECK(std::equal(row.begin(), row.end(), both.begin()));
  CHECK(std::equal(row.begin(), row.end(), both.begin() + 27));
}

TEST_CASE("pictures that do not fit the model are refused by name") {
  const TemporaryFolder folder;
  write_picture(folder.file("a/1.png"), 8, 255);
  write_picture(folder.file("b/1.png"), 9, 255);
  const train::TaskData data = read(image_folder_recipe(folder));
  CHECK(error_of([&] {
          row_of(*data.train, 1);
        }).find("b/1.png: [transform] the image has 9 x 9 pixels where others have 8 x 8.") !=
        std::string::npos);
  CHECK(error_of([&] {
          train::picture_rows(image_folder_recipe(folder), {3, 8, 8},
                              std::array{folder.file("b/1.png")});
        })
            .find("b/1.png: the picture is [3, 9, 9] after data.transforms, the model takes [3, 8, "
                  "8].") != std::string::npos);
}

TEST_CASE("a checkpoint keeps the names of classes") {
  const TemporaryFolder folder, checkpoint;
  for (const char* name : {"cat/1.png", "dog/1.png"}) write_picture(folder.file(name), 4, 1);
  const train::Recipe recipe = image_folder_recipe(folder);
  const train::TaskData data = read(recipe);
  REQUIRE(data.files.size() == 1);
  checkpoint.file(data.files[0].name, data.files[0].contents);
  // A class without a folder keeps its number.
  std::filesystem::remove_all(folder.file("cat"));
  const train::TaskData again = read(recipe, {.checkpoint = checkpoint.path()});
  CHECK(again.shape.classes == 2);
  CHECK(row_of(*again.train, 0).label == 1);
  CHECK(read(recipe, {.with_data = false, .checkpoint = checkpoint.path()}).shape.input ==
        Shape{3, 4, 4});
  write_picture(folder.file("emu/1.png"), 4, 1);
  CHECK(error_of([&] {
          read(recipe, {.checkpoint = checkpoint.path()});
        }).ends_with("has a class 'emu', which training lacks."));
  checkpoint.file(data.files[0].name, R"({"classes": ["cat", 1], "image": [3, 4, 4]})");
  CHECK(error_of([&] {
          read(recipe, {.checkpoint = checkpoint.path()});
        }).ends_with("images.json: classes must be a list of texts. Got [\"cat\",1]."));
}
