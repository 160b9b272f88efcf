// Reads the lines of JSON lines (JSONL): a text file with a JSON value on each line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace weft::data {

// Calls `read` with each line that is not empty. An io::JsonError of `read` becomes Error(data), an
// Error keeps its kind; both get "NAME:LINE: " before their message.
void read_json_lines(std::string_view file, const std::string& name,
                     const std::function<void(std::string_view)>& read);
// Reads a file of at most 4 GiB.
std::string read_json_lines_file(const std::string& path);

}  // namespace weft::data
