#include "weft/train/methods/trainable.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weft/base/logging.h"
#include "weft/base/text/pattern.h"
#include "weft/base/text/suggest.h"
#include "weft/io/files.h"
#include "weft/models/decoder.h"
#include "weft/nn/module.h"
#include "weft/train/task/published.h"

namespace weft::train {
namespace {
void add_adapter(const Recipe& recipe, Model& model) {
  if (model.cached() == nullptr)
    recipe.refuse(keys::adapter::type,
                  "adapter.type lora is for decoders, and the model is an encoder.");
  try {
    nn::add_lora(model, recipe->adapter.target_modules, adapter_of(recipe).lora);
  } catch (const Error& error) {
    recipe.refuse(keys::adapter::target_modules, error.what());
  }
}

void freeze(const Recipe& recipe, const nn::Module& model) {
  for (std::string_view key : {keys::model::freeze, keys::model::unfreeze})
    for (const std::string& pattern : recipe.texts(key)) {
      const std::vector<nn::NamedVariable> named = model.named_parameters();
      const auto is_meant = [&](const nn::NamedVariable& entry) {
        return matches(entry.name, pattern);
      };
      if (std::ranges::none_of(named, is_meant)) {
        std::vector<std::string> names;
        names.reserve(named.size());
        for (const nn::NamedVariable& entry : named) names.push_back(entry.name);
        recipe.refuse(key, fmt::format("{}: no parameter has a name like '{}'.{} The first is {}, "
                                       "the last {}.",
                                       key, io::printable(pattern), did_you_mean(pattern, names),
                                       names.front(), names.back()));
      }
      if (key == keys::model::freeze)
        model.freeze(pattern);
      else
        model.unfreeze(pattern);
    }
  if (model.parameters().empty())
    recipe.refuse(keys::model::freeze,
                  "model.freeze leaves no parameter that trains. Hint: model.unfreeze.");
}
}  // namespace

void choose_trainable(const Recipe& recipe, Model& model) {
  if (recipe->adapter.type)
    add_adapter(recipe, model);
  else
    freeze(recipe, model);
}

void warn_of_blocks(const Recipe& recipe, const Model& model) {
  if (recipe->adapter.type) return;
  const auto blocks = std::ranges::count_if(model.variables(), [](const Variable& variable) {
    return variable.type().dtype == DType::u8;
  });
  if (blocks == 0) return;
  int64_t numbers = 0;
  for (const Variable& parameter : model.parameters()) numbers += parameter.type().elements();
  logging::warn(
      "[{}] {} weights are in blocks, which do not train: only the {} numbers of other parameters "
      "do. Hint: --adapter.type lora.",
      *recipe->model.pretrained, blocks, numbers);
}

}  // namespace weft::train
