// Uses the core alone: plans and trains a net, saves and loads it as safetensors, and generates
// text from a folder with a Llama. Usage: core_alone FOLDER, which must exist.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <weft/core.h>
#include <weft/infer/generate.h>
#include <weft/models/config_json.h>
#include <weft/models/llama.h>

using namespace weft;

namespace {
struct Mlp : nn::Module {
  nn::Linear hidden{*this, "hidden", 16, 32};
  nn::Linear head{*this, "head", 32, 4};
  Tensor operator()(const Tensor& x) const { return head(relu(hidden(x))); }
};

void require(bool holds, const char* what) {
  if (holds) return;
  print("core_alone: {}", what);
  std::exit(1);
}

void train_and_save(const std::string& file) {
  Mlp model;
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor labels) {
    Tensor loss = cross_entropy(model(x), labels);
    optimizer.step(grad(loss, model.parameters()));
    return loss;
  });
  const Tensor x = rand({64, 16}), labels = randint(0, 4, {64});
  const PlanSummary plan = step.plan(x, labels);
  print("planned: {} launches, {} bytes of state, an arena of {} bytes", plan.launches,
        plan.state_bytes, plan.arena_bytes);
  require(plan.arena_bytes > 0 && plan.arena_bytes >= plan.live_peak_bytes, "a plan has an arena");
  const PlanSummary elsewhere = step.plan_on("h100", x, labels);
  require(elsewhere.expected_seconds() > 0, "a GPU's step has a time");
  const double first = step(x, labels).item();
  double last = first;
  for (int i = 0; i < 20; ++i) last = step(x, labels).item();
  print("loss: {:.4f}, after 20 steps {:.4f}", first, last);
  require(last < 0.95 * first, "the loss falls");

  io::save(model, file);
  Mlp other;
  io::load(other, file);
  require(max(abs(other(x) - model(x))).item() == 0,
          "a loaded net computes what the saved one does");
}

void generate_from(const std::string& folder) {
  const models::Llama small({.vocab_size = 256,
                             .max_position_embeddings = 64,
                             .hidden_size = 32,
                             .intermediate_size = 64,
                             .num_hidden_layers = 2,
                             .num_attention_heads = 4,
                             .initializer_range = 0.3});
  io::save_folder(small, folder, {{"config.json", models::json_text(small.config())}});
  const models::Pretrained model = models::load_pretrained(folder);
  const data::TextCodec codec = io::Vocabulary::bytes();
  auto tokens = infer::make_token_model(*model.model, model.vocabulary, model.context, {});
  const std::vector<std::vector<int32_t>> prompts = {codec.encode("to be")};
  const auto texts = infer::generate(*tokens, codec, prompts,
                                     {.max_new_tokens = 8, .sampling = {.temperature = 0}});
  print("generated: {} tokens", texts[0].tokens.size());
  require(texts[0].tokens.size() == 8, "eight tokens are generated");
}
}  // namespace

int main(int argc, char** argv) try {
  require(argc == 2, "usage: core_alone FOLDER");
  const std::string folder = argv[1];
  train_and_save(folder + "/net.safetensors");
  std::filesystem::remove_all(folder + "/llama");  // of an earlier run
  generate_from(folder + "/llama");
} catch (const Error& error) {
  print("core_alone: {}", error.what());
  return static_cast<int>(error.kind());
}
