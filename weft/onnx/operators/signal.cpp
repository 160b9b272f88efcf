// Maps ONNX's operators on signals and words: Fourier transforms as products with their matrix,
// windows, n-grams; and determinants.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/onnx/file/types.h"
#include "weft/onnx/operators/operators.h"
#include "weft/tensor/wide.h"

namespace weft::onnx {
namespace {
using Tensors = std::vector<Tensor>;

constexpr int64_t longest_transform = 8192;  // its cosine and sine matrices have 256 MiB each

// A Spectrum holds the parts of complex numbers; `imaginary` is empty for real numbers.
struct Spectrum {
  Tensor real, imaginary;
};

// Returns cos and sin of 2 pi i k / length, [from, to]. i k is reduced modulo `length` first, to
// keep the angle exact.
Spectrum waves(int64_t from, int64_t to, int64_t length, DType dtype) {
  std::vector<double> cosines, sines;
  for (int64_t i = 0; i < from; ++i)
    for (int64_t k = 0; k < to; ++k) {
      const double turn = static_cast<double>(i * k % length) / static_cast<double>(length);
      cosines.push_back(std::cos(2 * std::numbers::pi * turn));
      sines.push_back(std::sin(2 * std::numbers::pi * turn));
    }
  return {weft::tensor(cosines, {from, to}, dtype), weft::tensor(sines, {from, to}, dtype)};
}

// Cuts the last axis to `length` elements, or extends it by zeros.
Tensor fitted(const Tensor& x, int64_t length) {
  if (x.dim(-1) >= length) return x.dim(-1) == length ? x : slice(x, -1, 0, length);
  Dims high = Dims::filled(x.rank(), 0);
  high[x.rank() - 1] = length - x.dim(-1);
  return pad(x, Dims::filled(x.rank(), 0), high);
}

void check_length(const Call& call, int64_t length) {
  if (length < 1 || length > longest_transform)
    call.refuse("it transforms {} elements; weft does 1 to {}", length, longest_transform);
}

// Sums x e^(-+ 2 pi i j k / length) over the last axis, for k below `bins`.
Spectrum transformed(const Spectrum& x, int64_t length, int64_t bins, bool inverse) {
  const Tensor real = fitted(x.real, length);
  const Spectrum wave = waves(length, bins, length, real.dtype());
  const double sign = inverse ? 1 : -1;
  Spectrum y{matmul(real, wave.real), matmul(real, wave.imaginary) * sign};
  if (!x.imaginary.defined()) return y;
  const Tensor imaginary = fitted(x.imaginary, length);
  return {y.real - matmul(imaginary, wave.imaginary) * sign,
          y.imaginary + matmul(imaginary, wave.real)};
}

// Returns `length` times the real signal whose half spectrum is x. Each bin counts twice, except
// the bins that are their own mirror image.
Tensor real_signal(const Spectrum& x, int64_t length) {
  const int64_t bins = length / 2 + 1;
  std::vector<double> counts(static_cast<size_t>(bins), 2);
  counts.front() = 1;
  if (length % 2 == 0) counts.back() = 1;
  const Tensor twice = weft::tensor(counts, {bins}, x.real.dtype());
  const Spectrum wave = waves(bins, length, length, x.real.dtype());
  Tensor y = matmul(fitted(x.real, bins) * twice, wave.real);
  if (!x.imaginary.defined()) return y;
  return y - matmul(fitted(x.imaginary, bins) * twice, wave.imaginary);
}

// Splits x[..., 1 or 2] into real and imaginary parts, and moves `axis` to the end.
Spectrum parts_of(const Call& call, const Tensor& x, int axis) {
  if (x.rank() < 2 || x.dim(-1) < 1 || x.dim(-1) > 2 || axis == x.rank() - 1)
    call.refuse("its operand has real numbers or pairs along its last axis. Got {}",
                to_string(x.type()));
  const auto part = [&](int64_t index) {
    return transpose(squeeze(slice(x, -1, index, index + 1), -1), axis, -1);
  };
  return {part(0), x.dim(-1) == 2 ? part(1) : Tensor()};
}

Tensors dft(const Call& call) {
  const Tensor& x = call[0];
  const int axis = call.opset() < 20
                       ? call.axis("axis", 1, x.rank())
                       : call.axis_in(call.has(2) ? call.integer_at(2) : -2, x.rank());
  const Spectrum parts = parts_of(call, widen(x), axis);
  const bool inverse = call.flag("inverse"), half = call.flag("onesided");
  const int64_t own = inverse && half ? 2 * (x.dim(axis) - 1) : x.dim(axis);
  const int64_t length = call.has(1) ? call.integer_at(1) : own;
  check_length(call, length);
  if (inverse && half) {
    const Tensor signal = real_signal(parts, length) / static_cast<double>(length);
    return {narrow_to(unsqueeze(transpose(signal, axis, -1), -1), x.dtype())};
  }
  Spectrum y = transformed(parts, length, half ? length / 2 + 1 : length, inverse);
  const double scale = inverse ? 1 / static_cast<double>(length) : 1;
  const Tensor pairs =
      stack({transpose(y.real, axis, -1) * scale, transpose(y.imaginary, axis, -1) * scale},
            x.rank() - 1);
  return {narrow_to(pairs, x.dtype())};
}

// Transforms each frame of a signal [B, L, 1 or 2]: [B, frames, bins, 2].
Tensors stft(const Call& call) {
  const Tensor& x = call[0];
  if (x.rank() != 3) call.refuse("its signal is [B, L, 1 or 2]. Got {}", to_string(x.type()));
  const Spectrum parts = parts_of(call, widen(x), 1);
  const int64_t step = call.integer_at(1);
  const int64_t length = call.has(3)   ? call.integer_at(3)
                         : call.has(2) ? call[2].elements()
                                       : x.dim(1);
  check_length(call, length);
  if (step < 1 || length > x.dim(1))
    call.refuse("frames of {} by {} do not fit {} elements", length, step, x.dim(1));
  const int64_t frames = 1 + (x.dim(1) - length) / step;
  const Shape shape{frames, length};
  const Tensor places = iota(shape, 0) * step + iota(shape, 1);
  const auto framed = [&](const Tensor& part) {
    if (!part.defined()) return part;
    const Tensor all = gather(part, places, 1);
    return call.has(2) ? all * widen(call[2]) : all;
  };
  const int64_t bins = call.flag("onesided", true) ? length / 2 + 1 : length;
  const Spectrum y =
      transformed({framed(parts.real), framed(parts.imaginary)}, length, bins, false);
  return {narrow_to(stack({y.real, y.imaginary}, 3), x.dtype())};
}

// ---- windows

DType output_type(const Call& call, const char* attribute) {
  return call.type_of(call.integer(attribute, onnx_type(DType::f32))).dtype;
}

// Returns a0 - a1 cos(2 pi i / N) + a2 cos(4 pi i / N), where N is the size, or if the window is
// symmetric one less.
Tensors window(const Call& call, double a0, double a1, double a2) {
  const int64_t size = call.integer_at(0);
  if (size < 0 || size > int64_t{1} << 32) call.refuse("a window has no {} elements", size);
  const bool periodic = call.flag("periodic", true);
  const auto turns = static_cast<double>(std::max<int64_t>(size - (periodic ? 0 : 1), 1));
  const Tensor angle = arange(size, DType::f64) * (2 * std::numbers::pi / turns);
  return {cast(cos(angle) * -a1 + cos(angle * 2) * a2 + a0, output_type(call, "output_datatype"))};
}
Tensors hann(const Call& call) { return window(call, 0.5, 0.5, 0); }
Tensors hamming(const Call& call) { return window(call, 25.0 / 46, 21.0 / 46, 0); }
Tensors blackman(const Call& call) { return window(call, 0.42, 0.5, 0.08); }

// Returns the triangles of the mel scale over the bins of a spectrum, [bins, bands].
Tensors mel_weight_matrix(const Call& call) {
  const int64_t bands = call.integer_at(0), length = call.integer_at(1);
  const auto rate = static_cast<double>(call.integer_at(2));
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(call.number_at(3)), high = mel(call.number_at(4));
  const int64_t bins = length / 2 + 1;
  if (bands < 1 || length < 1 || bands > int64_t{1} << 20 || length > int64_t{1} << 20 || rate < 1)
    call.refuse("{} bands of {} elements are impossible", bands, length);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bands + 2; ++i) {
    const double at = low + static_cast<double>(i) * (high - low) / static_cast<double>(bands + 2);
    const double hertz = 700 * (std::pow(10, at / 2595) - 1);
    const double bin = std::floor(static_cast<double>(length + 1) * hertz / rate);
    if (!(bin >= 0 && bin <= static_cast<double>(bins)))
      call.refuse("its bands reach beyond the {} bins of the spectrum", bins);
    edges.push_back(static_cast<int64_t>(bin));
  }
  std::vector<double> table(static_cast<size_t>(bins * bands));
  for (int64_t band = 0; band < bands; ++band) {
    const auto at = static_cast<size_t>(band);
    const int64_t left = edges[at], centre = edges[at + 1], right = edges[at + 2];
    const auto set = [&](int64_t bin, int64_t part, int64_t whole) {
      if (bin < bins)
        table[static_cast<size_t>(bin * bands + band)] =
            static_cast<double>(part) / static_cast<double>(whole);
    };
    if (left == centre) set(centre, 1, 1);
    for (int64_t bin = left; left < centre && bin <= centre; ++bin)
      set(bin, bin - left, centre - left);
    for (int64_t bin = centre; bin < right; ++bin) set(bin, right - bin, right - centre);
  }
  return {weft::tensor(table, {bins, bands}, output_type(call, "output_datatype"))};
}

// ---- words

// Counts in each row of words[B, L] how often n-grams occur, [B, G]. Between two words of an n-gram
// there are `distance` - 1 others.
Tensor occurrences(const Tensor& words, const std::vector<int64_t>& grams, int64_t length,
                   int64_t distance) {
  const int64_t count = std::ssize(grams) / length;
  const int64_t starts = words.dim(1) - distance * (length - 1);
  if (starts < 1) return zeros({words.dim(0), count});
  const Tensor wanted = weft::tensor(grams, {count, length});
  Tensor here;
  for (int64_t i = 0; i < length; ++i) {
    const Tensor word = slice(words, 1, i * distance, i * distance + starts);
    const Tensor same =
        equal(unsqueeze(word, 2), reshape(slice(wanted, 1, i, i + 1), {1, 1, count}));
    here = here.defined() ? logical_and(here, same) : same;
  }
  return sum(cast(here, DType::f32), {.axes = {1}});
}

Tensors tf_idf(const Call& call) {
  const Tensor& x = call[0];
  if (x.rank() < 1 || x.rank() > 2 || !is_integer(x.dtype()))
    call.refuse("its words are integers [L] or [B, L]. Got {}", to_string(x.type()));
  const auto pool = call.integers("pool_int64s"), starts = call.integers("ngram_counts"),
             columns = call.integers("ngram_indexes");
  if (pool.empty() || columns.empty())
    call.refuse("it has no n-grams of numbers, and weft has no strings");
  const int64_t shortest = call.integer("min_gram_length"),
                longest = call.integer("max_gram_length"), skips = call.integer("max_skip_count");
  const int64_t width = std::ranges::max(columns) + 1;
  if (std::ranges::min(columns) < 0 || width > int64_t{1} << 24 || skips < 0 || skips > 1024)
    call.refuse("its ngram_indexes or max_skip_count are impossible");
  const Tensor words = cast(x.rank() == 1 ? unsqueeze(x, 0) : x, DType::i64);
  Tensor counts = zeros({width, words.dim(0)});
  size_t first = 0;  // place of the n-grams of this length among all n-grams
  for (size_t n = 0; n < starts.size(); ++n) {
    const int64_t from = starts[n], length = static_cast<int64_t>(n) + 1;
    const int64_t to = n + 1 < starts.size() ? starts[n + 1] : std::ssize(pool);
    if (from < 0 || to < from || to > std::ssize(pool) || (to - from) % length != 0 ||
        first + static_cast<size_t>((to - from) / length) > columns.size())
      call.refuse("its pool does not consist of n-grams at {}", from);
    const std::vector<int64_t> grams(pool.begin() + from, pool.begin() + to);
    const auto count = static_cast<size_t>((to - from) / length);
    const std::vector<int64_t> own(columns.begin() + static_cast<int64_t>(first),
                                   columns.begin() + static_cast<int64_t>(first + count));
    first += count;
    if (count == 0 || length < shortest || length > longest) continue;
    Tensor found;
    for (int64_t distance = 1; distance <= (length == 1 ? 1 : skips + 1); ++distance) {
      const Tensor once = occurrences(words, grams, length, distance);
      found = found.defined() ? found + once : once;
    }
    counts = scatter_add(counts, weft::tensor(own, {std::ssize(own)}), transpose(found));
  }
  const std::string mode = call.text("mode");
  Tensor result = transpose(counts);
  if (mode == "IDF") result = cast(greater(result, 0), DType::f32);
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    call.refuse("its mode is '{}', which weft does not know", mode);
  if (const auto weights = call.numbers("weights"); mode != "TF" && !weights.empty()) {
    if (std::ssize(weights) != width)
      call.refuse("it has {} weights for {}", weights.size(), width);
    result = result * weft::tensor(weights, {width}, DType::f32);
  }
  return {x.rank() == 1 ? squeeze(result, 0) : result};
}

// ---- determinants

// Eliminates column by column with partial pivoting: x[..., M, M].
Tensors determinant(const Call& call) {
  const Tensor x = widen(call[0]);
  if (x.rank() < 2 || x.dim(-1) != x.dim(-2) || x.dim(-1) > 64)
    call.refuse("its operand has square matrices of at most 64 rows. Got {}",
                to_string(call[0].type()));
  const int64_t size = x.dim(-1);
  const int64_t batch = size == 0 ? 0 : x.elements() / (size * size);
  Shape outer;
  for (int i = 0; i < x.rank() - 2; ++i) outer.push_back(x.dim(i));
  Tensor rest = reshape(x, {batch, size, size}), result = ones({batch}, x.dtype());
  for (int64_t left = size; left > 0; --left) {
    const Tensor column = squeeze(slice(rest, 2, 0, 1), 2);
    const Tensor which = reshape(argmax(abs(column), 1), {batch, 1, 1});
    const Tensor place = broadcast_to(which, {batch, 1, left});
    const Tensor row = take_along_axis(rest, place, 1), first = slice(rest, 1, 0, 1);
    const Tensor pivot = slice(row, 2, 0, 1);  // [B, 1, 1]
    const Tensor factor = select(equal(which, 0), pivot, -pivot);
    result = result * reshape(factor, {batch});
    if (left == 1) break;
    const Tensor swapped = select(equal(iota(rest.shape(), 1), which), first, rest);
    const Tensor below = slice(swapped, 1, 1, left);
    const Tensor divisor = select(equal(pivot, 0), ones_like(pivot), pivot);
    rest = slice(below, 2, 1, left) - slice(below, 2, 0, 1) / divisor * slice(row, 2, 1, left);
  }
  return {narrow_to(reshape(result, outer), call[0].dtype())};
}

const Operator signal_rows[] = {
    {"BlackmanWindow", "@17 1 -> 1: output_datatype periodic", blackman, "", 0b1},
    {"DFT", "@17 2 3@20 -> 1: axis@-19 inverse onesided", dft, "", 0b110},
    {"Det", "@11 1 -> 1", determinant},
    {"HammingWindow", "@17 1 -> 1: output_datatype periodic", hamming, "", 0b1},
    {"HannWindow", "@17 1 -> 1: output_datatype periodic", hann, "", 0b1},
    {"MelWeightMatrix", "@17 5 -> 1: output_datatype", mel_weight_matrix, "", 0b11111},
    {"STFT", "@17 4 -> 1: onesided", stft, "", 0b1010},
    {"TfIdfVectorizer",
     "@9 1 -> 1: max_gram_length max_skip_count min_gram_length mode ngram_counts ngram_indexes "
     "pool_int64s pool_strings weights",
     tf_idf},
};
}  // namespace

std::span<const Operator> signal_operators() { return signal_rows; }

}  // namespace weft::onnx
