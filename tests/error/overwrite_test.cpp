// No run and no output replaces other runs, other people's files, or the targets of links.
#include <filesystem>
#include <map>
#include <string>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/error/tiny_run.h"

using namespace weft::test;
namespace fs = std::filesystem;

TEST_CASE("a run does not overwrite another") {
  TinyRun place;
  std::string log = place.read("runs/tiny/log.jsonl");
  CHECK(fails_with(place.weft({"train", "tiny.yaml"}), usage, "runs/tiny") == "");
  CHECK(place.read("runs/tiny/log.jsonl") == log);
  CHECK(place.weft({"train", "tiny.yaml", "--overwrite", "--json"}).code == 0);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite", "--resume"}), usage,
                   "--overwrite") == "");
}

TEST_CASE("a folder or file that is not a run is not overwritten") {
  TinyRun place;
  place.write("runs/thesis/chapter.txt", "years of work");
  place.write("runs/letter", "a file");
  place.write("runs/recipes/recipe.yaml", place.read("tiny.yaml"));
  place.write("runs/notes/log.jsonl", "years of work");
  for (const char* name : {"thesis", "letter", "recipes", "notes"})
    CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite", "--name", name}), usage,
                     std::string("runs/") + name +
                         " is not a run: it has neither checkpoints nor recipe.yaml with the plan "
                         "of a run. --overwrite would replace its contents.") == "");
  CHECK(place.read("runs/thesis/chapter.txt") == "years of work");
  CHECK(place.read("runs/letter") == "a file");
  // These folders resemble a run: a recipe next to other work, and files next to checkpoints.
  place.write("tiny/recipe.yaml", place.read("tiny.yaml"));
  place.write("tiny/plan.json", place.read("runs/tiny/plan.json"));
  place.write("tiny/thesis.txt", "years of work");
  CHECK(fails_with(place.weft({"train", "tiny/recipe.yaml", "--runs", ".", "--overwrite"}), usage,
                   "tiny contains thesis.txt, which is not part of a run: --overwrite would "
                   "replace it. Hint: move it, or --name chooses another.") == "");
  CHECK(place.read("tiny/thesis.txt") == "years of work");
  place.write("runs/tiny/checkpoints/mine.safetensors", "years of work");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                   "tiny contains checkpoints/mine.safetensors, which is not part of a run") == "");
  CHECK(place.read("runs/tiny/checkpoints/mine.safetensors") == "years of work");
  fs::remove(place.path("runs/tiny/checkpoints/mine.safetensors"));
  for (const char* mine : {"step-00000002/thesis.txt", "step-00000009", "best"}) {
    const std::string file = "runs/tiny/checkpoints/" + std::string(mine);
    place.write(file, "years of work");
    CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                     "tiny contains checkpoints/" + std::string(mine) + ", which is not part") ==
          "");
    CHECK(place.read(file) == "years of work");
    fs::remove(place.path(file));
  }
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "a.partial-7-0123456789abcdef"}),
                   usage, "name 'a.partial-") == "");
}

TEST_CASE("a folder that is not a run is not resumed") {
  TinyRun place;
  const std::map<std::string, std::string> files{{"recipe.yaml", "my notes, no recipe: [\n"},
                                                 {"plan.json", "my plan"},
                                                 {"log.jsonl", "{\"step\": 5, \"mine\": 1}\n"},
                                                 {"blackbox.json", "mine"}};
  for (const auto& [name, text] : files) place.write("runs/mine/" + name, text);
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "mine", "--resume"}), usage,
                   "runs/mine is not a run: it has neither checkpoints nor recipe.yaml with the "
                   "plan of a run. --resume would replace its contents.") == "");
  for (const auto& [name, text] : files) CHECK(place.read("runs/mine/" + name) == text);
  fs::create_directory_symlink(place.path("runs"), place.path("runs/link"));
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--name", "link", "--resume"}), usage,
                   "runs/link is not a run") == "");
  CHECK(fails_with(place.weft({"train", "runs/tiny"}), usage,
                   "runs/tiny is a run. Hint: runs/tiny --resume continues it.") == "");
}

TEST_CASE("the remains of a killed start are overwritten") {
  TinyRun place;
  fs::create_directories(place.path("runs/empty"));
  fs::create_directories(place.path("runs/begun/checkpoints"));
  place.write("runs/begun/recipe.yaml.partial-4194305-0123456789abcdef", "name: beg");
  for (const char* name : {"empty", "begun"})
    CHECK(place.weft({"train", "tiny.yaml", "--overwrite", "--name", name, "--json"}).code == 0);
}

TEST_CASE("a run set aside by --overwrite is kept until the user decides") {
  TinyRun place;
  const std::string aside = place.path("runs/tiny.partial-4194305-0123456789abcdef");  // dead pid
  const std::string run = place.path("runs/tiny");
  fs::copy(run, aside, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  const std::string name = "runs/tiny.partial-4194305-0123456789abcdef";
  const std::string warning = name + " is the run runs/tiny from before --overwrite. Hint: mv " +
                              name + " runs/tiny-before restores it, rm -r " + name +
                              " removes it.";
  CHECK(goes_on_with(place.weft({"train", "tiny.yaml", "--name", "other"}), warning) == "");
  CHECK(fs::exists(aside + "/checkpoints/step-00000002/MANIFEST.json"));
  // The folder set aside is moved into the run that replaced it.
  const std::string inside = run + "/" + fs::path(aside).filename().string();
  fs::rename(aside, inside);
  CHECK(goes_on_with(place.weft({"train", "tiny.yaml", "--resume", "--steps", "3"}),
                     " is the run runs/tiny from before --overwrite") == "");
  CHECK(fails_with(place.weft({"train", "tiny.yaml", "--overwrite"}), usage,
                   "which is not part of a run") == "");
  CHECK(fs::exists(inside + "/checkpoints/step-00000002/MANIFEST.json"));
}

TEST_CASE("no output replaces a file of a run or of a checkpoint") {
  TinyRun place;
  fs::copy(place.path("runs/tiny/checkpoints/step-00000002"), place.path("copy"));
  for (const char* part : {"runs/tiny/checkpoints/latest/model.safetensors", "runs/tiny/log.jsonl",
                           "copy/model.safetensors"}) {
    const std::string before = place.read(part);
    REQUIRE(!before.empty());
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"plan", "tiny.yaml", "--dot", part},
          {"profile", "tiny.yaml", "--trace", part},
          {"init", "image", "--overwrite", "--output", part}})
      CHECK(fails_with(place.weft(arguments), usage,
                       std::string(part) + " would replace a part of ") == "");
    CHECK(place.read(part) == before);
  }
  for (int i = 0; i < 2; ++i)  // a user's own files in the run may be overwritten
    CHECK(place.weft({"plan", "tiny.yaml", "--dot", "runs/tiny/graph.dot"}).code == 0);
}

TEST_CASE(
    "a recipe of a run or checkpoint that is not a regular file is refused without blocking") {
  TinyRun place;
  fs::copy(place.path("runs/tiny"), place.path("runs/other"),
           fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  auto refused = [&](const std::vector<std::string>& arguments) {
    CHECK(fails_with(place.weft(arguments), checkpoint, "not a regular file.") == "");
  };
  auto replace = [&](const std::string& recipe) {
    fs::remove(place.path(recipe));
    REQUIRE(mkfifo(place.path(recipe).c_str(), 0600) == 0);
  };
  replace("runs/tiny/recipe.yaml");
  refused({"train", "runs/tiny", "--resume", "--steps", "10"});
  // The recipe is the user's, but recipe.yaml of the run must be written.
  const Outcome resumed = place.weft({"train", "tiny.yaml", "--resume", "--steps", "10"});
  CHECK(fails_with(resumed, failed, "it is a FIFO.") == "");
  // Nothing is written through a link, even one that leads nowhere.
  const std::pair<std::string, bool> cases[] = {
      {"recipe.yaml", true}, {"log.jsonl", true}, {"log.jsonl", false}};
  for (const auto& [file, leads_somewhere] : cases) {
    fs::remove(place.path("victim"));
    if (leads_somewhere) place.write("victim", "precious");
    fs::copy(place.path("runs/other"), place.path("runs/linked"),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    fs::remove(place.path("runs/linked/" + file));
    fs::create_symlink("../../victim", place.path("runs/linked/" + file));
    const Outcome linked =
        place.weft({"train", "tiny.yaml", "--name", "linked", "--resume", "--steps", "10"});
    CHECK(fails_with(linked, failed, "it is a link.") == "");
    CHECK(fs::exists(place.path("victim")) == leads_somewhere);
    if (leads_somewhere) CHECK(place.read("victim") == "precious");
    fs::remove_all(place.path("runs/linked"));
  }
  refused({"runs", "compare", "tiny", "other"});
  replace("runs/tiny/checkpoints/step-00000002/recipe.yaml");
  refused({"eval", "tiny"});
  refused({"generate", "tiny", "--prompt", "1"});
}
