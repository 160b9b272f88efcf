#include "weft/nn/module.h"

#include <doctest/doctest.h>

#include "weft/nn/containers.h"
#include "weft/nn/layers.h"
#include "weft/tensor/compile.h"

using namespace weft;

namespace {
struct Mlp : nn::Module {
  nn::Linear hidden{*this, "hidden", 6, 4};
  nn::Dropout dropout{*this, "dropout", 0.1};
  nn::Linear head{*this, "head", 4, 3};
  Tensor operator()(Tensor x) const { return head(dropout(relu(hidden(x)))); }
};

struct Inner : nn::Module {
  Inner(nn::Module& parent, std::string name) : Module(parent, std::move(name)) {}
  nn::Linear late{*this, "late", 2, 2};
  Variable own = parameter("own", {5}, nn::Init::constant(2));
  nn::BatchNorm norm{*this, "norm", 2};
};
struct Outer : nn::Module {
  nn::Module blocks{*this, "blocks"};
  Inner first{blocks, "0"};
  Inner second{blocks, "1"};
};

struct Tied : nn::Module {
  nn::Embedding embedding{*this, "embedding", 7, 3};
  struct Head : nn::Module {
    Head(nn::Module& parent, const Variable& weight) : Module(parent, "head") {
      share("weight", weight);
    }
  } head{*this, embedding.weight};
};

std::vector<std::string> names(const std::vector<nn::NamedVariable>& variables) {
  std::vector<std::string> all;
  all.reserve(variables.size());
  for (const auto& entry : variables) all.push_back(entry.name);
  return all;
}
using Names = std::vector<std::string>;
}  // namespace

TEST_CASE("parameters are in registration order with a weight before its bias") {
  Mlp model;
  CHECK(names(model.named_parameters()) ==
        Names{"hidden.weight", "hidden.bias", "head.weight", "head.bias"});
  CHECK(model.parameters()[2].name() == "head.weight");
  CHECK(model.parameters()[0].shape() == Shape{4, 6});
  CHECK(model.parameter_count() == 4 * 6 + 4 + 3 * 4 + 3);
}

TEST_CASE("a module's own parameters precede its children's and buffers are separate") {
  Outer model;
  CHECK(names(model.first.named_parameters()) ==
        Names{"own", "late.weight", "late.bias", "norm.weight", "norm.bias"});
  CHECK(names(model.named_buffers()) ==
        Names{"blocks.0.norm.running_mean", "blocks.0.norm.running_var",
              "blocks.1.norm.running_mean", "blocks.1.norm.running_var"});
  CHECK(model.state().size() == model.parameters().size() + model.buffers().size());
  CHECK(model.second.norm.path() == "blocks.1.norm");
  CHECK(model.second.norm.running_var.name() == "blocks.1.norm.running_var");
  CHECK(model.second.norm.running_var.category() == Category::buffer_state);
  CHECK(model.first.own.floats()[4] == 2.0f);
}

namespace {
struct Branches : nn::Module {
  nn::ModuleList<nn::Linear> blocks{*this, "blocks"};
  nn::ModuleDict<nn::Layer> heads{*this, "heads"};
};
}  // namespace

TEST_CASE("a module list and a module dictionary name their children") {
  Branches model;
  for (int64_t width : {4, 3, 2}) model.blocks.add(width + 1, width);
  model.heads.add<nn::Linear>("classes", 2, 5, nn::LinearOptions{.bias = false});
  nn::LayerNorm& norm = model.heads.add<nn::LayerNorm>("norm", 2);
  CHECK(names(model.named_parameters()) ==
        Names{"blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias",
              "blocks.2.weight", "blocks.2.bias", "heads.classes.weight", "heads.norm.weight",
              "heads.norm.bias"});
  Tensor x = zeros({7, 5});
  for (const nn::Linear& block : model.blocks) x = block(x);
  CHECK(x.shape() == Shape{7, 2});
  CHECK(x->module() == "blocks.2");
  CHECK(model.blocks.size() == 3);
  CHECK(&model.heads["norm"] == &norm);
  CHECK(model.heads["classes"](x).shape() == Shape{7, 5});
  CHECK(model.heads.contains("classes"));
  CHECK(!model.heads.contains("class"));
  Names keys;
  for (const nn::Layer& head : model.heads) keys.push_back(head.name());
  CHECK(keys == Names{"classes", "norm"});
}

TEST_CASE("a module list and a module dictionary refuse missing and duplicate keys") {
  Branches model;
  CHECK(model.blocks.empty());
  model.blocks.add(2, 2);
  model.heads.add<nn::LayerNorm>("norm", 2);
  CHECK_THROWS_WITH_AS(model.blocks[1], "[module] \"blocks\" has 1 modules. Got index 1.", Error);
  CHECK_THROWS_WITH_AS(model.heads["head"], "[module] \"heads\" has no module \"head\".", Error);
  CHECK_THROWS_WITH_AS(model.heads.add<nn::LayerNorm>("norm", 2),
                       "[module] \"heads\" has two members named \"norm\".", Error);
  for (const char* key : {"", "a.b"})
    CHECK_THROWS_WITH_AS(model.heads.add<nn::LayerNorm>(key, 2),
                         doctest::Contains("must not be empty or have a dot. Got"), Error);
  CHECK(model.heads.size() == 1);
}

TEST_CASE("a shared variable counts once, under its first name") {
  Tied model;
  CHECK(names(model.named_parameters()) == Names{"embedding.weight"});
  CHECK(names(model.head.named_parameters()) == Names{"weight"});
  CHECK(model.parameter_count() == 21);
}

TEST_CASE("duplicate member names are refused with the module's path") {
  nn::Module root;
  nn::Module block(root, "block");
  nn::Linear first(block, "linear", 2, 2);
  CHECK_THROWS_WITH_AS(nn::Linear(block, "linear", 2, 2),
                       "[module] \"block\" has two members named \"linear\".", Error);
  CHECK(block.children().size() == 1);
}

TEST_CASE("a destroyed child is removed from its parent") {
  nn::Module root;
  {
    nn::Linear child(root, "child", 2, 2);
  }
  CHECK(root.children().empty());
  CHECK(root.parameters().empty());
}

TEST_CASE("nodes have the path of their layer and the line of the user's call") {
  Mlp model;
  Tensor x = zeros({2, 6});
  unsigned line = __LINE__ + 1;
  Tensor y = model.head(relu(model.hidden(x)));
  CHECK(y->module() == "head");
  CHECK(y->origin.where.line == line);
  CHECK(std::string(y->origin.where.file).find("module_test.cpp") != std::string::npos);
}

TEST_CASE("a wrong shape is refused with the layer, the limit and the user's line") {
  Mlp model;
  std::string line = std::to_string(__LINE__ + 3);
  std::string message;
  try {
    model.head(zeros({2, 5}));
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message ==
        "[linear] \"head\" takes 4 features in the last axis. Got f32[2, 5]. "
        "(module_test.cpp:" +
            line + ")");
}

TEST_CASE("a build scope sets the type of parameters and can leave them zero") {
  nn::Module root;
  {
    nn::BuildScope scope({.dtype = DType::f64, .initialize = false});
    nn::Linear linear(root, "linear", 3, 3);
    CHECK(linear.weight.type().dtype == DType::f64);
    for (std::byte byte : linear.weight.bytes()) CHECK(byte == std::byte{0});
  }
  nn::Linear linear(root, "again", 3, 3);
  CHECK(linear.weight.type().dtype == DType::f32);
}
