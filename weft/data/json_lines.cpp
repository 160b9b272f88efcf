#include "weft/data/json_lines.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/io/files.h"
#include "weft/io/json.h"

namespace weft::data {

void read_json_lines(std::string_view file, const std::string& name,
                     const std::function<void(std::string_view)>& read) {
  size_t line = 0;
  for (size_t begin = 0; begin < file.size();) {
    const size_t end = std::min(file.find('\n', begin), file.size());
    const std::string_view text = file.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      read(text);
    } catch (const io::JsonError& error) {
      throw Error(ErrorKind::data, "{}:{}: {}.", name, line, error.what());
    } catch (const Error& error) {
      throw Error(error.kind(), "{}:{}: {}", name, line, error.what());
    }
  }
}

std::string read_json_lines_file(const std::string& path) {
  constexpr size_t limit = size_t{4} << 30;  // bytes
  return io::read_file(path, limit);
}

}  // namespace weft::data
