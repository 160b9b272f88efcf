// Defines a program with every verb of weft and one additional model.
#include <weft/weft.h>

using namespace weft;

struct Mine : Model {
  Mine(int64_t features, int64_t classes)
      : Model(InputKind::images, {{"model_type", std::string("mine")}}),
        hidden(*this, "hidden", features, 64),
        head(*this, "head", 64, classes) {}

  nn::Linear hidden, head;

 protected:
  Tensor forward(const Tensor& x) const override { return head(relu(hidden(flatten(x, 1)))); }
};

int main(int argc, char** argv) {
  registry::models().add({.name = "mine", .make = [](const nn::Options&, const TaskShape& task) {
                            return std::make_unique<Mine>(element_count(task.input), task.classes);
                          }});
  return weft::main(argc, argv);
}
