// Trains resnet20.json's model in 80-bit long double, 2048 times finer than float64, to judge
// float64 curves. The layers follow README.md and share no code with weft.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <vector>

namespace {
using Real = long double;
using Reals = std::vector<Real>;
static_assert(std::numeric_limits<Real>::digits >= 64, "needs x87's long double, or a longer one");

constexpr int batch = 16, classes = 10, batches = 8;
constexpr double lr = 0.1, momentum = 0.9, weight_decay = 1e-4, batch_norm_eps = 1e-5;

// These functions are the formula of README.md.
uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
uint64_t bits(uint64_t stream, uint64_t index) { return splitmix64(splitmix64(stream) + index); }
double uniform(uint64_t stream, uint64_t index, double a) {
  return (2 * (static_cast<double>(bits(stream, index) >> 11) * 0x1p-53) - 1) * a;
}

struct Parameter {
  Reals value, gradient, velocity;
};
std::deque<Parameter> parameters;  // in README.md's order; deque keeps references valid

Parameter& ones(size_t size) { return parameters.emplace_back(Reals(size, 1), Reals(size)); }
Parameter& drawn(size_t size, double scale) {
  const uint64_t stream = parameters.size();
  Parameter& parameter = ones(size);
  for (size_t i = 0; i < size; ++i) parameter.value[i] = uniform(stream, i, scale);
  return parameter;
}

// [batch, channels, side, side]
struct Images {
  int channels, side;
  Reals values;

  Images(int channels, int side)
      : channels(channels), side(side), values(size_t(batch) * channels * side * side) {}
  Real* map(int n, int c) { return &values[(size_t(n) * channels + c) * side * side]; }
  const Real* map(int n, int c) const { return const_cast<Images*>(this)->map(n, c); }
};

// Returns x with a border of zeros and `stride - 1` zeros after each element.
Images padded(const Images& x, int stride = 1) {
  Images y(x.channels, x.side * stride + 2);
  for (int n = 0; n < batch; ++n)
    for (int c = 0; c < x.channels; ++c)
      for (int i = 0; i < x.side * x.side; ++i)
        y.map(n, c)[(i / x.side * stride + 1) * y.side + i % x.side * stride + 1] = x.map(n, c)[i];
  return y;
}

// Convolution is a 3x3 convolution with padding 1 and no bias.
struct Convolution {
  int inputs, outputs, stride;
  Parameter& weight;  // [outputs, inputs, 3, 3]
  Images x{0, 0};     // padded

  Convolution(int inputs, int outputs, int stride)
      : inputs(inputs),
        outputs(outputs),
        stride(stride),
        weight(drawn(size_t(outputs) * inputs * 9, std::sqrt(6.0 / (inputs * 9)))) {}

  Images forward(const Images& images) {
    x = padded(images);
    Images y(outputs, images.side / stride);
#pragma omp parallel for collapse(2)
    for (int n = 0; n < batch; ++n)
      for (int o = 0; o < outputs; ++o)
        for (int i = 0; i < y.side * y.side; ++i) {
          Real sum = 0;
          for (int c = 0; c < inputs; ++c)
            for (int t = 0; t < 9; ++t)
              sum += weight.value[(o * inputs + c) * 9 + t] * x.map(n, c)[at(i, t, y.side)];
          y.map(n, o)[i] = sum;
        }
    return y;
  }
  Images backward(const Images& dy) {
#pragma omp parallel for collapse(2)
    for (int o = 0; o < outputs; ++o)
      for (int c = 0; c < inputs; ++c)
        for (int t = 0; t < 9; ++t) {
          Real sum = 0;
          for (int n = 0; n < batch; ++n)
            for (int i = 0; i < dy.side * dy.side; ++i)
              sum += dy.map(n, o)[i] * x.map(n, c)[at(i, t, dy.side)];
          weight.gradient[(o * inputs + c) * 9 + t] = sum;
        }
    Images spaced = padded(dy, stride), dx(inputs, x.side - 2);
#pragma omp parallel for collapse(2)
    for (int n = 0; n < batch; ++n)
      for (int c = 0; c < inputs; ++c)
        for (int i = 0; i < dx.side * dx.side; ++i) {
          const int corner = i / dx.side * x.side + i % dx.side;
          Real sum = 0;
          for (int o = 0; o < outputs; ++o)
            for (int t = 0; t < 9; ++t)
              sum += weight.value[(o * inputs + c) * 9 + 8 - t] *
                     spaced.map(n, o)[corner + t / 3 * x.side + t % 3];
          dx.map(n, c)[i] = sum;
        }
    return dx;
  }
  // Returns the index of tap t of output element i in a padded input map.
  int at(int i, int t, int output_side) const {
    return (i / output_side * stride + t / 3) * x.side + i % output_side * stride + t % 3;
  }
};

struct BatchNorm {
  Parameter &weight, &bias;
  Images normal{0, 0};
  Reals rstd;

  explicit BatchNorm(int channels)
      : weight(ones(channels)), bias(drawn(channels, 0.01)), rstd(channels) {}

  Images forward(Images x) {
    const int area = x.side * x.side;
    const Real count = Real(batch) * area;
    normal = x;
    for (int c = 0; c < x.channels; ++c) {
      Real mean = 0, variance = 0;
      for (int n = 0; n < batch; ++n)
        for (int i = 0; i < area; ++i) mean += x.map(n, c)[i] / count;
      for (int n = 0; n < batch; ++n)
        for (int i = 0; i < area; ++i)
          variance += (x.map(n, c)[i] - mean) * (x.map(n, c)[i] - mean) / count;
      rstd[c] = 1 / std::sqrt(variance + batch_norm_eps);
      for (int n = 0; n < batch; ++n)
        for (int i = 0; i < area; ++i) {
          normal.map(n, c)[i] = (x.map(n, c)[i] - mean) * rstd[c];
          x.map(n, c)[i] = normal.map(n, c)[i] * weight.value[c] + bias.value[c];
        }
    }
    return x;
  }
  Images backward(Images dy) {
    const int area = dy.side * dy.side;
    const Real count = Real(batch) * area;
    for (int c = 0; c < dy.channels; ++c) {
      Real sum = 0, dot = 0;
      for (int n = 0; n < batch; ++n)
        for (int i = 0; i < area; ++i) {
          sum += dy.map(n, c)[i];
          dot += dy.map(n, c)[i] * normal.map(n, c)[i];
        }
      bias.gradient[c] = sum;
      weight.gradient[c] = dot;
      for (int n = 0; n < batch; ++n)
        for (int i = 0; i < area; ++i)
          dy.map(n, c)[i] = weight.value[c] * rstd[c] *
                            (dy.map(n, c)[i] - sum / count - normal.map(n, c)[i] * dot / count);
    }
    return dy;
  }
};

Images relu(Images x) {
  for (Real& value : x.values) value = value > 0 ? value : 0;
  return x;
}
Images relu_backward(Images dy, const Images& y) {
  for (size_t i = 0; i < y.values.size(); ++i)
    if (y.values[i] == 0) dy.values[i] = 0;
  return dy;
}

// Calls f(large, small) for the elements that the shortcut adds: every second one if sides differ.
template <class F>
void join(Images& large, Images& small, F f) {
  const int stride = large.side / small.side;
  for (int n = 0; n < batch; ++n)
    for (int c = 0; c < large.channels; ++c)
      for (int i = 0; i < small.side * small.side; ++i)
        f(large.map(n, c)[(i / small.side * large.side + i % small.side) * stride],
          small.map(n, c)[i]);
}

struct Block {
  Convolution conv1;
  BatchNorm bn1;
  Convolution conv2;
  BatchNorm bn2;
  Images hidden{0, 0}, y{0, 0};

  Block(int inputs, int width, int stride)
      : conv1(inputs, width, stride), bn1(width), conv2(width, width, 1), bn2(width) {}

  Images forward(Images x) {
    hidden = relu(bn1.forward(conv1.forward(x)));
    y = bn2.forward(conv2.forward(hidden));
    join(x, y, [](Real from, Real& to) { to += from; });
    return y = relu(y);
  }
  Images backward(Images dy) {
    dy = relu_backward(dy, y);
    Images dhidden = relu_backward(conv2.backward(bn2.backward(dy)), hidden);
    Images dx = conv1.backward(bn1.backward(dhidden));
    join(dx, dy, [](Real& to, Real from) { to += from; });
    return dx;
  }
};

// Head is global average pooling, a linear layer and mean cross entropy.
struct Head {
  Parameter& weight = drawn(size_t(classes) * 64, std::sqrt(6.0 / 64));
  Parameter& bias = drawn(classes, 0.01);

  // Returns the loss and replaces x by its gradient.
  Real loss_and_gradient(Images& x, uint64_t b) {
    const int area = x.side * x.side;
    Real loss = 0;
    weight.gradient.assign(weight.gradient.size(), 0);
    bias.gradient.assign(classes, 0);
    for (int n = 0; n < batch; ++n) {
      Reals mean(x.channels), dmean(x.channels), power(classes);
      for (int c = 0; c < x.channels; ++c)
        for (int i = 0; i < area; ++i) mean[c] += x.map(n, c)[i] / area;
      Real powers = 0;
      for (int k = 0; k < classes; ++k) {
        Real logit = bias.value[k];
        for (int c = 0; c < x.channels; ++c) logit += weight.value[k * x.channels + c] * mean[c];
        powers += power[k] = std::exp(logit);
      }
      const int label = int(bits(2000 + b, n) % classes);
      loss -= std::log(power[label] / powers) / batch;
      for (int k = 0; k < classes; ++k) {
        const Real dlogit = (power[k] / powers - (k == label)) / batch;
        bias.gradient[k] += dlogit;
        for (int c = 0; c < x.channels; ++c) {
          weight.gradient[k * x.channels + c] += dlogit * mean[c];
          dmean[c] += dlogit * weight.value[k * x.channels + c];
        }
      }
      for (int c = 0; c < x.channels; ++c)
        for (int i = 0; i < area; ++i) x.map(n, c)[i] = dmean[c] / area;
    }
    return loss;
  }
};

std::deque<Block> make_blocks() {
  std::deque<Block> blocks;
  for (int width : {16, 32, 64})
    for (int i = 0; i < 3; ++i) {
      const bool halves = width > 16 && i == 0;
      blocks.emplace_back(halves ? width / 2 : width, width, halves ? 2 : 1);
    }
  return blocks;
}

// The members are in parameter order.
struct ResNet20 {
  Convolution conv1{3, 16, 1};
  BatchNorm bn1{16};
  std::deque<Block> blocks = make_blocks();
  Head head;

  // Returns the loss of batch b and sets the gradient of each parameter.
  Real loss_and_gradients(uint64_t b) {
    Images x(3, 32);
    for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = uniform(1000 + b, i, 1);
    const Images stem = relu(bn1.forward(conv1.forward(x)));
    x = stem;
    for (Block& block : blocks) x = block.forward(x);
    const Real loss = head.loss_and_gradient(x, b);
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) x = block->backward(x);
    conv1.backward(bn1.backward(relu_backward(x, stem)));
    return loss;
  }
};

void sgd_step(Parameter& p, bool first) {
  if (first) p.velocity.assign(p.value.size(), 0);
  for (size_t i = 0; i < p.value.size(); ++i) {
    p.velocity[i] = momentum * p.velocity[i] + p.gradient[i] + weight_decay * p.value[i];
    p.value[i] -= lr * p.velocity[i];
  }
}
}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 45;
  ResNet20 model;
  std::printf("{\n  \"name\": \"resnet20\",\n  \"made_by\": \"exact_resnet20.cpp\",\n");
  std::printf("  \"loss\": [\n");
  for (int s = 0; s < steps; ++s) {
    const Real loss = model.loss_and_gradients(s % batches);
    std::printf("    %.20Lg%s\n", loss, s + 1 < steps ? "," : "");
    std::fflush(stdout);
    for (Parameter& parameter : parameters) sgd_step(parameter, s == 0);
  }
  std::printf("  ]\n}\n");
}
