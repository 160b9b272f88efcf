// Loads published weights, whose names, layouts and types differ from those of the models.
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

#include "tests/models/reference.h"
#include "tests/support/temporary_folder.h"
#include "weft/io/load.h"
#include "weft/models/gpt.h"
#include "weft/models/resnet.h"
#include "weft/tensor/compile.h"

using namespace weft;
using namespace weft::testing;
using test::TemporaryFolder;

namespace {
Variable named(const std::string& name, const Tensor& value) {
  Variable variable(name, value.type());
  variable.assign(value);
  return variable;
}
std::unique_ptr<Model> small_gpt2() {
  return make_model("gpt2",
                    {{"vocab_size", int64_t{17}},
                     {"max_position_embeddings", int64_t{6}},
                     {"hidden_size", int64_t{8}},
                     {"num_hidden_layers", int64_t{2}},
                     {"num_attention_heads", int64_t{2}}},
                    {InputKind::tokens, {6}, 17});
}
}  // namespace

TEST_CASE("GPT-2 loads by its published names from matrices stored as [in, out]") {
  const auto model = small_gpt2(), loaded = small_gpt2();
  uint64_t stream = 0;
  for (const Variable& variable : model->variables())
    write(variable, uniform_tensor(stream++, variable.shape(), DType::f64).to_doubles());
  for (const std::string prefix : {"", "transformer."}) {
    std::vector<Variable> file;
    for (const auto& [name, variable] : model->state()) {
      // GPT-2 names the modules of a block that are neither norm nor attention "mlp".
      std::string published = name;
      for (const std::string part : {".c_fc.", ".c_proj."})
        if (const size_t at = published.find(part);
            at != std::string::npos && published.find(".attn.") == std::string::npos)
          published.insert(at, ".mlp");
      const bool turned = variable.shape().size() == 2 && name.starts_with("h.");
      const Tensor value = variable.value();
      file.push_back(named(prefix + published, turned ? value.transpose() : value));
    }
    for (const std::string layer : {"h.0", "h.1"})
      file.push_back(named(prefix + layer + ".attn.bias", ones({1, 1, 6, 6})));
    file.push_back(named("lm_head.weight", zeros({17, 8})));
    TemporaryFolder folder;
    io::save_safetensors(folder.file("model.safetensors"), file);
    for (const Variable& variable : loaded->parameters()) variable.assign(zeros(variable.shape()));
    io::LoadOptions options = models::gpt2_layout();
    options.prefix = prefix;
    const io::Loaded found = io::load(*loaded, folder.file("model.safetensors"), options);
    CHECK(found.loaded.size() == model->state().size());
    CHECK(found.missing.empty());
    CHECK(found.unexpected.empty());
    const Tensor tokens = tensor({3, 1, 4, 1, 5, 9}, {1, 6});
    CHECK((*loaded)(tokens).to_doubles() == (*model)(tokens).to_doubles());
  }
}

TEST_CASE("a ResNet from DataParallel with a renamed head loads by a prefix and a name") {
  const auto make = [] {
    return make_model("resnet", {{"depth", int64_t{8}}, {"shortcut", std::string("zeros_around")}},
                      {InputKind::images, {3, 8, 8}, 10});
  };
  const auto model = make(), loaded = make();
  std::vector<Variable> file;
  for (const auto& [name, variable] : model->state()) {
    const std::string own = name.starts_with("fc.") ? "linear." + name.substr(3) : name;
    file.push_back(named("module." + own, variable.value()));
  }
  file.push_back(named("module.bn1.num_batches_tracked", zeros({}, DType::i64)));
  TemporaryFolder folder;
  io::save_safetensors(folder.file("m"), file);
  for (const Variable& variable : loaded->parameters()) variable.assign(zeros(variable.shape()));
  io::load(*loaded, folder.file("m"), {.prefix = "module.", .rename = {{"linear.*", "fc.*"}}});
  const Tensor x = uniform_tensor(1, {2, 3, 8, 8}, DType::f32);
  CHECK((*loaded)(x).to_doubles() == (*model)(x).to_doubles());
  CHECK(std::get<std::string>(*model->config().find("shortcut")) == "zeros_around");
  using doctest::Contains;
  CHECK_THROWS_WITH_AS(make_model("resnet", {{"shortcut", std::string("option_a")}},
                                  {InputKind::images, {3, 8, 8}, 10}),
                       Contains("shortcut must be one of zeros_behind, zeros_around, projection"),
                       Error);
  CHECK_THROWS_WITH_AS(make_model("resnet18", {{"shortcut", std::string("zeros_behind")}},
                                  {InputKind::images, {3, 64, 64}, 10}),
                       Contains("shortcut must be"), Error);
}
