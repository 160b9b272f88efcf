// Tests missing or damaged data.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include <doctest/doctest.h>

#include "tests/support/exit_codes.h"
#include "tests/support/images.h"
#include "tests/support/program.h"

using namespace weft::test;

namespace {
const std::string images_recipe =
    "data: {format: idx, path: images}\ntrain: {steps: 2}\nmodel: {name: mlp}\n";
const std::string text =
    "data: {format: text, path: input.txt, seq_len: 16}\ntrain: {steps: 2}\nmodel: {name: gpt}\n";
}  // namespace

TEST_CASE("missing data sets are reported with the folders that were searched") {
  Workplace place;
  place.write("r.yaml", "data: {dataset: mnist}\ntrain: {steps: 2}\nmodel: {name: mlp}\n");
  CHECK(fails_with(place.weft({"plan", "r.yaml"}, {{"WEFT_DATA_DIR", "/nowhere"}}), data_code,
                   "/nowhere/mnist") == "");
  CHECK(
      fails_with(place.weft({"plan", "r.yaml"}, {{"WEFT_DATA_DIR", ""}, {"XDG_DATA_HOME", "/no"}}),
                 data_code, "/no/weft/mnist") == "");
  for (const char* ignored : {"", "relative"})
    CHECK(fails_with(
              place.weft({"plan", "r.yaml"},
                         {{"WEFT_DATA_DIR", ""}, {"XDG_DATA_HOME", ignored}, {"HOME", "/nobody"}}),
              data_code, "/nobody/.local/share/weft/mnist") == "");
  CHECK(fails_with(place.weft({"plan", "r.yaml", "--data.path", "elsewhere"}), data_code,
                   "elsewhere") == "");
  place.write("t.yaml", text);
  CHECK(fails_with(place.weft({"plan", "t.yaml"}), data_code, "input.txt") == "");
}

TEST_CASE("broken image files are refused by name") {
  struct Mistake {
    std::string file, contents, message;
  };
  std::string whole = idx_images(64, 28), labels = idx_labels(64, 10), wrong_magic = whole,
              huge = whole;
  wrong_magic[2] = 0x77;
  huge[4] = 0x7f;  // two billion images
  std::string high_label = labels;
  high_label.back() = static_cast<char>(11);
  const std::vector<Mistake> mistakes = {
      {"train-images-idx3-ubyte", whole.substr(0, 1000), "train-images-idx3-ubyte"},
      {"train-images-idx3-ubyte", wrong_magic, "train-images-idx3-ubyte"},
      {"train-images-idx3-ubyte", huge, "train-images-idx3-ubyte"},
      {"train-images-idx3-ubyte", "", "train-images-idx3-ubyte"},
      {"t10k-images-idx3-ubyte", idx_images(64, 20),
       "[data] training images are [1, 28, 28], those for evaluation [1, 20, 20]."},
      {"train-images-idx3-ubyte", idx_images(0, 28), "train-images-idx3-ubyte has no images."},
      {"train-labels-idx1-ubyte", idx_labels(63, 10), "63"},
      {"t10k-labels-idx1-ubyte", high_label,
       "t10k-labels-idx1-ubyte: label 11 of image 63 is outside 0 to 9."},
      {"train-labels-idx1-ubyte", labels.substr(0, 4), "train-labels-idx1-ubyte"},
  };
  for (const Mistake& mistake : mistakes) {
    Workplace place;
    write_images(place, "images", 64, 28, 10);
    place.write("r.yaml", images_recipe);
    place.write("images/" + mistake.file, mistake.contents);
    CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code, mistake.message) == "");
  }
}

TEST_CASE("a label outside a known data set's classes is refused wherever it occurs") {
  Workplace place;
  write_images(place, "images/mnist", 64, 28, 10);
  place.write("r.yaml",
              "data: {dataset: mnist, path: images}\ntrain: {steps: 2}\nmodel: {name: mlp}\n");
  std::string labels = idx_labels(64, 10);
  labels[8 + 5] = static_cast<char>(200);
  for (const char* split : {"t10k", "train"}) {
    std::string file = std::string(split) + "-labels-idx1-ubyte";
    place.write("images/mnist/" + file, labels);
    CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code,
                     file + ": label 200 of image 5 is outside 0 to 9.") == "");
  }
}

TEST_CASE("bad folders of pictures are refused by name, before training or in it") {
  const auto picture = [](const std::string& name) {
    std::ifstream file(std::string(std::getenv("SRC")) + "/tests/io/pictures/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string recipe =
      "name: pets\ndata: {format: image_folder, path: pets}\nmodel: {name: mlp}\n"
      "train: {steps: 1, global_batch_size: 1}\n";
  Workplace place;
  place.write("r.yaml", recipe);
  place.write("pets", "");
  CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code,
                   "pets is no folder with a folder for each class.") == "");
  place.write("r.yaml", recipe);
  place.write("none/readme.txt", "");
  const auto plan = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {"plan", "r.yaml"};
    words.insert(words.end(), more.begin(), more.end());
    return place.weft(words);
  };
  CHECK(fails_with(plan({"--data.path", "none"}), data_code,
                   "none has no folders, which are the classes.") == "");
  place.write("sets/train/cat/1.png", picture("rgb.png"));
  place.write("sets/val/cat/1.png", picture("rgb.png"));
  CHECK(fails_with(plan({"--data.path", "sets"}), data_code,
                   "sets has no classes, but train and val.") == "");
  place.write("empty/cat/notes.txt", "");
  CHECK(fails_with(plan({"--data.path", "empty"}), data_code,
                   "empty/cat has no pictures (.jpg, .jpeg or .png).") == "");
  place.write("two/cat/1.png", picture("rgb.png"));
  place.write("two/dog/1.jpg", picture("colours.jpg"));
  place.write("more/emu/1.png", picture("rgb.png"));
  const auto two = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--data.path", "two"});
    return plan(more);
  };
  CHECK(fails_with(two({"--data.val_path", "more"}), data_code,
                   "more has a class 'emu', which training lacks.") == "");
  CHECK(fails_with(two({"--data.transforms", "[{center_crop: 8}]"}), data_code,
                   "two/cat/1.png: [center_crop] 9 x 7 pixels have no window of 8 x 8.") == "");
  CHECK(fails_with(two({"--data.transforms", "[{resize: 16384}]"}), data_code,
                   "[resize] 9 x 7 pixels would become 21065 x 16384, over 268435456.") == "");
  for (const auto& [transforms, message] :
       {std::pair<const char*, const char*>{"[{crop: 8}]", "data.transforms knows resize, "},
        {"[random_horizontal_flip, {resize: 4}]", "resize stands before random_crop and"},
        {"[{random_resized_crop: 4}]",
         "data.transforms give training images [3, 4, 4], those for "
         "evaluation [3, 7, 9]. Hint: end with center_crop."},
        {"[{normalize: {mean: [0.5], std: [0.5]}}]",
         "normalize: mean needs a number for each channel of the images, 3. Got 1."},
        {"[{resize: {size: 4, interpolation: cubic}}]", "interpolation"}})
    CHECK(fails_with(two({"--data.transforms", transforms}), 2, message) == "");
  CHECK(fails_with(two({"--data.channels", "2"}), 2, "data.channels must be 1 (gray) or 3.") == "");
  const auto train = [&](const std::string& first) {
    place.write("bad/cat/1.png", first);
    return place.weft({"train", "r.yaml", "--data.path", "bad", "--overwrite"});
  };
  CHECK(fails_with(train("GIF89a"), data_code, "1.png is neither a JPEG nor a PNG.") == "");
  CHECK(fails_with(train(picture("rgb.png").substr(0, 60)), data_code,
                   "1.png: the file is truncated.") == "");
  CHECK(fails_with(train(picture("colours.jpg").substr(0, 640)), data_code,
                   "1.png: Premature end of JPEG file.") == "");
  CHECK(fails_with(place.weft({"train", "r.yaml", "--data.path", "two", "--train.steps", "2",
                               "--overwrite"}),
                   data_code,
                   "two/dog/1.jpg: [transform] the image has 17 x 11 pixels where others "
                   "have 9 x 7.") == "");
}

TEST_CASE("bad CSV files are refused with the line and the column") {
  struct Mistake {
    std::string contents, message;
  };
  const std::vector<Mistake> mistakes = {
      {"", "houses.csv is empty. Its first line must name the columns."},
      {"area,price\n", "houses.csv has no rows below its header."},
      {"area,prize\n1,2\n", "houses.csv has no column 'price'. Did you mean 'prize'?"},
      {"area,PRICE\n1,2\n", "houses.csv has no column 'price'. Did you mean 'PRICE'?"},
      {"price\n2\n", "houses.csv has no column besides the target."},
      {"a,a,price\n1,2,3\n", "houses.csv: columns 1 and 2 are both named 'a'."},
      {",a,price\n0,2,3\n", "houses.csv: column 1 has no name. Hint: data.features lists"},
      {"\xFF,price\n1,2\n", "houses.csv: line 1: '\\xff' is not UTF-8."},
      {"a,price\n1,2\n\n3\n", "houses.csv: line 4 has 1 fields. The header has 2."},
      {"a,price\n1,\n", "houses.csv: line 2: column 'price' is empty."},
      {"a,price\nbig,2\n", "houses.csv: line 2: column 'a' must be a number. Got 'big'."},
      {"a,price\n1,dear\n", "houses.csv: line 2: column 'price' must be a number. Got 'dear'."},
      {"a,price\n1,inf\n",
       "houses.csv: line 2: column 'price' must be a finite number of float32's range."},
      {"a,price\n1,\"2\n", "houses.csv: line 2 opens a quote that is never closed."},
      {"a,price\n\"1\" 1,2\n", "houses.csv: line 2 has text after a closing quote."},
  };
  Workplace place;
  place.write("r.yaml",
              "data: {format: csv, path: houses.csv, target: price}\ntrain: {steps: 2}\nmodel: "
              "{name: mlp}\n");
  for (const Mistake& mistake : mistakes) {
    place.write("houses.csv", mistake.contents);
    CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code, mistake.message) == "");
  }
  place.write("houses.csv", "a,price\n1,cheap\n2,dear\n");
  place.write("later.csv", "a,price\n1,free\n");
  CHECK(fails_with(place.weft({"plan", "r.yaml", "--task", "classification", "--batch", "2",
                               "--data.val_path", "later.csv"}),
                   data_code,
                   "later.csv: line 2: column 'price' has the class 'free', which no training row "
                   "has.") == "");
  place.write("houses.csv", "a,price\n0,1\n1e-30,2\n");
  place.write("later.csv", "a,price\n1e30,1\n");
  CHECK(fails_with(place.weft({"plan", "r.yaml", "--batch", "2", "--data.val_path", "later.csv"}),
                   data_code, "later.csv: line 2: column 'a' exceeds float32 once it is") == "");
  CHECK(fails_with(place.weft({"plan", "r.yaml", "--data.path", "."}), data_code, "train.csv") ==
        "");
}

TEST_CASE("broken CIFAR files are refused by name") {
  Workplace place;
  place.write("r.yaml",
              "data: {format: cifar, path: cifar}\ntrain: {steps: 2}\nmodel: {name: mlp}\n");
  for (const char* name : {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4",
                           "data_batch_5", "test_batch"})
    place.write(std::string("cifar/") + name + ".bin", std::string(2 * 3073, '\1'));
  CHECK(place.weft({"plan", "r.yaml", "--batch", "2"}).code == 0);
  place.write("cifar/data_batch_3.bin", std::string(3072, '\1'));
  CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code, "data_batch_3.bin") == "");
  place.write("cifar/data_batch_3.bin", std::string(3073, '\x20'));
  CHECK(fails_with(place.weft({"plan", "r.yaml"}), data_code, "data_batch_3.bin") == "");
}

TEST_CASE("broken texts are refused by name") {
  Workplace place;
  place.write("t.yaml", text);
  place.write("input.txt",
              "abc \xff\xfe def, and on for a while so that it is long enough for a window");
  CHECK(fails_with(place.weft({"plan", "t.yaml"}), data_code, "input.txt") == "");
  place.write("input.txt", "");
  CHECK(fails_with(place.weft({"plan", "t.yaml"}), data_code, "input.txt") == "");
  place.write("input.txt", "short");
  CHECK(fails_with(place.weft({"plan", "t.yaml"}), data_code, "") == "");
}

TEST_CASE("a file that shrinks while it is read ends the run and is named") {
  Workplace place;
  write_images(place, "images", 64, 28, 10);
  place.write("r.yaml", images_recipe);
  place.write("shrink.sh",
              "for i in $(seq 1000); do\n"
              "  if grep -qs '\"step\":' runs/cut/log.jsonl; then break; fi\n"
              "  sleep 0.02\n"
              "done\n"
              "truncate -s 0 images/train-images-idx3-ubyte\n");
  REQUIRE(std::system(("cd " + place.folder() + " && sh shrink.sh &").c_str()) == 0);
  const Outcome outcome =
      place.weft({"train", "r.yaml", "--name", "cut", "--steps", "1000000", "--json"});
  CHECK(fails_with(outcome, data_code,
                   "images/train-images-idx3-ubyte cannot be read to its end: it shrank while it "
                   "was in use, or its disk fails.") == "");
}

TEST_CASE("a warning counts classes without an image") {
  Workplace place;
  write_images(place, "images", 64, 28, 10);
  place.write("r.yaml", images_recipe);
  std::string labels = idx_labels(64, 10);
  labels[8 + 5] = static_cast<char>(200);
  place.write("images/train-labels-idx1-ubyte", labels);
  const Outcome outcome = place.weft({"plan", "r.yaml"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find("train-labels-idx1-ubyte: labels reach 200, but 190 of these 201 classes "
                         "have no image.") != std::string::npos);
}
