// Reads and writes NumPy's files: .npy, one array, and .npz, a ZIP archive of them. Format: NumPy,
// "NEP 1 - A Simple File Format for NumPy Arrays", versions 1.0 to 3.0.
//
// Both byte orders and both orders of the axes (C, Fortran) are read, of the dtypes b1, u1, i1, u2,
// i2, u4, i4, i8, f2, f4 and f8. Others are refused by name: arrays of objects hold pickled Python,
// which runs code when it is read, and is never read here. NumPy has no bfloat16 and no float of 8
// bits; these are written as f4, which has all of their values.
//
// Errors of reading (ErrorKind::data) name the file, what is wrong and the limit. An array takes
// exactly the bytes that follow its header; a member of a .npz inflates to at most 1032 bytes for
// each packed byte (zip.h), and to the size that its header gives. So the size of the file and of
// the arrays that are read bounds the memory. A .npy in this machine's layout is a view of the
// mapped file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/io/zip.h"
#include "weft/tensor/tensor.h"

namespace weft::io {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// Npz is an open archive whose array headers have been read. So an error of a name or type is known
// before any array is inflated; a few bytes may inflate to very many zeros.
class Npz {
 public:
  struct Entry {
    std::string name;  // without ".npy"
    Type type;
  };
  Npz(std::shared_ptr<Buffer> bytes, std::string name);  // `name` appears in messages
  static Npz open(const std::string& path);

  const std::vector<Entry>& entries() const { return entries_; }  // in the archive's order
  Tensor read(size_t entry) const;

 private:
  std::string name_of(const ZipMember& member) const;

  std::string name_;
  ZipArchive archive_;
  std::vector<Entry> entries_;
};

Tensor read_npy(const std::string& path);
// Returns the arrays in the archive's order, named as their members without ".npy".
std::vector<NamedTensor> read_npz(const std::string& path);
// These do the same from memory; messages say `name`.
Tensor parse_npy(const std::shared_ptr<Buffer>& bytes, std::string_view name);
std::vector<NamedTensor> parse_npz(const std::shared_ptr<Buffer>& bytes, const std::string& name);

// These write atomically, in version 1.0 and C order, .npz without compression, as NumPy does. They
// throw Error(usage) for packed numbers of 4 bits and for two arrays of one name.
void write_npy(const std::string& path, const Tensor& tensor);
void write_npz(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace weft::io
