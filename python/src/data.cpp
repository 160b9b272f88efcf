// Data sets and loaders; weft/data.py has the functions of users.
#include <cstring>

#include <nanobind/stl/shared_ptr.h>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"
#include "weft/data/images.h"
#include "weft/data/instructions.h"
#include "weft/data/masked.h"
#include "weft/data/synthetic.h"
#include "weft/data/table.h"
#include "weft/data/tokens.h"

#include "python/src/bind.h"

namespace weft::python {
namespace {
using namespace data;
using SourcePtr = std::shared_ptr<const Source>;

// An ArraySource has a sample in each row of two arrays: inputs [N, ...], and labels i64 or targets
// f32 [N, ...].
class ArraySource : public Source {
 public:
  ArraySource(const Tensor& inputs, const Tensor& labels) : inputs_(inputs), labels_(labels) {
    WEFT_CHECK(inputs.rank() > 0 && labels.rank() > 0 && inputs.dim(0) == labels.dim(0),
               "[loader] inputs and labels have one row for each sample. Got {} and {}.",
               to_string(inputs.type()), to_string(labels.type()));
    labels_ = cast(labels, is_float(labels.dtype()) ? DType::f32 : DType::i64);
    inputs_.eval();
    labels_.eval();
  }

  int64_t size() const override { return inputs_.dim(0); }
  Type input_type() const override { return {inputs_.dtype(), row_of(inputs_)}; }
  Shape label_shape() const override { return row_of(labels_); }
  DType label_dtype() const override { return labels_.dtype(); }
  size_t bytes() const override { return inputs_.type().bytes() + labels_.type().bytes(); }
  void write(const SampleKey& key, std::byte* input, int64_t* labels) const override {
    copy_row(inputs_, key.index, input);
    copy_row(labels_, key.index, labels);
  }
  void write_targets(const SampleKey& key, std::byte* input, float* targets) const override {
    copy_row(inputs_, key.index, input);
    copy_row(labels_, key.index, targets);
  }

 private:
  static Shape row_of(const Tensor& rows) {
    Shape row;
    for (int axis = 1; axis < rows.rank(); ++axis) row.push_back(rows.dim(axis));
    return row;
  }
  void copy_row(const Tensor& rows, int64_t index, void* to) const {
    const size_t bytes = rows.type().bytes() / static_cast<size_t>(size());
    std::memcpy(to, rows->storage->on_host().data + static_cast<size_t>(index) * bytes, bytes);
  }

  Tensor inputs_, labels_;
};

// A Pass is one pass over a source: an iterator of Python, whose batches other threads need not
// wait for.
class Pass {
 public:
  explicit Pass(Batches batches) : batches_(std::move(batches)) {}
  Pass(const Pass&) = delete;

  std::pair<Tensor, Tensor> next() {
    {
      const nb::gil_scoped_release released;
      if (at_)
        ++*at_;
      else
        at_.emplace(batches_.begin());
    }
    if (!(*at_ != std::default_sentinel)) throw nb::stop_iteration();
    Batches::Pair pair = **at_;
    return {std::move(pair.inputs), std::move(pair.labels)};
  }

 private:
  Batches batches_;
  std::optional<Batches::Iterator> at_;  // empty before the first batch
};

void bind_loaders(nb::module_& m) {
  nb::class_<Source>(m, "Source", "Samples that a Loader returns in batches.")
      .def("__len__", &Source::size)
      .def_prop_ro("input_shape", [](const Source& self) { return self.input_type().shape; })
      .def_prop_ro("input_dtype", [](const Source& self) { return self.input_type().dtype; })
      .def_prop_ro("label_shape", &Source::label_shape)
      .def_prop_ro("label_dtype", &Source::label_dtype);
  m.def(
      "array_source",
      [](const Arg& inputs, const Arg& labels) -> SourcePtr {
        const CallSite site(inputs.where, "Loader");
        return std::make_shared<ArraySource>(inputs.value, labels.value);
      },
      "inputs"_a, "labels"_a);
  nb::class_<Pass>(m, "Batches", "One pass over a data set: pairs of inputs and labels.")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Pass::next);
  m.def(
      "batches",
      [](const SourcePtr& source, int64_t batch_size, bool shuffle, bool drop_last, int64_t seed,
         int prefetch, int64_t epoch) {
        return new Pass(Batches(source,
                                {.batch_size = batch_size,
                                 .shuffle = shuffle,
                                 .drop_last = drop_last,
                                 .seed = seed,
                                 .prefetch = prefetch},
                                epoch));
      },
      "source"_a, "batch_size"_a, "shuffle"_a, "drop_last"_a, "seed"_a, "prefetch"_a, "epoch"_a,
      nb::rv_policy::take_ownership);
}

void bind_images(nb::module_& m) {
  nb::class_<ImageDataset>(m, "ImageDataset", "Labelled images, which memory holds as bytes.")
      .def("__len__", &ImageDataset::size)
      .def_prop_ro("image_shape", &ImageDataset::image_shape)
      .def_prop_ro("classes", &ImageDataset::classes)
      .def_prop_ro("name", &ImageDataset::name)
      .def("label", &ImageDataset::label, "index"_a)
      .def(
          "pixels",
          [](const ImageDataset& self, int64_t index) {
            const std::span<const uint8_t> pixels = self.pixels(index);
            const std::shared_ptr<Buffer> copy = Buffer::allocate(pixels.size());
            std::memcpy(copy->data, pixels.data(), pixels.size());
            return from_buffer(copy, {DType::u8, self.image_shape()});
          },
          "index"_a)
      .def("slice", &ImageDataset::slice, "first"_a, "last"_a)
      .def(
          "transform",
          [](const ImageDataset& self, int64_t random_crop, double random_horizontal_flip) {
            return self.transform(
                {.random_crop = random_crop, .random_horizontal_flip = random_horizontal_flip});
          },
          "random_crop"_a = 0, "random_horizontal_flip"_a = 0.0)
      .def(
          "normalize",
          [](const ImageDataset& self, std::vector<double> mean, std::vector<double> deviation) {
            return self.normalize({.mean = std::move(mean), .deviation = std::move(deviation)});
          },
          "mean"_a = std::vector<double>(), "deviation"_a = std::vector<double>())
      .def("source", &ImageDataset::source)
      .def(
          "batches",
          [](const ImageDataset& self, int64_t batch_size, bool shuffle,
             std::optional<bool> drop_last, int64_t seed, std::optional<int64_t> epoch,
             int prefetch) {
            return new Pass(self.batches(batch_size, {.shuffle = shuffle,
                                                      .drop_last = drop_last,
                                                      .seed = seed,
                                                      .epoch = epoch,
                                                      .prefetch = prefetch}));
          },
          "batch_size"_a, "shuffle"_a = false, "drop_last"_a = nb::none(), "seed"_a = 0,
          "epoch"_a = nb::none(), "prefetch"_a = 2, nb::rv_policy::take_ownership);
  m.def(
      "image_dataset",
      [](const std::string& name, const std::string& split,
         const std::optional<std::string>& root) {
        const nb::gil_scoped_release released;
        return image_dataset(name, split, root.value_or(data_directory()));
      },
      "name"_a, "split"_a, "root"_a = nb::none());
  m.def("images_from_idx", &images_from_idx, "images"_a, "labels"_a, "classes"_a = 0);
  m.def("images_from_cifar", &images_from_cifar, "paths"_a);
}

void bind_tokens(nb::module_& m) {
  nb::class_<TokenDataset>(m, "TokenDataset", "A stream of tokens; slices share it.")
      .def(
          "__init__",
          [](TokenDataset* self, std::vector<int32_t> tokens, int64_t vocabulary_size) {
            new (self) TokenDataset(std::move(tokens), vocabulary_size);
          },
          "tokens"_a, "vocabulary_size"_a)
      .def("__len__", &TokenDataset::size)
      .def_prop_ro("vocabulary_size", &TokenDataset::vocabulary_size)
      .def_prop_ro("tokens",
                   [](const TokenDataset& self) {
                     const std::span<const int32_t> tokens = self.tokens();
                     return std::vector<int32_t>(tokens.begin(), tokens.end());
                   })
      .def("slice", &TokenDataset::slice, "first"_a, "last"_a)
      .def("random_windows", &TokenDataset::random_windows, "seq_len"_a)
      .def("windows", &TokenDataset::windows, "seq_len"_a);
  nb::class_<TextDataset>(m, "TextDataset", "A text as tokens, for training and validation.")
      .def_ro("vocabulary", &TextDataset::vocabulary)
      .def_ro("train", &TextDataset::train)
      .def_ro("validation", &TextDataset::validation);
  m.def(
      "text",
      [](const std::string& path, const std::string& tokenizer, const std::string& val_path,
         double val_split, const std::optional<TextCodec>& vocabulary, bool special_tokens) {
        const nb::gil_scoped_release released;
        return text(path, {.tokenizer = tokenizer,
                           .val_path = val_path,
                           .val_split = val_split,
                           .vocabulary = vocabulary,
                           .special_tokens = special_tokens});
      },
      "path"_a, "tokenizer"_a = "characters", "val_path"_a = "", "val_split"_a = 0.1,
      "vocabulary"_a = nb::none(), "special_tokens"_a = true);
  m.def(
      "masked",
      [](const SourcePtr& source, int64_t vocabulary, int64_t mask, double probability,
         std::optional<int64_t> pad) {
        return masked(
            source,
            {.vocabulary = vocabulary, .mask = mask, .probability = probability, .pad = pad});
      },
      "source"_a, "vocabulary"_a, "mask"_a, "probability"_a = 0.15, "pad"_a = nb::none());
  m.def(
      "instructions",
      [](const std::string& path, const Tokenizer& tokenizer, int64_t seq_len,
         const std::optional<ChatTemplate>& chat, std::optional<int32_t> end, bool packed,
         bool last_answer) {
        const nb::gil_scoped_release released;
        return instruction_source(
            read_instructions(path, tokenizer,
                              {.chat = chat, .end = end, .last_answer = last_answer}),
            seq_len, path, packed);
      },
      "path"_a, "tokenizer"_a, "seq_len"_a, "chat"_a, "end"_a, "packed"_a, "last_answer"_a);
  m.def(
      "random_images",
      [](const std::string& split, const Shape& image, int64_t classes, int64_t size,
         int64_t seed) {
        return random_images(split, image, {.classes = classes, .size = size, .seed = seed});
      },
      "split"_a, "image"_a, "classes"_a = 1000, "size"_a = 10'000, "seed"_a = 0);
  m.def(
      "random_tokens",
      [](const std::string& split, int64_t seq_len, int64_t vocabulary, int64_t size,
         int64_t seed) {
        return random_tokens(split, seq_len, {.classes = vocabulary, .size = size, .seed = seed});
      },
      "split"_a, "seq_len"_a, "vocabulary"_a = 1000, "size"_a = 10'000, "seed"_a = 0);
}

void bind_tables(nb::module_& m) {
  nb::class_<TableColumns>(m, "TableColumns", "How rows become samples: (x - mean) / std.")
      .def("to_json", &TableColumns::to_json)
      .def_static("from_json", &TableColumns::from_json, "json"_a, "name"_a = "columns")
      .def_ro("classes", &TableColumns::classes);
  nb::class_<Table>(m, "Table", "The rows of a CSV file: each is a sample.")
      .def("__len__", &Table::rows)
      .def_ro("name", &Table::name)
      .def_ro("features", &Table::features)
      .def_ro("targets", &Table::targets)
      .def(
          "columns",
          [](const Table& self, const std::vector<int64_t>& rows) {
            return columns_of(self, rows);
          },
          "rows"_a)
      .def(
          "source",
          [](std::shared_ptr<const Table> self, std::vector<int64_t> rows,
             const TableColumns& columns) {
            return table_source(std::move(self), std::move(rows), columns);
          },
          "rows"_a, "columns"_a);
  m.def(
      "read_table",
      [](const std::string& path, std::vector<std::string> targets,
         std::vector<std::string> features, bool classes, char separator) {
        const nb::gil_scoped_release released;
        return std::make_shared<const Table>(read_table(path, {.targets = std::move(targets),
                                                               .features = std::move(features),
                                                               .classes = classes,
                                                               .separator = separator}));
      },
      "path"_a, "targets"_a, "features"_a = std::vector<std::string>(), "classes"_a = false,
      "separator"_a = ',');
}
}  // namespace

void bind_data(nb::module_& package) {
  nb::module_ m = package.def_submodule("_data", "Data sets, loaders and tokenizers of weft/data.");
  bind_tokenizers(m);
  bind_loaders(m);
  bind_images(m);
  bind_tokens(m);
  bind_tables(m);
}

}  // namespace weft::python
