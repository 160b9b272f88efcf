// Reads IDX files, the format of MNIST and its relatives: a typed array with a big-endian header,
// plain or gzipped. Format: "THE IDX FILE FORMAT" in Y. LeCun, C. Cortes, C. Burges, "The MNIST
// database".
//
//   0x00 0x00, dtype code, rank, then `rank` extents as 32-bit integers, then the elements.
//
// Errors (ErrorKind::data) name the file, what is wrong and the limit. Nothing is allocated before
// the header's counts have been checked against the size of the file.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "weft/base/memory/buffer.h"
#include "weft/base/numbers/dtype.h"
#include "weft/base/numbers/shape.h"

namespace weft::io {

struct IdxArray {
  DType dtype = DType::u8;  // u8, i8, i16, i32, f32 or f64
  Shape shape;
  std::shared_ptr<Buffer> elements;  // row-major, in the byte order of this machine
};

IdxArray read_idx(const std::string& path);
// Does the same from memory; messages say `name`. Plain one-byte elements are shared, not copied.
IdxArray parse_idx(const std::shared_ptr<Buffer>& bytes, std::string_view name);

}  // namespace weft::io
