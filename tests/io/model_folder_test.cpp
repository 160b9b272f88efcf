// Tests folders of Hugging Face's: one file or shards with an index, read and written.
#include "weft/io/model_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/io/helpers.h"
#include "tests/io/safetensors_file.h"
#include "tests/support/captured.h"
#include "weft/io/files.h"
#include "weft/io/json.h"
#include "weft/io/load.h"

using namespace weft;
using namespace weft::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {
using Names = std::vector<std::string>;

// Returns a safetensors file of one-byte tensors, written by hand: the format's README.
std::string shard_with(const Names& tensors) {
  json header = json::object();
  for (size_t i = 0; i < tensors.size(); ++i)
    header[tensors[i]] = {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {i, i + 1}}};
  return safetensors_file(header.dump(), std::string(tensors.size(), 'x'));
}

constexpr const char* first = "model-00001-of-00002.safetensors";
constexpr const char* second = "model-00002-of-00002.safetensors";

// Sharded is a folder of two shards.
struct Sharded : TemporaryFolder {
  json index = {{"metadata", {{"total_size", 3}}},
                {"weight_map", {{"a", first}, {"b", second}, {"c", first}}}};
  Sharded() {
    file(first, shard_with({"a", "c"}));
    file(second, shard_with({"b"}));
    write();
  }
  void write() const { file("model.safetensors.index.json", index.dump()); }
  std::string error() const {
    std::string message = error_of([&] { io::weight_files(path()); });
    for (size_t at; (at = message.find(path() + "/")) != message.npos;)
      message.erase(at, path().size() + 1);
    return message;
  }
  std::string error_with(const std::string& tensor, const json& shard) {
    index["weight_map"] = {{"a", first}, {"b", second}, {"c", first}};
    index["weight_map"][tensor] = shard;
    write();
    return error();
  }
};
}  // namespace

TEST_CASE("a file, a folder with one file and a folder with shards give their weight files") {
  Sharded folder;
  const Names shards{folder.file(first), folder.file(second)};
  CHECK(io::weight_files(folder.path()) == shards);
  CHECK(io::weight_files(folder.path() + "/") == shards);
  CHECK(io::weight_files(folder.file(first)) == Names{folder.file(first)});
  // transformers, too, prefers the single file.
  folder.file("model.safetensors", shard_with({"a"}));
  CHECK(io::weight_files(folder.path()) == Names{folder.file("model.safetensors")});
}

TEST_CASE("an index that is malformed or names other files is refused in one line") {
  const std::pair<const char*, const char*> indices[] = {
      {"", "not JSON: it ends too early, at line 1, column 1."},
      {"{\n\"weight_map\": ?}", "not JSON: there is a mistake at line 2, column 15."},
      {"[]", "must be an object. Got []."},
      {"{}", "weight_map is missing."},
      {R"({"weight_map": []})", "weight_map must be an object. Got []."},
      {R"({"weight_map": {}})", "weight_map is empty."},
      {R"({"weight_map": {"a": 1}})", "weight_map has 1 for 'a', which is no file name."}};
  for (const auto& [text, message] : indices)
    CHECK(error_of([&, text = text] { io::parse_weight_index(text, "index"); }) ==
          std::string("data: index: ") + message);
  for (const char* shard : {"/etc/passwd", "../model.safetensors", "..", "x/model.safetensors", "",
                            ".hidden.safetensors", "pytorch_model.bin", "a.safetensors\n"}) {
    CAPTURE(shard);
    const std::string text = json{{"weight_map", {{"a", shard}}}}.dump();
    const std::string message = error_of([&] { io::parse_weight_index(text, "index"); });
    CHECK(message.starts_with("data: index: weight_map places 'a' in '"));
    CHECK(message.ends_with("', which is no name of a safetensors file."));
  }
  const std::string deep = R"({"weight_map": )" + std::string(100000, '[');
  CHECK(error_of([&] { io::parse_weight_index(deep, "index"); }) ==
        "data: index: lists and objects nest deeper than 500 at byte 514.");
}

TEST_CASE("shards that are missing, damaged or not as the index says are refused by name") {
  const std::string index = "data: model.safetensors.index.json: ";
  Sharded folder;
  CHECK(folder.error() == "none");
  CHECK(folder.error_with("a", second) ==
        index + "weight_map places 'a' in " + second + ", which does not hold it.");
  CHECK(folder.error_with("d", second) ==
        index + "weight_map places 'd' in " + second + ", which does not hold it.");
  CHECK(folder.error_with("d", "other.safetensors") ==
        "data: other.safetensors is missing. model.safetensors.index.json places 'd' in it.");
  CHECK(folder.error_with("a", first) == "none");
  folder.file(second, shard_with({"a", "b"}));
  CHECK(folder.error() == fmt::format("data: {}: tensor 'a' is in two shards, {} and {}.",
                                      folder.path(), first, second));
  const std::string whole = shard_with({"b"});
  folder.file(second, whole.substr(0, whole.size() - 1));
  CHECK(folder.error() == fmt::format("data: [safetensors] {}: tensor 'b' ends at byte 1 of 0; the "
                                      "file is truncated or damaged.",
                                      second));
  folder.file(second, whole.substr(0, 20));
  CHECK(folder.error().starts_with("data: [safetensors] "));
  fs::remove(folder.file(second));
  fs::create_directory(folder.file(second));
  CHECK(folder.error() == fmt::format("data: cannot read {}: not a regular file.", second));
}

TEST_CASE("tensors that the index does not name are warned of once") {
  Sharded folder;
  folder.file(second, shard_with({"b", "extra"}));
  const Captured captured(2);
  const Names shards{folder.file(first), folder.file(second)};
  CHECK(io::weight_files(folder.path()) == shards);
  CHECK(io::weight_files(folder.path()) == shards);
  const std::string text = captured.text();
  CHECK(text.find("does not name 1 of the tensors in its shards: 'extra'.") != std::string::npos);
  CHECK(text.find("extra") == text.rfind("extra"));
}

TEST_CASE("links may not leave a folder, but for the blobs of the hub's cache") {
  const TemporaryFolder outside;
  outside.file("model.safetensors", shard_with({"a"}));
  const TemporaryFolder folder;
  fs::create_symlink(outside.file("model.safetensors"), folder.file("model.safetensors"));
  CHECK(error_of([&] { io::weight_files(folder.path()); }) ==
        fmt::format("data: {} is a link that leaves its folder, to {}, and is not read.",
                    folder.file("model.safetensors"),
                    fs::canonical(outside.file("model.safetensors")).string()));
  Sharded sharded;
  fs::remove(sharded.file(second));
  fs::create_symlink(outside.file("model.safetensors"), sharded.file(second));
  CHECK(sharded.error().find("is a link that leaves its folder") != std::string::npos);
  fs::remove(sharded.file(second));
  sharded.file("elsewhere", shard_with({"b"}));
  fs::create_symlink("elsewhere", sharded.file(second));
  CHECK(sharded.error() == "none");

  const fs::path cache = fs::path(outside.path()) / "models--a--b";
  const fs::path snapshot = cache / "snapshots" / "0123";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "blobs");
  fs::rename(outside.file("model.safetensors"), cache / "blobs" / "4567");
  fs::create_symlink("../../blobs/4567", snapshot / "model.safetensors");
  CHECK(io::weight_files(snapshot.string()) == Names{(snapshot / "model.safetensors").string()});
  fs::rename(cache / "blobs" / "4567", outside.file("4567"));
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink("../../../4567", snapshot / "model.safetensors");
  CHECK(error_of([&] { io::weight_files(snapshot.string()); }).find("leaves its folder") !=
        std::string::npos);
}

TEST_CASE("a folder without weights is no model and pickles are not read") {
  const TemporaryFolder folder;
  CHECK(error_of([&] { io::weight_files(folder.path()); }) ==
        fmt::format("usage: {} is no folder of a model: it has neither model.safetensors nor "
                    "model.safetensors.index.json.",
                    folder.path()));
  CHECK(error_of([&] { io::weight_files(folder.file("none")); }) ==
        fmt::format("usage: {}: there is no such file or folder.", folder.file("none")));
  const std::string pickle =
      fmt::format("usage: {} is a pickle of PyTorch, ", folder.file("pytorch_model.bin", "PK"));
  CHECK(error_of([&] { io::weight_files(folder.path()); }).starts_with(pickle));
  CHECK(error_of([&] { io::weight_files(folder.file("pytorch_model.bin")); }).starts_with(pickle));
}

TEST_CASE("a model is saved as a folder and loads again, in one file or in shards") {
  const TemporaryFolder place;
  const std::vector model{
      variable("b", {DType::f32, {4}}, 1), variable("a", {DType::f32, {2, 3}}, 10),
      variable("c", {DType::f32, {1}}, 100), variable("d", {DType::f32, {}}, 200)};
  const auto tensors = io::bytes_of(io::by_name(model));
  // The bytes are 16, 24, 4 and 4.
  const std::pair<size_t, Names> sizes[] = {
      {48, {"model.safetensors"}},
      {47, {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
      {24, {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
      {1,
       {"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
        "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"}}};
  for (const auto& [most, names] : sizes) {
    CAPTURE(most);
    const std::string folder = place.file(std::to_string(most));
    io::save_folder(folder, tensors, {{"config.json", "{}"}}, most);
    CHECK(contents_of(folder + "/config.json") == "{}");
    const Names files = io::weight_files(folder);
    REQUIRE(files.size() == names.size());
    for (size_t i = 0; i < files.size(); ++i) {
      CHECK(files[i] == folder + "/" + names[i]);
      CHECK(io::Safetensors::open(files[i]).metadata() == io::Metadata{{"format", "pt"}});
    }
    const std::vector other{Variable("a", {DType::f32, {2, 3}}), Variable("b", {DType::f32, {4}}),
                            Variable("c", {DType::f32, {1}}), Variable("d", {DType::f32, {}})};
    io::load_into(files, io::by_name(other));
    CHECK(other[0].to_doubles() == std::vector<double>{10, 11, 12, 13, 14, 15});
    CHECK(other[1].to_doubles() == std::vector<double>{1, 2, 3, 4});
    CHECK(other[3].to_doubles() == std::vector<double>{200});
  }
  const json index = io::read_json_file(place.file("24/model.safetensors.index.json"), 1 << 20);
  CHECK(index == json{{"metadata", {{"total_size", 48}}},
                      {"weight_map", {{"a", first}, {"b", second}, {"c", second}, {"d", second}}}});
}

TEST_CASE("equal contents are saved as equal files in any order") {
  const TemporaryFolder place;
  const std::vector model{variable("b", {DType::f32, {4}}, 1),
                          variable("a", {DType::f32, {2, 3}}, 10),
                          variable("c", {DType::f32, {1}}, 100)};
  auto tensors = io::bytes_of(io::by_name(model));
  io::save_folder(place.file("1"), tensors, {}, 24);
  std::ranges::reverse(tensors);
  io::save_folder(place.file("2"), tensors, {}, 24);
  for (const char* name : {first, second, "model.safetensors.index.json"})
    CHECK(contents_of(place.file("1/") + name) == contents_of(place.file("2/") + name));
}

TEST_CASE("tied weights are written once, under the name that comes first in the model") {
  const TemporaryFolder place;
  const Variable weight = variable("embed.weight", {DType::f32, {4}}, 1);
  const io::NamedVariables model{{"embed.weight", weight},
                                 {"a_head.weight", weight},
                                 {"empty", Variable("e", {DType::f32, {0}})},
                                 {"empty_too", Variable("f", {DType::f32, {0}})}};
  io::save_folder(place.file("tied"), io::bytes_of(model));
  Names names;
  const io::Safetensors file = io::Safetensors::open(place.file("tied/model.safetensors"));
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  CHECK(names == Names{"embed.weight", "empty", "empty_too"});
}

TEST_CASE("an existing folder is not overwritten and a failed save leaves nothing") {
  const TemporaryFolder place;
  const std::vector model{variable("a", {DType::f32, {2}}, 1)};
  const auto tensors = io::bytes_of(io::by_name(model));
  place.file("there", "");
  CHECK(error_of([&] { io::save_folder(place.file("there"), tensors); }) ==
        fmt::format("usage: {} exists. Nothing was changed.", place.file("there")));
  CHECK(error_of([&] { io::save_folder(place.file("new"), tensors, {{"no/such/folder", ""}}); }) !=
        "none");
  CHECK(place.entries() == 1);
}
