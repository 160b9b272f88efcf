// Tutorial 4: a custom model gets every verb of the command line: train, plan, eval, ckpt, ...
//
//   04_own_program list models
//   04_own_program train recipe.yaml --model.name wide
#include <weft/weft.h>

using namespace weft;

namespace {
class Wide : public Model {
 public:
  Wide(const TaskShape& task, int64_t width)
      : Model(InputKind::images, {{"model_type", std::string("wide")}, {"width", width}}),
        hidden_(*this, "hidden", element_count(task.input), width),
        head_(*this, "head", width, task.classes) {}

 protected:
  Tensor forward(const Tensor& images) const override {
    return head_(relu(hidden_(flatten(images, 1))));
  }

 private:
  nn::Linear hidden_, head_;
};
}  // namespace

int main(int argc, char** argv) {
  registry::models().add({.name = "wide",
                          .doc = "one wide hidden layer",
                          .make = [](const nn::Options& config, const TaskShape& task) {
                            nn::OptionReader options(config, "wide");
                            int64_t width = options.integer("width", 512);
                            options.finish();
                            return std::make_unique<Wide>(task, width);
                          }});
  return weft::main(argc, argv);
}
