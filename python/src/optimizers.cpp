// Optimizers and their schedules.
#include <variant>

#include <nanobind/stl/function.h>
#include <nanobind/stl/variant.h>

#include "weft/optim/optim.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
using namespace optim;

// A learning rate is a number, which does not change, or a schedule.
using Rate = std::variant<double, Schedule>;

Schedule schedule_of(const Rate& rate) {
  if (const double* lr = std::get_if<double>(&rate)) return Schedule(*lr);
  return std::get<Schedule>(rate);
}

void bind_schedules(nb::module_& m) {
  nb::class_<Schedule>(m, "Schedule", "The learning rate as a function of the step's number.")
      .def(nb::init<double>(), "lr"_a)
      .def(
          "__init__",
          [](Schedule* self, const std::string& name, double lr, int64_t warmup, int64_t total,
             double min_lr, int64_t decay, int64_t every, double gamma) {
            new (self) Schedule(make_schedule(name, lr,
                                              {.warmup = warmup,
                                               .total = total,
                                               .min_lr = min_lr,
                                               .decay = decay,
                                               .every = every,
                                               .gamma = gamma}));
          },
          "name"_a, "lr"_a, "warmup"_a = 0, "total"_a = 0, "min_lr"_a = 0, "decay"_a = 0,
          "every"_a = 0, "gamma"_a = 0.1)
      .def(
          "at", [](const Schedule& self, int64_t step) { return self.at(step); }, "step"_a)
      .def_prop_ro("peak", &Schedule::peak);
}

void bind_groups(nb::module_& m) {
  nb::class_<Group>(m, "Group",
                    "Parameters with settings of their own: those for which matches(variable).")
      .def(
          "__init__",
          [](Group* self, std::function<bool(const Variable&)> matches, double lr_scale,
             std::optional<double> weight_decay) {
            new (self) Group{std::move(matches), lr_scale, weight_decay};
          },
          "matches"_a, "lr_scale"_a = 1.0, "weight_decay"_a = nb::none());
  m.def("no_decay_below_rank_2", &no_decay_below_rank_2,
        "Returns a group without weight decay for all but matrices: biases and weights of norms.");
}

Rounding rounding_named(const std::string& name) {
  if (name == "nearest") return Rounding::nearest;
  if (name == "stochastic") return Rounding::stochastic;
  if (name == "kahan") return Rounding::kahan;
  throw Error(ErrorKind::usage,
              "[optimizer] rounding is 'nearest', 'stochastic' or 'kahan'. Got '{}'.", name);
}

void bind_gradients(nb::module_& m) {
  m.def(
      "clip_grad_norm",
      [](const std::vector<Arg>& gradients, double max_norm) {
        Clipped clipped = clip_grad_norm(values_of(gradients), max_norm);
        return std::pair(std::move(clipped.gradients), clipped.norm);
      },
      "gradients"_a, "max_norm"_a);
  nb::class_<Accumulator>(m, "Accumulator",
                          "Sums gradients over micro-batches; mean() is that of the whole batch.")
      .def(
          "__init__",
          [](Accumulator* self, const std::vector<Variable>& parameters) {
            new (self) Accumulator(parameters);
          },
          "parameters"_a)
      .def(
          "add",
          [](const Accumulator& self, const std::vector<Arg>& gradients, const Arg& count) {
            const CallSite site(python_line(), "add");
            self.add(values_of(gradients), count);
          },
          "gradients"_a, "count"_a = 1)
      .def("mean", &Accumulator::mean)
      .def("zero", &Accumulator::zero)
      .def_prop_ro("sums", &Accumulator::sums);
}
}  // namespace

void bind_optimizers(nb::module_& m) {
  bind_schedules(m);
  bind_groups(m);
  bind_gradients(m);
  nb::class_<Optimizer>(m, "Optimizer", "Updates parameters by their gradients, within a step.")
      .def(
          "step",
          [](Optimizer& self, const std::vector<Arg>& gradients,
             const std::optional<Arg>& only_if) {
            const CallSite site(python_line(), "step");
            self.step(values_of(gradients), or_empty(only_if));
          },
          "gradients"_a, "only_if"_a = nb::none())
      .def_prop_ro("parameters", &Optimizer::parameters)
      .def_prop_ro("state", &Optimizer::state)
      .def_prop_ro("learning_rate", &Optimizer::learning_rate);
  const auto adam = [](const Rate& lr, std::pair<double, double> betas, double eps,
                       std::optional<double> weight_decay, std::vector<Group> groups,
                       const std::string& rounding) {
    return AdamOptions{.lr = schedule_of(lr),
                       .betas = {betas.first, betas.second},
                       .eps = eps,
                       .weight_decay = weight_decay,
                       .groups = std::move(groups),
                       .rounding = rounding_named(rounding)};
  };
  nb::class_<Adam, Optimizer>(m, "Adam").def(
      "__init__",
      [adam](Adam* self, std::vector<Variable> parameters, const Rate& lr,
             std::pair<double, double> betas, double eps, std::optional<double> weight_decay,
             std::vector<Group> groups, const std::string& rounding) {
        new (self) Adam(std::move(parameters),
                        adam(lr, betas, eps, weight_decay, std::move(groups), rounding));
      },
      "parameters"_a, "lr"_a = 1e-3, "betas"_a = std::pair(0.9, 0.999), "eps"_a = 1e-8,
      "weight_decay"_a = nb::none(), "groups"_a = std::vector<Group>(), "rounding"_a = "nearest");
  nb::class_<AdamW, Optimizer>(m, "AdamW")
      .def(
          "__init__",
          [adam](AdamW* self, std::vector<Variable> parameters, const Rate& lr,
                 std::pair<double, double> betas, double eps, std::optional<double> weight_decay,
                 std::vector<Group> groups, const std::string& rounding) {
            new (self) AdamW(std::move(parameters),
                             adam(lr, betas, eps, weight_decay, std::move(groups), rounding));
          },
          "parameters"_a, "lr"_a = 1e-3, "betas"_a = std::pair(0.9, 0.999), "eps"_a = 1e-8,
          "weight_decay"_a = nb::none(), "groups"_a = std::vector<Group>(),
          "rounding"_a = "nearest");
  nb::class_<SGD, Optimizer>(m, "SGD").def(
      "__init__",
      [](SGD* self, std::vector<Variable> parameters, const Rate& lr, double momentum,
         double dampening, double weight_decay, bool nesterov, std::vector<Group> groups,
         const std::string& rounding) {
        new (self) SGD(std::move(parameters), {.lr = schedule_of(lr),
                                               .momentum = momentum,
                                               .dampening = dampening,
                                               .weight_decay = weight_decay,
                                               .nesterov = nesterov,
                                               .groups = std::move(groups),
                                               .rounding = rounding_named(rounding)});
      },
      "parameters"_a, "lr"_a = 1e-3, "momentum"_a = 0, "dampening"_a = 0, "weight_decay"_a = 0,
      "nesterov"_a = false, "groups"_a = std::vector<Group>(), "rounding"_a = "nearest");
}

}  // namespace weft::python
