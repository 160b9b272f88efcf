#include "tests/support/edited_artifact.h"

#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "weft/io/json.h"
#include "weft/io/safetensors.h"

namespace weft::test {

void edit_artifact(const std::string& path, std::string_view name,
                   const std::function<void(nlohmann::json&)>& change) {
  edit_artifact_bytes(path, name, [&](std::string& text) {
    nlohmann::json all = io::parse_json(text);
    change(all);
    text = all.dump();
  });
}

void edit_artifact_bytes(const std::string& path, std::string_view name,
                         const std::function<void(std::string&)>& change) {
  const io::Safetensors file = io::Safetensors::open(path);
  std::vector<io::NamedBytes> tensors;
  std::string edited;
  for (const io::TensorFile::Entry& entry : file.entries()) {
    std::span<const std::byte> bytes = file.bytes(entry);
    Type type = entry.type;
    if (entry.name == io::seal_name) continue;
    if (entry.name == name) {
      edited.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      change(edited);
      bytes = std::as_bytes(std::span(edited));
      type.shape = {std::ssize(edited)};
    }
    tensors.push_back({.name = entry.name, .type = type, .bytes = bytes});
  }
  io::write_sealed_safetensors(path, std::move(tensors));
}

}  // namespace weft::test
