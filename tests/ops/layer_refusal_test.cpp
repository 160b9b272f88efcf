// Tests what attention, convolutions, norms, pooling, recurrent layers and losses refuse.
#include "tests/ops/refusals.h"

using namespace weft;
using namespace weft::testing;
using enum DType;

TEST_CASE("attention refuses mismatched shapes, types and masks") {
  auto attend = [](const Shape& q, const Shape& k, const Shape& v) {
    return Refusal{fmt::format("[attention] needs q[B, H, T, D], k[B, G, S, D], v[B, G, S, E]. Got "
                               "{}, {} and {}.",
                               to_string(q), to_string(k), to_string(v)),
                   [=] { attention(zeros(q), zeros(k), zeros(v)); }};
  };
  // B = 3, H = 4, G = 2, T = 5, S = 6, D = 7, E = 8.
  const Shape Q{3, 4, 5, 7}, K{3, 2, 6, 7}, V{3, 2, 6, 8};
  check_calls({
      attend({3, 4, 5}, K, V),
      attend(Q, {3, 2, 6}, V),
      attend(Q, K, {3, 2, 6}),
      attend(Q, {1, 2, 6, 7}, V),
      attend(Q, K, {1, 2, 6, 8}),
      attend(Q, {3, 2, 6, 1}, V),
      attend(Q, K, {3, 1, 6, 8}),
      attend(Q, K, {3, 2, 1, 8}),
  });
  auto heads = [](int64_t queries, int64_t keys) {
    attention(zeros({3, queries, 5, 7}), zeros({3, keys, 6, 7}), zeros({3, keys, 6, 8}));
  };
  auto typed = [&](DType q, DType k, DType v) { attention(zeros(Q, q), zeros(K, k), zeros(V, v)); };
  auto masked = [&](const Shape& mask, DType dtype) {
    attention(zeros({1, 4, 5, 7}), zeros({1, 2, 6, 7}), zeros({1, 2, 6, 8}),
              {.mask = zeros(mask, dtype)});
  };
  const std::string types = "[attention] q, k and v must share a floating point type. Got ";
  const std::string mask = "[attention] the mask must ";
  check_calls({
      {"[attention] key heads must divide query heads. Got 0 and 4.", [&] { heads(4, 0); }},
      {"[attention] key heads must divide query heads. Got 3 and 4.", [&] { heads(4, 3); }},
      {accepted, [&] { heads(4, 2); }},
      {accepted, [&] { heads(4, 1); }},
      {types + "i64, i64 and i64.", [&] { typed(i64, i64, i64); }},
      {types + "f32, f64 and f32.", [&] { typed(f32, f64, f32); }},
      {types + "f32, f32 and f64.", [&] { typed(f32, f32, f64); }},
      {accepted, [&] { typed(f16, f16, f16); }},
      {mask + "broadcast to [1, 4, 5, 6]. Got [2, 4, 5, 6].", [&] { masked({2, 4, 5, 6}, f32); }},
      {accepted, [&] { masked({4, 5, 6}, f32); }},
      {mask + "be bool or floating point. Got i32.", [&] { masked({5, 6}, i32); }},
      {accepted, [&] { masked({5, 6}, boolean); }},
  });
}

TEST_CASE("convolutions refuse mismatched shapes") {
  const Value image = zeros({2, 4, 5, 7}), row = zeros({2, 4, 7});
  auto give = [](const Shape& x, const Shape& weight, const ConvOptions& options = {}) {
    conv(zeros(x), zeros(weight), {}, options);
  };
  auto ranks = [&](const Shape& x, const Shape& weight) {
    return Refusal{
        fmt::format("[conv] needs x[N, C, spatial...] and weight[O, C / groups, kernel...] "
                    "with one to three spatial axes. Got {} and {}.",
                    to_string(x), to_string(weight)),
        [=] { give(x, weight); }};
  };
  auto grouped = [&](int64_t in, int64_t out, int64_t each, int64_t groups) {
    return [=] { give({2, in, 5, 5}, {out, each, 3, 3}, {.groups = groups}); };
  };
  const std::string reach = "[conv] the kernel reaches over ", more = ", more than the padded ";
  const std::string divide = "[conv] groups must divide the channels. Got ";
  check_calls({
      ranks({2, 4}, {6, 4}),
      ranks({2, 4, 5, 5, 5, 5}, {6, 4, 3, 3, 3, 3}),
      ranks({2, 4, 5, 5, 5}, {6, 4, 3, 3}),
      {accepted, [&] { give({2, 4, 5, 5, 5}, {6, 4, 3, 3, 3}); }},
      {reach + "6 elements" + more + "input of 5.",
       [&] { give({2, 4, 5, 7, 7}, {6, 4, 6, 1, 1}); }},
      {reach + "8 elements" + more + "input of 7.",
       [&] { give({2, 4, 9, 7, 7}, {6, 4, 1, 1, 8}); }},
      {"[conv] the weight takes 4 channels in each of 2 groups. Got an input of 4 channels.",
       [&] { give({2, 4, 5, 5, 5}, {6, 4, 3, 3, 3}, {.groups = 2}); }},
      {divide + "2 groups, 4 in, 5 out.",
       [&] { give({2, 4, 5, 5, 5}, {5, 2, 3, 3, 3}, {.groups = 2}); }},
      {"[conv] operands differ in type. Got f32[2, 4, 5, 5, 5] and f64[6, 4, 3, 3, 3].",
       [&] { conv(zeros({2, 4, 5, 5, 5}), zeros({6, 4, 3, 3, 3}, f64)); }},
      {"[conv] the bias must have shape [6]. Got [5].",
       [&] { conv(zeros({2, 4, 5, 5, 5}), zeros({6, 4, 3, 3, 3}), zeros({5})); }},
      ranks({2, 4, 5, 5}, {6, 4, 3}),
      {accepted, [&] { give({2, 4, 5}, {6, 4, 3}); }},
      {reach + "6 elements" + more + "input of 5.", [&] { give({2, 4, 5, 7}, {6, 4, 6, 7}); }},
      {reach + "8 elements" + more + "input of 7.", [&] { give({2, 4, 5, 7}, {6, 4, 5, 8}); }},
      {accepted, [&] { give({2, 4, 5, 7}, {6, 4, 5, 7}); }},
      {reach + "10 elements" + more + "input of 9.",
       [&] { give({2, 4, 5}, {6, 4, 4}, {.padding = {2}, .dilation = {3}}); }},
      {accepted, [&] { give({2, 4, 5}, {6, 4, 3}, {.padding = {1}, .dilation = {3}}); }},
      {divide + "0 groups, 4 in, 6 out.", grouped(4, 6, 4, 0)},
      {divide + "-2 groups, 4 in, 6 out.", grouped(4, 6, 2, -2)},
      {divide + "2 groups, 3 in, 6 out.", grouped(3, 6, 1, 2)},
      {divide + "2 groups, 4 in, 5 out.", grouped(4, 5, 2, 2)},
      {accepted, grouped(4, 6, 2, 2)},
      {"[conv] the weight takes 4 channels in each of 2 groups. Got an input of 4 channels.",
       grouped(4, 6, 4, 2)},
      {"[conv] operands differ in type. Got f32[2, 4, 5, 7] and f64[6, 4, 3, 3].",
       [&] { conv(image, zeros({6, 4, 3, 3}, f64)); }},
      {"[conv] the bias must have shape [6]. Got [6, 1].",
       [&] { conv(image, zeros({6, 4, 3, 3}), zeros({6, 1})); }},
      {accepted, [&] { conv(image, zeros({6, 4, 3, 3}), zeros({6})); }},
      {"[conv1d] needs x[N, C, L]. Got [2, 4, 5, 7].", [&] { conv1d(image, image); }},
      {accepted, [&] { conv1d(row, row); }},
      {"[conv2d] needs x[N, C, H, W]. Got [2, 4, 7].", [&] { conv2d(row, row); }},
      {"[conv3d] needs x[N, C, D, H, W]. Got [2, 4, 5, 7].", [&] { conv3d(image, image); }},
      {accepted, [&] { conv2d(image, image); }},
  });
}

TEST_CASE("convolution options take one number per spatial axis above its least value") {
  const Value image = zeros({2, 4, 5, 5}), row = zeros({2, 4, 5});
  const std::string at_least = " must be at least ", each = " has one number per spatial axis ";
  check_calls({
      {"[conv] stride" + each + "(2). Got [1, 1, 1].",
       [&] { conv(image, image, {}, {.stride = {1, 1, 1}}); }},
      {"[conv] padding" + each + "(1). Got [1, 1].",
       [&] { conv(row, row, {}, {.padding = {1, 1}}); }},
      {accepted, [&] { conv(image, image, {}, {.stride = {1}, .padding = {0, 1}}); }},
      {"[conv] stride" + at_least + "1. Got [0].", [&] { conv(row, row, {}, {.stride = {0}}); }},
      {"[conv] stride" + at_least + "1. Got [1, 0].",
       [&] { conv(image, image, {}, {.stride = {1, 0}}); }},
      {"[conv] padding" + at_least + "0. Got [-1].",
       [&] { conv(row, row, {}, {.padding = {-1}}); }},
      {"[conv] dilation" + at_least + "1. Got [0].",
       [&] { conv(row, row, {}, {.dilation = {0}}); }},
      {accepted, [&] { conv(row, row, {}, {.stride = {1}, .padding = {0}, .dilation = {1}}); }},
  });
}

TEST_CASE("transposed convolutions refuse mismatched shapes and paddings") {
  const Value image = zeros({2, 4, 5, 5}), row = zeros({2, 4, 5}), kernel = zeros({4, 3, 3, 3});
  const std::string needs =
      "[conv_transpose] needs x[N, C, spatial...] and weight[C, O / groups, kernel...] with one to "
      "three spatial axes. Got ";
  check_calls({
      {needs + "[2, 4, 5, 5] and [3, 4, 3, 3].",
       [&] { conv_transpose(image, zeros({3, 4, 3, 3})); }},
      {needs + "[2, 4, 5] and [4, 3, 3, 3].", [&] { conv_transpose(row, kernel); }},
      {needs + "[2, 4] and [4, 2].", [&] { conv_transpose(zeros({2, 4}), zeros({4, 2})); }},
      {accepted, [&] { conv_transpose(row, zeros({4, 3, 3})); }},
      {"[conv_transpose] output_padding must be below the stride. Got [1, 2] and [2, 2].",
       [&] { conv_transpose(image, kernel, {}, {.stride = {2}, .output_padding = {1, 2}}); }},
      {accepted,
       [&] { conv_transpose(image, kernel, {}, {.stride = {2}, .output_padding = {1}}); }},
      {"[conv_transpose] axis 2 of the result would have extent -1.",
       [&] { conv_transpose(image, kernel, {}, {.padding = {4}}); }},
      {accepted, [&] { conv_transpose(image, kernel, {}, {.padding = {3}}); }},
      {"[conv] the bias must have shape [3]. Got [4].",
       [&] { conv_transpose(image, kernel, zeros({4})); }},
      {"[conv] padding has one number per spatial axis (1). Got [1, 1].",
       [&] { conv_transpose(row, zeros({4, 3, 3}), {}, {.padding = {1, 1}}); }},
  });
}

TEST_CASE("convolution nodes refuse operands and gradients of other shapes") {
  const Attrs attrs{{"stride", Dims{1, 1}},
                    {"padding", Dims{0, 0}},
                    {"dilation", Dims{1, 1}},
                    {"groups", int64_t{1}}};
  const Shape X{2, 4, 5, 5}, W{6, 4, 3, 3}, Y{2, 6, 3, 3};
  auto forward = [=](const Shape& x, const Shape& weight) {
    node("conv", {zeros(x), zeros(weight)}, attrs);
  };
  auto by_input = [=](const Shape& dy, DType dtype) {
    node("conv_input_gradient", {zeros(dy, dtype), zeros(W)}, attrs.with({"input_shape", X}));
  };
  auto by_weight = [=](const Shape& dy, DType dtype) {
    node("conv_weight_gradient", {zeros(X), zeros(dy, dtype)}, attrs.with({"weight_shape", W}));
  };
  const std::string ranks =
      "[conv] needs x[N, C, spatial...] and weight[O, C / groups, kernel...]. Got ";
  const std::string gradient = "[conv] the gradient must have shape [2, 6, 3, 3]. Got ";
  const std::string differ = "[conv] operands differ in type. Got ";
  check_nodes({
      {ranks + "[2, 4, 5] and [6, 4, 3, 3].", [&] { forward({2, 4, 5}, W); }},
      {ranks + "[2, 4, 5, 5] and [6, 4, 3].", [&] { forward(X, {6, 4, 3}); }},
      {accepted, [&] { forward(X, W); }},
      {gradient + "[2, 6, 3, 4].", [&] { by_input({2, 6, 3, 4}, f32); }},
      {differ + "f64[2, 6, 3, 3] and f32[6, 4, 3, 3].", [&] { by_input(Y, f64); }},
      {accepted, [&] { by_input(Y, f32); }},
      {gradient + "[2, 6, 3, 4].", [&] { by_weight({2, 6, 3, 4}, f32); }},
      {differ + "f32[2, 4, 5, 5] and f64[2, 6, 3, 3].", [&] { by_weight(Y, f64); }},
      {accepted, [&] { by_weight(Y, f32); }},
  });
}

TEST_CASE("cross entropy refuses mismatched logits and labels") {
  const Value logits = zeros({2, 3}), labels = zeros({2}, i64), none;
  auto smoothed = [&](double by) { cross_entropy(logits, labels, {.label_smoothing = by}); };
  const std::string floats = "[cross_entropy] logits must be floating point";
  const std::string empty = "[cross_entropy] this tensor is empty: it was never assigned.";
  const std::string share = "[cross_entropy] label smoothing must be in [0, 1]. Got ";
  check_calls({
      {empty, [&] { cross_entropy(none, labels); }},
      {floats + " [.., C]. Got i64[2, 3].", [&] { cross_entropy(zeros({2, 3}, i64), labels); }},
      {floats + " [.., C]. Got f32[].", [&] { cross_entropy(scalar(0), labels); }},
      {accepted, [&] { cross_entropy(zeros({3}), scalar(0, i64)); }},
      {empty, [&] { cross_entropy(logits, none); }},
      {"[cross_entropy] labels must be integers. Got f32[2]. Hint: cast(labels, DType::i64).",
       [&] { cross_entropy(logits, zeros({2})); }},
      {share + "-0.5.", [&] { smoothed(-0.5); }},
      {accepted, [&] { smoothed(0); }},
      {accepted, [&] { smoothed(1); }},
      {share + "1.5.", [&] { smoothed(1.5); }},
      {"[cross_entropy] logits [2, 3] need labels [2]. Got [1].",
       [&] { cross_entropy(logits, zeros({1}, i64)); }},
      {"[cross_entropy] logits [2, 4, 3] need labels [2, 4]. Got [2].",
       [&] { cross_entropy(zeros({2, 4, 3}), labels); }},
      {accepted, [&] { cross_entropy(logits, labels); }},
  });
  auto rows = [](const Type& scores, const Type& classes) {
    node("cross_entropy_rows",
         {zeros(scores.shape, scores.dtype), zeros(classes.shape, classes.dtype)},
         {{"label_smoothing", 0.0}});
  };
  check_nodes({
      {floats + ", with an axis of classes. Got i64[2, 3].",
       [&] { rows({i64, {2, 3}}, {i32, {2, 1}}); }},
      {floats + ", with an axis of classes. Got f32[].", [&] { rows({f32, {}}, {i32, {}}); }},
      {"[cross_entropy] labels must be i32[2, 1]. Got i32[2, 2].",
       [&] { rows({f32, {2, 3}}, {i32, {2, 2}}); }},
      {"[cross_entropy] labels must be i32[2, 1]. Got i64[2, 1].",
       [&] { rows({f32, {2, 3}}, {i64, {2, 1}}); }},
      {accepted, [&] { rows({f32, {2, 3}}, {i32, {2, 1}}); }},
  });
}

TEST_CASE("normalisation refuses integers and vectors that do not match the channels") {
  const Value x = zeros({5, 4}), vector = zeros({4}), matrix = zeros({2, 2}), row = zeros({4}), no;
  const std::string floats = " needs a floating point tensor. Got i64. Hint: cast it first.";
  const std::string shape = " must have shape [4]. Got [2, 2].";
  const std::string rank = " needs x[N, C, ...]. Got [4].";
  const std::string divide = "[group_norm] groups must divide the channels. Got ";
  check_calls({
      {"[softmax]" + floats, [] { softmax(zeros({2}, i64)); }},
      {"[layer_norm]" + floats, [] { layer_norm(zeros({2}, i64)); }},
      {accepted, [] { softmax(zeros({2}, f16)); }},
      {"[layer_norm] the weight" + shape, [&] { layer_norm(x, matrix); }},
      {"[layer_norm] the bias" + shape, [&] { layer_norm(x, no, matrix); }},
      {accepted, [&] { layer_norm(x); }},
      {accepted, [&] { layer_norm(x, vector, vector); }},
      {"[rms_norm] the weight" + shape, [&] { rms_norm(x, matrix); }},
      {accepted, [&] { rms_norm(x, vector); }},
      {"[group_norm] the weight" + shape, [&] { group_norm(x, 2, matrix); }},
      {"[group_norm] the bias" + shape, [&] { group_norm(x, 2, no, matrix); }},
      {"[group_norm]" + rank, [&] { group_norm(row, 1); }},
      {divide + "0 groups, 4 channels.", [&] { group_norm(x, 0); }},
      {divide + "-2 groups, 4 channels.", [&] { group_norm(x, -2); }},
      {divide + "3 groups, 4 channels.", [&] { group_norm(x, 3); }},
      {accepted, [&] { group_norm(x, 1); }},
      {accepted, [&] { group_norm(x, 4, vector, vector); }},
      {"[batch_norm] the weight" + shape, [&] { batch_norm_train(x, matrix, no); }},
      {"[batch_norm] the bias" + shape, [&] { batch_norm_train(x, no, matrix); }},
      {"[batch_norm]" + rank, [&] { batch_norm_train(row, no, no); }},
      {accepted, [&] { batch_norm_train(x, vector, vector); }},
      {"[batch_norm] the mean" + shape, [&] { batch_norm_eval(x, matrix, vector, no, no); }},
      {"[batch_norm] the variance" + shape, [&] { batch_norm_eval(x, vector, matrix, no, no); }},
      {"[batch_norm] the weight" + shape, [&] { batch_norm_eval(x, vector, vector, matrix, no); }},
      {"[batch_norm] the bias" + shape, [&] { batch_norm_eval(x, vector, vector, no, matrix); }},
      {accepted, [&] { batch_norm_eval(x, vector, vector, vector, vector); }},
  });
}

TEST_CASE("pooling refuses mismatched images and windows") {
  const Value x = zeros({1, 2, 3, 5}), row = zeros({2, 3, 5}), whole = zeros({1, 2, 3, 5}, i64), no;
  const std::string window = "[pool] the window of ",
                    floats = " needs a floating point tensor. Got i64. Hint: cast it first.";
  const std::string pair = " needs two numbers of at least ";
  const std::string half = "[pool] padding must be at most half the kernel. Got ";
  const std::string sized = "[adaptive_avg_pool] needs x[N, C, H, W] and two sizes above 0. Got ";
  check_calls({
      {window + "4 exceeds the padded input of 3.", [&] { max_pool(x, {.kernel = {4, 5}}); }},
      {window + "6 exceeds the padded input of 5.", [&] { avg_pool(x, {.kernel = {3, 6}}); }},
      {accepted, [&] { max_pool(x, {.kernel = {3, 5}}); }},
      {window + "8 exceeds the padded input of 7.",
       [&] { max_pool(x, {.kernel = {8, 5}, .padding = {2}}); }},
      {accepted, [&] { max_pool(x, {.kernel = {7, 5}, .padding = {2}}); }},
      {"[max_pool]" + floats, [&] { max_pool(whole, {.kernel = {1}}); }},
      {"[max_pool] this tensor is empty: it was never assigned.",
       [&] { max_pool(no, {.kernel = {1}}); }},
      {"[pool] needs x[N, C, H, W] or x[N, C, D, H, W]. Got [2, 3, 5].",
       [&] { avg_pool(row, {.kernel = {1}}); }},
      {"[pool] kernel" + pair + "1. Got [].", [&] { max_pool(x, {}); }},
      {"[pool] kernel" + pair + "1. Got [1, 1, 1].", [&] { max_pool(x, {.kernel = {1, 1, 1}}); }},
      {"[pool] kernel" + pair + "1. Got [0, 1].", [&] { max_pool(x, {.kernel = {0, 1}}); }},
      {"[pool] kernel" + pair + "1. Got [1, 0].", [&] { max_pool(x, {.kernel = {1, 0}}); }},
      {"[pool] stride" + pair + "1. Got [0].",
       [&] { max_pool(x, {.kernel = {1}, .stride = {0}}); }},
      {"[pool] padding" + pair + "0. Got [-1].",
       [&] { max_pool(x, {.kernel = {1}, .padding = {-1}}); }},
      {accepted, [&] { max_pool(x, {.kernel = {1}, .stride = {1, 1}, .padding = {0, 0}}); }},
      {half + "[2, 1] of [3, 3].", [&] { max_pool(x, {.kernel = {3}, .padding = {2, 1}}); }},
      {half + "[1, 2] of [3, 3].", [&] { max_pool(x, {.kernel = {3}, .padding = {1, 2}}); }},
      {accepted, [&] { max_pool(x, {.kernel = {2}, .padding = {1}}); }},
      {"[global_avg_pool] needs x[N, C, H, W]. Got [2, 3, 5].", [&] { global_avg_pool(row); }},
      {"[global_avg_pool]" + floats, [&] { global_avg_pool(whole); }},
      {accepted, [&] { global_avg_pool(x); }},
      {sized + "[2, 3, 5] and [2, 2].", [&] { adaptive_avg_pool(row, {2, 2}); }},
      {sized + "[1, 2, 3, 5] and [2].", [&] { adaptive_avg_pool(x, {2}); }},
      {sized + "[1, 2, 3, 5] and [2, 2, 2].", [&] { adaptive_avg_pool(x, {2, 2, 2}); }},
      {sized + "[1, 2, 3, 5] and [0, 2].", [&] { adaptive_avg_pool(x, {0, 2}); }},
      {sized + "[1, 2, 3, 5] and [2, 0].", [&] { adaptive_avg_pool(x, {2, 0}); }},
      {accepted, [&] { adaptive_avg_pool(x, {1, 1}); }},
  });
}

TEST_CASE("pooling nodes refuse integers and gradients of other shapes") {
  const Shape X{1, 2, 3, 5};
  const Attrs attrs{{"kernel", Dims{3, 3}},
                    {"stride", Dims{1, 1}},
                    {"padding", Dims{0, 0}},
                    {"count_include_pad", int64_t{1}},
                    {"input_shape", X}};
  auto by_maximum = [=](const Shape& dy, DType dtype) {
    node("max_pool_gradient", {zeros(X), zeros(dy, dtype)}, attrs);
  };
  auto by_mean = [=](const Shape& dy) { node("avg_pool_gradient", {zeros(dy)}, attrs); };
  const std::string shape = " the gradient must have shape [1, 2, 1, 3]. Got ";
  check_nodes({
      {"[pool] needs a floating point tensor. Got i64[1, 2, 3, 5].",
       [&] { node("max_pool", {zeros(X, i64)}, attrs); }},
      {"[max_pool]" + shape + "f32[1, 2, 1, 4].", [&] { by_maximum({1, 2, 1, 4}, f32); }},
      {"[max_pool]" + shape + "f64[1, 2, 1, 3].", [&] { by_maximum({1, 2, 1, 3}, f64); }},
      {accepted, [&] { by_maximum({1, 2, 1, 3}, f32); }},
      {"[avg_pool]" + shape + "[1, 2, 1, 4].", [&] { by_mean({1, 2, 1, 4}); }},
      {accepted, [&] { by_mean({1, 2, 1, 3}); }},
  });
}

TEST_CASE("recurrent layers refuse mismatched gates, weights and states") {
  auto unfit = [](const Shape& gates, const Shape& weight, const Shape& h) {
    return Refusal{
        fmt::format("[lstm] needs gates[T, B, 4 H], weight[4 H, H], h[B, H]. Got {}, {}, "
                    "{}.",
                    to_string(gates), to_string(weight), to_string(h)),
        [=] { lstm(zeros(gates), zeros(weight), zeros(h), zeros(h)); }};
  };
  // T = 5, B = 2, H = 3.
  const Shape G{5, 2, 12}, W{12, 3}, H{2, 3};
  check_calls({
      unfit({5, 2, 12, 1}, W, H),
      unfit(G, {12, 3, 1}, H),
      unfit(G, W, {2, 3, 1}),
      unfit({0, 2, 12}, W, H),
      unfit({5, 2, 11}, W, H),
      unfit({5, 2, 11}, {11, 3}, H),
      unfit(G, W, {1, 3}),
      unfit(G, W, {2, 4}),
  });
  auto long_memory = [=](DType gates, DType weight, DType h, const Type& c) {
    lstm(zeros(G, gates), zeros(W, weight), zeros(H, h), zeros(c.shape, c.dtype));
  };
  auto gated = [=](int64_t width, const Type& bias) {
    gru(zeros({1, 2, width}), zeros({width, 3}), zeros(bias.shape, bias.dtype), zeros(H));
  };
  const std::string types =
      "[lstm] gates, weight and states must share a floating point type. Got ";
  const std::string states = "[lstm] c must be shaped as h, f32[2, 3]. Got ";
  check_calls({
      {types + "i64, i64, i64.", [&] { long_memory(i64, i64, i64, {i64, H}); }},
      {types + "f32, f64, f32.", [&] { long_memory(f32, f64, f32, {f32, H}); }},
      {types + "f32, f32, f64.", [&] { long_memory(f32, f32, f64, {f64, H}); }},
      {states + "f32[1, 3].", [&] { long_memory(f32, f32, f32, {f32, {1, 3}}); }},
      {states + "f64[2, 3].", [&] { long_memory(f32, f32, f32, {f64, H}); }},
      {accepted, [&] { long_memory(f32, f32, f32, {f32, H}); }},
      {"[gru] needs gates[T, B, 3 H], weight[3 H, H], h[B, H]. Got [1, 2, 12], [12, 3], [2, 3].",
       [&] { gated(12, {f32, {12}}); }},
      {"[gru] bias must be f32[9]. Got f32[3].", [&] { gated(9, {f32, {3}}); }},
      {"[gru] bias must be f32[9]. Got f64[9].", [&] { gated(9, {f64, {9}}); }},
      {accepted, [&] { gated(9, {f32, {9}}); }},
  });
}
