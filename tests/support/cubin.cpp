#include "tests/support/cubin.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>

#include <elf.h>

#include "weft/base/error.h"

namespace weft::testing {
namespace {
constexpr uint8_t with_size = 4;  // format of an attribute: a size, then as many bytes
constexpr uint8_t frame_size = 0x11, register_count = 0x2f;

template <class T>
T read(const std::string& bytes, size_t at) {
  T value{};
  WEFT_ASSERT(at + sizeof(T) <= bytes.size(), "a cubin ends at byte {}", bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

class Cubin {
 public:
  explicit Cubin(const std::string& bytes) : bytes_(bytes) {
    const auto header = read<Elf64_Ehdr>(bytes, 0);
    WEFT_ASSERT(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0, "no cubin");
    for (size_t i = 0; i < header.e_shnum; ++i)
      sections_.push_back(read<Elf64_Shdr>(bytes, header.e_shoff + i * header.e_shentsize));
    names_ = sections_.at(header.e_shstrndx);
  }

  std::vector<KernelResources> run() {
    for (const Elf64_Shdr& section : sections_)
      if (name(names_, section.sh_name) == ".nv.info") read_attributes(section);
    std::vector<KernelResources> result;
    result.reserve(kernels_.size());
    for (auto& [symbol, kernel] : kernels_) result.push_back(std::move(kernel));
    return result;
  }

 private:
  std::string name(const Elf64_Shdr& table, size_t at) const {
    return bytes_.c_str() + table.sh_offset + at;
  }
  std::string name_of_symbol(uint32_t index) const {
    const auto table = std::ranges::find(sections_, Elf64_Word{SHT_SYMTAB}, &Elf64_Shdr::sh_type);
    WEFT_ASSERT(table != sections_.end(), "a cubin without symbols");
    const auto symbol = read<Elf64_Sym>(bytes_, table->sh_offset + index * sizeof(Elf64_Sym));
    return name(sections_.at(table->sh_link), symbol.st_name);
  }

  // An attribute is its format, its number, and two bytes that hold the value or its size.
  void read_attributes(const Elf64_Shdr& section) {
    for (size_t at = section.sh_offset; at < section.sh_offset + section.sh_size;) {
      const auto format = read<uint8_t>(bytes_, at), attribute = read<uint8_t>(bytes_, at + 1);
      const auto size = read<uint16_t>(bytes_, at + 2);
      at += 4;
      if (format != with_size) continue;
      if (attribute == frame_size || attribute == register_count) {
        const auto symbol = read<uint32_t>(bytes_, at);
        KernelResources& kernel = kernels_[symbol];
        kernel.name = name_of_symbol(symbol);
        (attribute == frame_size ? kernel.stack : kernel.registers) =
            static_cast<int>(read<uint32_t>(bytes_, at + 4));
      }
      at += size;
    }
  }

  const std::string& bytes_;
  std::vector<Elf64_Shdr> sections_;
  Elf64_Shdr names_{};
  std::map<uint32_t, KernelResources> kernels_;
};
}  // namespace

std::vector<KernelResources> resources_of(const std::string& cubin) { return Cubin(cubin).run(); }

}  // namespace weft::testing
