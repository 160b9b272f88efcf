// Models by name, published ones, and text that language models write.
#include <cmath>

#include <nanobind/stl/shared_ptr.h>

#include "weft/cli/models/text_flags.h"
#include "weft/models/config_json.h"
#include "weft/models/encoder.h"
#include "weft/models/pretrained.h"

#include "python/src/step.h"

namespace weft::python {
namespace {
using cli::SamplingFlags;
using cli::TextModel;
using infer::Generated;
using Ids = std::vector<int32_t>;

InputKind kind_named(const std::string& name) {
  for (const InputKind kind : {InputKind::features, InputKind::images, InputKind::tokens})
    if (weft::name(kind) == name) return kind;
  throw Error(ErrorKind::usage, "[model] kind is 'features', 'images' or 'tokens'. Got '{}'.",
              name);
}

void bind_zoo(nb::module_& m) {
  nb::class_<Model, nn::Layer>(m, "Model", "A model of the zoo: inputs to logits.")
      .def_prop_ro("input_kind",
                   [](const Model& self) { return std::string(name(self.input_kind())); })
      .def_prop_ro("config_json",
                   [](const Model& self) { return models::json_text(self.config()); });
  nb::class_<models::Encoder, Model>(m, "Encoder", "BERT and its relatives.")
      .def(
          "__call__",
          [](const models::Encoder& self, const Arg& tokens, const std::optional<Arg>& mask,
             const std::optional<Arg>& types) {
            return self(tokens,
                        {.attention_mask = or_empty(mask), .token_type_ids = or_empty(types)});
          },
          "tokens"_a, "attention_mask"_a = nb::none(), "token_type_ids"_a = nb::none());
  m.def("names", [] {
    std::vector<std::pair<std::string, std::string>> all;
    for (const ModelEntry& entry : registry::models()) all.emplace_back(entry.name, entry.doc);
    return all;
  });
  m.def(
      "make",
      [](const std::string& name, const std::string& config, const std::string& kind,
         const Shape& input, int64_t classes, int64_t vocabulary) {
        const CallSite site(python_line(), "make");
        return std::shared_ptr<Model>(make_model(name, models::parse_options(config, "config"),
                                                 {.kind = kind_named(kind),
                                                  .input = input,
                                                  .classes = classes,
                                                  .vocabulary = vocabulary}));
      },
      "name"_a, "config"_a, "kind"_a, "input"_a, "classes"_a, "vocabulary"_a = 0);
}

void bind_pretrained(nb::module_& m) {
  nb::class_<models::Pretrained>(m, "Pretrained", "A published model with its weights.")
      .def_prop_ro(
          "model", [](const models::Pretrained& self) { return self.model.get(); },
          nb::rv_policy::reference_internal)
      .def_ro("dtype", &models::Pretrained::dtype)
      .def_ro("vocabulary", &models::Pretrained::vocabulary)
      .def_ro("context", &models::Pretrained::context)
      .def_ro("loaded", &models::Pretrained::loaded);
  m.def(
      "load_pretrained",
      [](const std::string& path, std::optional<DType> dtype, bool map, bool weights) {
        const nb::gil_scoped_release released;
        return models::load_pretrained(path, {.dtype = dtype, .map = map, .weights = weights});
      },
      "path"_a, "dtype"_a = nb::none(), "map"_a = true, "weights"_a = true);
}

// Calls back for each piece of text, and lets Ctrl-C end the generation.
infer::OnText calling(const nb::object& on_text) {
  return [&on_text](size_t sequence, std::string_view piece) {
    const nb::gil_scoped_acquire gil;
    if (!on_text.is_none()) on_text(sequence, nb::bytes(piece.data(), piece.size()));
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  };
}

std::vector<Generated> generate(const TextModel& model, const std::vector<Ids>& prompts,
                                int64_t max_new_tokens, int64_t context,
                                const SamplingFlags& sampling, const nb::object& on_text) {
  check_process();
  infer::GenerateOptions options = cli::options_of(sampling, model);
  options.max_new_tokens =
      max_new_tokens > 0 ? max_new_tokens : model.defaults.max_new_tokens.value_or(200);
  const infer::OnText callback = calling(on_text);
  const nb::gil_scoped_release released;
  const std::unique_ptr<infer::TokenModel> tokens =
      cli::sequences_for(model, prompts, options.max_new_tokens, context, "");
  return cli::generated(model, *tokens, prompts, options, callback);
}

void bind_text(nb::module_& m) {
  nb::class_<SamplingFlags>(m, "Sampling")
      .def(
          "__init__",
          [](SamplingFlags* self, std::optional<double> temperature, std::optional<int64_t> top_k,
             std::optional<double> top_p, std::optional<double> min_p,
             std::optional<double> repetition_penalty, double presence_penalty,
             double frequency_penalty, int64_t seed, std::vector<std::string> stop) {
            new (self) SamplingFlags{.temperature = temperature.value_or(NAN),
                                     .top_p = top_p.value_or(NAN),
                                     .min_p = min_p.value_or(NAN),
                                     .repetition_penalty = repetition_penalty.value_or(NAN),
                                     .top_k = top_k.value_or(-1),
                                     .others = {.presence_penalty = presence_penalty,
                                                .frequency_penalty = frequency_penalty,
                                                .seed = seed},
                                     .stop = std::move(stop)};
          },
          nb::kw_only(), "temperature"_a = nb::none(), "top_k"_a = nb::none(),
          "top_p"_a = nb::none(), "min_p"_a = nb::none(), "repetition_penalty"_a = nb::none(),
          "presence_penalty"_a = 0.0, "frequency_penalty"_a = 0.0, "seed"_a = 0,
          "stop"_a = std::vector<std::string>());
  nb::class_<Generated>(m, "Generated", "A text that a model wrote after its prompt.")
      .def_prop_ro(
          "text",
          [](const Generated& self) {
            return nb::bytes(self.text.data(), self.text.size()).attr("decode")("utf-8", "replace");
          })
      .def_ro("tokens", &Generated::tokens)
      .def_ro("log_probabilities", &Generated::log_probabilities)
      .def_ro("seconds", &Generated::seconds)
      .def_prop_ro("finish",
                   [](const Generated& self) { return std::string(infer::name(self.finish)); });
  nb::class_<TextModel>(m, "TextModel")
      .def_ro("name", &TextModel::name)
      .def_ro("vocabulary", &TextModel::vocabulary)
      .def_ro("context", &TextModel::context)
      .def_ro("codec", &TextModel::codec)
      .def_ro("chat_template", &TextModel::chat)
      .def_prop_ro(
          "model",
          [](const TextModel& self) -> const Model* {
            return self.compiled ? nullptr : &self.model();
          },
          nb::rv_policy::reference_internal)
      .def("ids", &cli::ids_of, "prompt"_a, "context"_a)
      .def("generate", &generate, "prompts"_a, "max_new_tokens"_a, "context"_a, "sampling"_a,
           "on_text"_a = nb::none());
  m.def(
      "load",
      [](const std::string& name, const std::string& device, std::optional<DType> dtype,
         const std::string& adapter) {
        cli::TextModelOptions options{.dtype = dtype, .adapter = adapter};
        if (!device.empty()) options.flags = {{"device", "train.device", device}};
        const nb::gil_scoped_release released;
        return cli::load_text_model(name, options);
      },
      "name"_a, "device"_a = "", "dtype"_a = nb::none(), "adapter"_a = "");
}
}  // namespace

void bind_models(nb::module_& package) {
  nb::module_ m = package.def_submodule("_models", "The zoo, and published models.");
  bind_zoo(m);
  bind_pretrained(m);
  bind_text(m);
}

}  // namespace weft::python
