// Tutorial 5 adds a data set, file format, model, loss, metric, optimizer and schedule of your own,
// which recipes name and every verb of the command line knows: see docs/adding-to-training.md.
//
//   05_own_parts list losses
//   05_own_parts train examples/05_own_parts.yaml
#include <cmath>
#include <cstring>
#include <fstream>

#include <weft/weft.h>

using namespace weft;

namespace {
// ---- data: points in the plane, labelled by their quadrant; and files of such points

struct Point {
  float at[2];
  int64_t label;
};

class Points : public data::Source {
 public:
  explicit Points(std::vector<Point> points) : points_(std::move(points)) {}
  int64_t size() const override { return std::ssize(points_); }
  Type input_type() const override { return {DType::f32, {2}}; }
  Shape label_shape() const override { return {}; }
  void write(const data::SampleKey& key, std::byte* input, int64_t* label) const override {
    const Point& point = points_[static_cast<size_t>(key.index)];
    std::memcpy(input, point.at, sizeof point.at);
    *label = point.label;
  }

 private:
  std::vector<Point> points_;
};

train::TaskData task_of(std::vector<Point> points, std::vector<Point> held_out) {
  return {.task = train::Task::classification,
          .shape = {InputKind::features, {2}, 4},
          .train = std::make_shared<Points>(std::move(points)),
          .validation = std::make_shared<Points>(std::move(held_out))};
}

// Returns a grid of side x side points around `center`.
std::vector<Point> grid(int64_t side, double center) {
  std::vector<Point> points;
  for (int64_t i = 0; i < side * side; ++i) {
    const auto place = [&](int64_t n) { return 2 * (n + center) / static_cast<double>(side) - 1; };
    const double x = place(i % side), y = place(i / side);
    points.push_back({{static_cast<float>(x), static_cast<float>(y)}, (x > 0) + 2 * (y > 0)});
  }
  return points;
}

train::TaskData quadrants(const train::Recipe& recipe, const train::DataOptions&) {
  const int64_t side = recipe.integer("data.side");
  return task_of(grid(side, 0.5), grid(side, 0.25));
}

train::TaskData lines_of_points(const train::Recipe& recipe, const train::DataOptions&) {
  std::ifstream file(train::find_data(recipe.text("data.path")));
  std::vector<Point> points;
  for (Point p; file >> p.at[0] >> p.at[1] >> p.label;) points.push_back(p);
  return task_of(points, points);
}

// ---- a model: make_model's own with other defaults would do; this one is written out

class Small : public Model {
 public:
  explicit Small(const TaskShape& task)
      : Model(InputKind::features, {{"model_type", std::string("small")}}),
        hidden_(*this, "hidden", task.input[0], 16),
        head_(*this, "head", 16, task.classes) {}

 protected:
  Tensor forward(const Tensor& x) const override { return head_(tanh(hidden_(x))); }

 private:
  nn::Linear hidden_, head_;
};

// ---- a loss: Lin et al. 2017, "Focal loss for dense object detection"

// Ignored labels fill a short batch, and count neither in a loss nor in a metric.
Tensor counted(const Tensor& labels) { return cast(labels != data::ignored_label, DType::f32); }

Tensor focal(const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
  const Tensor hit = one_hot(labels, scores.dim(-1));
  const Tensor log_p = sum(log_softmax(scores) * hit, {.axes = {1}});
  const Tensor of_sample = -pow(1.0 - exp(log_p), recipe.number("loss.gamma")) * log_p;
  return sum(of_sample * counted(labels));
}

// ---- a metric: whether the label is among the highest scores

Tensor among_highest(const Tensor& scores, const Tensor& labels, const train::Recipe& recipe) {
  const Tensor own = sum(scores * one_hot(labels, scores.dim(-1)), {.axes = {1}, .keepdim = true});
  const Tensor higher = sum(cast(scores > own, DType::f32), {.axes = {1}});
  return sum(cast(higher < recipe.integer("eval.k"), DType::f32) * counted(labels));
}

// ---- an optimizer: Bernstein et al. 2018, "signSGD", with momentum

class SignDescent : public optim::Optimizer {
 public:
  SignDescent(std::vector<Variable> parameters, const optim::OptimizerSettings& settings)
      : Optimizer("SignDescent", std::move(parameters), settings.lr, 0, settings.groups,
                  settings.rounding),
        beta_(settings.keys.number("optimizer.beta")),
        mean_(make_state("mean")) {}

 private:
  std::vector<Tensor> scalars(const Tensor&, const Tensor& rate, double) const override {
    return {rate};
  }
  Tensor update(size_t i, const Tensor& value, const Tensor& gradient,
                std::span<const Tensor> scalars, double) const override {
    const Tensor mean = beta_ * mean_[i] + (1 - beta_) * gradient;
    set(mean_[i], mean);
    return value - scalars[0] * sign(mean);
  }

  double beta_;
  std::vector<Variable> mean_;
};
}  // namespace

int main(int argc, char** argv) {
  using enum KeyType;
  registry::models().add({.name = "small",
                          .doc = "one hidden layer of 16",
                          .make = [](const nn::Options&, const TaskShape& task) {
                            return std::make_unique<Small>(task);
                          }});
  registry::datasets().add({.name = "quadrants",
                            .doc = "points of the plane and their quadrants",
                            .read = quadrants,
                            .keys = {{.path = "data.side",
                                      .type = integer,
                                      .initial = "16",
                                      .low = 2,
                                      .high = 1024,
                                      .help = "quadrants: points along each axis"}},
                            .unit = "points"});
  registry::formats().add(
      {.name = "points", .doc = "lines of x, y and a label", .read = lines_of_points});
  registry::losses().add({.name = "focal",
                          .doc = "cross entropy that counts hard samples more",
                          .total = focal,
                          .keys = {{.path = "loss.gamma",
                                    .type = number,
                                    .initial = "2",
                                    .low = 0,
                                    .high = 10,
                                    .help = "focal: how much more"}}});
  registry::metrics().add({.name = "top_k",
                           .doc = "the part of labels among the k highest scores",
                           .value = [](const train::EvalSums& all, std::span<const double> own,
                                       const train::Recipe&) { return own[0] / all.count; },
                           .sums = among_highest,
                           .keys = {{.path = "eval.k",
                                     .type = integer,
                                     .initial = "5",
                                     .low = 1,
                                     .high = 1000,
                                     .help = "top_k: how many of the highest scores count"}}});
  registry::optimizers().add(
      {.name = "sign",
       .doc = "every weight moves by the learning rate",
       .settings = "lr",
       .make =
           [](std::vector<Variable> parameters, const optim::OptimizerSettings& settings) {
             return std::make_unique<SignDescent>(std::move(parameters), settings);
           },
       .keys = {{.path = "optimizer.beta",
                 .type = number,
                 .initial = "0.9",
                 .low = 0,
                 .high = 1,
                 .help = "sign: decay rate of the mean gradient"}}});
  registry::schedules().add(  // Vaswani et al. 2017, section 5.3, from its peak on
      {.name = "inverse-sqrt",
       .doc = "falls as one over the square root of the steps",
       .rate = [](const auto& step, double lr, const optim::ScheduleOptions&) {
         using std::sqrt;
         return lr / sqrt(step + 1.0);
       }});
  return weft::main(argc, argv);
}
