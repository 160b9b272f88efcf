#include "weft/train/run/rows.h"

#include <cstddef>
#include <memory>

#include "weft/base/memory/buffer.h"
#include "weft/base/memory/storage.h"

namespace weft::train {
namespace {
struct Rows {
  Type type;
  std::byte* data;
};
Rows rows_in(const Tensor& whole, int64_t from, int64_t rows) {
  Type type = whole.type();
  type.shape[0] = rows;
  return {type, whole->data() + static_cast<size_t>(from / rows) * type.bytes()};
}
}  // namespace

Tensor rows_of(const Tensor& whole, int64_t from, int64_t rows) {
  if (rows == whole.dim(0)) return whole;
  const Rows part = rows_in(whole, from, rows);
  return tensor_over(std::make_shared<Tensor>(whole), part.data, part.type);
}

Tensor show_rows(Tensor& view, const Tensor& whole, int64_t from, int64_t rows) {
  if (rows == whole.dim(0)) return whole;
  const Rows part = rows_in(whole, from, rows);
  if (!view.defined() || view.type() != part.type)
    view = tensor_over(nullptr, part.data, part.type);
  else
    view->storage->buffer()->data = part.data;
  return view;
}

}  // namespace weft::train
