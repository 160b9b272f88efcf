// Reads JSON lines (JSONL): a text file with a JSON value on each line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::data {

// Calls `read` with the value of each line that is not empty. Throws Error(data),
// "NAME:LINE: ...", for what is not JSON, and for an io::JsonError or an Error of `read`, of whose
// kind it then is.
void read_json_lines(std::string_view file, const std::string& name,
                     const std::function<void(const nlohmann::json&)>& read);
// Reads a file of at most 4 GiB.
std::string read_json_lines_file(const std::string& path);

}  // namespace weft::data
