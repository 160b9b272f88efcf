#include "weft/io/zip.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <zlib.h>

#include "weft/base/error.h"

namespace weft::io {
namespace {

constexpr uint64_t local_bytes = 30, entry_bytes = 46, end_bytes = 22, end64_bytes = 56,
                   locator_bytes = 20, longest_comment = 65535;
constexpr uint32_t local_magic = 0x04034b50, entry_magic = 0x02014b50, end_magic = 0x06054b50,
                   end64_magic = 0x06064b50, locator_magic = 0x07064b50;
constexpr uint64_t in_extension = 0xffffffff;  // marks a value that is in the 64-bit extra field

uint32_t crc_of(std::span<const std::byte> bytes, uint32_t crc = 0) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void append(std::string& bytes, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> (8 * i));
}

// Inflates raw deflate data into `out`: with `whole`, all of it, which must fill `out` exactly;
// else its first out.size() bytes. Returns nullptr, or the error.
const char* inflate_into(std::span<std::byte> out, std::span<const std::byte> in, bool whole) {
  z_stream stream{};
  if (inflateInit2(&stream, -15) != Z_OK) return "out of memory";
  constexpr size_t chunk = size_t{1} << 30;  // zlib counts in 32 bits
  std::byte extra{};  // zlib reads the end of a stream only if output space is left
  size_t taken = 0, made = 0;
  int status = Z_OK;
  while (status == Z_OK && (whole || made < out.size())) {
    const size_t give = std::min(chunk, in.size() - taken);
    const size_t room = std::min(chunk, out.size() - made);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in.data() + taken));
    stream.avail_in = static_cast<uInt>(give);
    stream.next_out = reinterpret_cast<Bytef*>(room > 0 ? out.data() + made : &extra);
    stream.avail_out = room > 0 ? static_cast<uInt>(room) : 1;
    status = inflate(&stream, Z_NO_FLUSH);
    taken += give - stream.avail_in;
    if (room == 0 && stream.avail_out == 0) {
      inflateEnd(&stream);
      return "inflates to more than its size";
    }
    if (room > 0) made += room - stream.avail_out;
  }
  inflateEnd(&stream);
  if (!whole && made == out.size()) return nullptr;
  if (status == Z_BUF_ERROR) return made == out.size() ? "has no end" : "is truncated";
  if (status != Z_STREAM_END) return "is no deflate stream";
  if (made != out.size()) return "inflates to less than its size";
  return taken == in.size() ? nullptr : "has bytes after its end";
}

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<Buffer> bytes, std::string name)
    : bytes_(std::move(bytes)), name_(std::move(name)) {
  const Directory directory = find_directory();
  if (directory.count > (directory.end - directory.begin) / entry_bytes)
    refuse(fmt::format("the directory of {} bytes cannot list {} members",
                       directory.end - directory.begin, directory.count));
  uint64_t offset = directory.begin;
  std::set<std::string_view> seen;
  members_.reserve(directory.count);
  for (uint64_t i = 0; i < directory.count; ++i) {
    const ZipMember& member = members_.emplace_back(read_entry(offset, directory.end));
    if (!seen.insert(member.name).second)
      refuse(fmt::format("two members are called '{}'", printable(member.name)));
  }
  if (offset != directory.end)
    refuse(fmt::format("the directory has {} bytes after its {} members", directory.end - offset,
                       directory.count));
  check_places(directory.begin);
}

// The end record is the last thing in the file, but for a comment of up to 65,535 bytes.
ZipArchive::Directory ZipArchive::find_directory() const {
  const uint64_t size = bytes_->bytes;
  if (size < end_bytes) refuse(fmt::format("{} bytes are no archive", size));
  const uint64_t last = size - end_bytes, first = last - std::min(last, longest_comment);
  uint64_t end = last;
  while (number(end, 4) != end_magic || number(end + 20, 2) != last - end)
    if (end-- == first) refuse("no archive: there is no end of a directory. It may be truncated");
  Directory found{.begin = number(end + 16, 4), .end = 0, .count = number(end + 10, 2)};
  uint64_t bytes = number(end + 12, 4), limit = end;
  uint64_t disks = number(end + 4, 2) | number(end + 6, 2);
  if (end >= locator_bytes && number(end - locator_bytes, 4) == locator_magic) {
    limit = number(end - locator_bytes + 8, 8);
    if (limit > end - locator_bytes || end - locator_bytes - limit < end64_bytes ||
        number(limit, 4) != end64_magic)
      refuse(fmt::format("byte {} should begin the 64-bit end of the directory", limit));
    found = {.begin = number(limit + 48, 8), .end = 0, .count = number(limit + 32, 8)};
    bytes = number(limit + 40, 8);
    disks = number(limit + 16, 4) | number(limit + 20, 4);
  }
  if (disks != 0) refuse("archives of several files are not read");
  if (found.begin > limit || bytes != limit - found.begin)
    refuse(fmt::format("the directory counts {} bytes from byte {}, and its end is at byte {}",
                       bytes, found.begin, limit));
  found.end = limit;
  return found;
}

ZipMember ZipArchive::read_entry(uint64_t& offset, uint64_t end) const {
  if (end - offset < entry_bytes || number(offset, 4) != entry_magic)
    refuse(fmt::format("byte {} should begin an entry of the directory", offset));
  const uint64_t flags = number(offset + 8, 2), method = number(offset + 10, 2);
  const uint64_t name_bytes = number(offset + 28, 2), extra_bytes = number(offset + 30, 2);
  const uint64_t whole = entry_bytes + name_bytes + extra_bytes + number(offset + 32, 2);
  if (end - offset < whole)
    refuse(fmt::format("the entry at byte {} is longer than the directory", offset));
  ZipMember member{
      .name = {reinterpret_cast<const char*>(bytes_->data + offset + entry_bytes), name_bytes},
      .header = number(offset + 42, 4),
      .packed = number(offset + 20, 4),
      .size = number(offset + 24, 4),
      .checksum = static_cast<uint32_t>(number(offset + 16, 4)),
      .deflated = method == 8};
  const std::string quoted = fmt::format("member '{}'", printable(member.name));
  if ((flags & 1) != 0) refuse(quoted + " is encrypted");
  if (method != 0 && method != 8)
    refuse(
        fmt::format("{} is packed by method {}. Known: 0 (stored), 8 (deflated)", quoted, method));
  // The 64-bit extra field has, in this order, each of the three numbers whose own field is
  // 0xffffffff.
  uint64_t extra = offset + entry_bytes + name_bytes;
  const uint64_t extra_end = extra + extra_bytes;
  while (extra_end - extra >= 4) {
    const uint64_t id = number(extra, 2), length = number(extra + 2, 2);
    extra += 4;
    if (length > extra_end - extra) refuse(quoted + " has an extra field that is cut");
    uint64_t left = id == 1 ? length : 0, at = extra;
    for (uint64_t* field : {&member.size, &member.packed, &member.header}) {
      if (*field != in_extension || left < 8) continue;
      *field = number(at, 8);
      at += 8, left -= 8;
    }
    extra += length;
  }
  offset += whole;
  return member;
}

// Finds the offset of each member's bytes, and refuses members that overlap: they could share
// bytes, and so make a small file inflate to any size.
void ZipArchive::check_places(uint64_t directory) {
  std::vector<ZipMember*> by_place;
  by_place.reserve(members_.size());
  for (ZipMember& member : members_) by_place.push_back(&member);
  std::ranges::sort(by_place, {}, [](const ZipMember* member) { return member->header; });
  uint64_t end = 0;
  for (ZipMember* member : by_place) {
    const std::string quoted = fmt::format("member '{}'", printable(member->name));
    const uint64_t at = member->header;
    if (at < end) refuse(fmt::format("{} overlaps another member", quoted));
    if (at > directory || directory - at < local_bytes || number(at, 4) != local_magic)
      refuse(fmt::format("{} should begin at byte {}, where none does", quoted, at));
    const uint64_t head = local_bytes + number(at + 26, 2) + number(at + 28, 2);
    if (directory - at < head || directory - at - head < member->packed)
      refuse(fmt::format("{} counts {} bytes, {} are left", quoted, member->packed,
                         directory - at - std::min(head, directory - at)));
    member->begin = at + head;
    end = member->begin + member->packed;
    if (!member->deflated && member->size != member->packed)
      refuse(fmt::format("{} is stored in {} bytes, but counts {}", quoted, member->packed,
                         member->size));
    if (member->size / deflate_largest_ratio > member->packed)
      refuse(fmt::format("{} counts {} bytes, more than its {} can inflate to", quoted,
                         member->size, member->packed));
  }
}

std::shared_ptr<Buffer> ZipArchive::read(const ZipMember& member) const {
  const std::string quoted = fmt::format("member '{}'", printable(member.name));
  std::shared_ptr<Buffer> contents = Buffer::part(bytes_, member.begin, member.packed);
  if (member.deflated) {
    const std::span<const std::byte> packed(contents->data, contents->bytes);
    const auto inflated = Buffer::allocate(member.size);
    if (const char* wrong = inflate_into({inflated->data, inflated->bytes}, packed, true))
      refuse(fmt::format("{} {}", quoted, wrong));
    contents = inflated;
  }
  if (const uint32_t crc = crc_of({contents->data, contents->bytes}); crc != member.checksum)
    refuse(fmt::format("{} is damaged: its checksum is {:08x}, not {:08x}", quoted, crc,
                       member.checksum));
  return contents;
}

std::string ZipArchive::head(const ZipMember& member, size_t bytes) const {
  std::string head(std::min<uint64_t>(bytes, member.size), '\0');
  const std::byte* const from = bytes_->data + member.begin;
  if (!member.deflated)
    std::memcpy(head.data(), from, head.size());
  else if (const char* wrong =
               inflate_into(std::as_writable_bytes(std::span(head)), {from, member.packed}, false))
    refuse(fmt::format("member '{}' {}", printable(member.name), wrong));
  return head;
}

uint64_t ZipArchive::number(uint64_t offset, int bytes) const {
  WEFT_ASSERT(offset + static_cast<uint64_t>(bytes) <= bytes_->bytes, "zip: read past the end");
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= std::to_integer<uint64_t>(bytes_->data[offset + static_cast<uint64_t>(i)]) << (8 * i);
  return value;
}

void ZipArchive::refuse(const std::string& rule) const {
  throw Error(ErrorKind::data, "[zip] {}: {}.", name_, rule);
}

// ---- writing ------------------------------------------------------------------------------------

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes);
  written_ += bytes.size();
}

// Every member has the 64-bit extra field, so that archives of all sizes are written alike.
void ZipWriter::add(const std::string& name, std::span<const std::span<const std::byte>> parts) {
  WEFT_CHECK(name.size() <= std::numeric_limits<uint16_t>::max(),
             "[zip] names have at most 65535 bytes. Got {}.", name.size());
  uint64_t size = 0;
  uint32_t crc = 0;
  for (const auto& part : parts) size += part.size(), crc = crc_of(part, crc);
  const uint64_t header = written_;
  constexpr int version = 45, utf8_names = 1 << 11, stored = 0, first_of_1980 = 0x21;
  std::string common;  // of the local header and the directory
  append(common, version, 2);
  append(common, utf8_names, 2);
  append(common, stored, 2);
  append(common, 0, 2);
  append(common, first_of_1980, 2);
  append(common, crc, 4);
  append(common, in_extension, 4);
  append(common, in_extension, 4);
  append(common, name.size(), 2);

  std::string local;
  append(local, local_magic, 4);
  local += common;
  append(local, 20, 2);
  local += name;
  append(local, 1, 2), append(local, 16, 2);  // the 64-bit extra field
  append(local, size, 8), append(local, size, 8);
  write(local);
  for (const auto& part : parts) file_.write(part.data(), part.size());
  written_ += size;

  append(directory_, entry_magic, 4);
  append(directory_, version, 2);
  directory_ += common;
  append(directory_, 28, 2);                                   // bytes of the extra field
  append(directory_, 0, 2 + 2 + 2), append(directory_, 0, 4);  // comment, disk, attributes
  append(directory_, in_extension, 4);
  directory_ += name;
  append(directory_, 1, 2), append(directory_, 24, 2);
  append(directory_, size, 8), append(directory_, size, 8), append(directory_, header, 8);
  ++count_;
}

void ZipWriter::commit() {
  const uint64_t begin = written_, bytes = directory_.size();
  write(directory_);
  std::string end;
  append(end, end64_magic, 4), append(end, end64_bytes - 12, 8);
  append(end, 45, 2), append(end, 45, 2), append(end, 0, 4), append(end, 0, 4);
  append(end, count_, 8), append(end, count_, 8), append(end, bytes, 8), append(end, begin, 8);
  append(end, locator_magic, 4), append(end, 0, 4), append(end, begin + bytes, 8);
  append(end, 1, 4);
  append(end, end_magic, 4), append(end, 0, 4);
  append(end, 0xffff, 2), append(end, 0xffff, 2);
  append(end, in_extension, 4), append(end, in_extension, 4), append(end, 0, 2);
  write(end);
  file_.commit();
}

}  // namespace weft::io
