// Reads and writes ZIP archives, whose members are stored or deflated. Format: PKWARE, "APPNOTE.TXT
// - .ZIP File Format Specification", 6.3, with the 64-bit extensions of its section 4.3.14.
//
// Errors (ErrorKind::data) name the archive, the member and the rule. Memory is bounded by the size
// of the file: members must not overlap, and a member has at most 1032 bytes for each packed byte,
// the greatest ratio of deflate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/memory/buffer.h"
#include "weft/io/files.h"

namespace weft::io {

// The greatest ratio of inflated to deflated bytes.
inline constexpr uint64_t deflate_largest_ratio = 1032;

struct ZipMember {
  std::string name;
  uint64_t header = 0;  // where its local header begins in the file
  uint64_t begin = 0;   // where its bytes begin
  uint64_t packed = 0;  // bytes in the file
  uint64_t size = 0;    // bytes of its contents
  uint32_t checksum = 0;
  bool deflated = false;
};

class ZipArchive {
 public:
  // `name` appears in messages. Throws for bytes that are no archive, encrypted members, methods
  // other than stored and deflated, two members of one name, and archives split into several files.
  ZipArchive(std::shared_ptr<Buffer> bytes, std::string name);

  const std::vector<ZipMember>& members() const { return members_; }  // in the archive's order
  // Returns the contents, and checks their size and CRC-32. Contents that are stored, not deflated,
  // are a view of the archive's memory.
  std::shared_ptr<Buffer> read(const ZipMember& member) const;
  // Returns the first bytes of the contents, at most `bytes`, and inflates no more. Their CRC-32 is
  // not checked.
  std::string head(const ZipMember& member, size_t bytes) const;

 private:
  struct Directory {
    uint64_t begin = 0, end = 0, count = 0;
  };
  Directory find_directory() const;
  ZipMember read_entry(uint64_t& offset, uint64_t end) const;
  void check_places(uint64_t directory);
  uint64_t number(uint64_t offset, int bytes) const;  // little-endian
  [[noreturn]] void refuse(const std::string& rule) const;

  std::shared_ptr<Buffer> bytes_;
  std::string name_;
  std::vector<ZipMember> members_;
};

// ZipWriter writes stored members; the archive appears when it is committed. Equal contents give
// equal files.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path) {}
  // Adds a member whose contents are these parts, one after the other.
  void add(const std::string& name, std::span<const std::span<const std::byte>> parts);
  void commit();

 private:
  void write(const std::string& bytes);

  AtomicFile file_;
  uint64_t written_ = 0, count_ = 0;
  std::string directory_;
};

}  // namespace weft::io
