// Turns the constants of estimates (catalogue/costs/fitted.yaml) into a table of the library.
//
//   write_constants OUTPUT.cpp CONSTANTS.yaml
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

namespace {
void write(const char* output, const char* input) {
  std::string rows;
  for (const auto& name : YAML::LoadFile(input))
    for (const auto& scope : name.second)
      rows += fmt::format("    {{\"{}\", \"{}\", {}}},\n", name.first.as<std::string>(),
                          scope.first.as<std::string>(), scope.second.as<double>());
  std::ofstream file(output);
  file << "// Written by cmake/write_constants.cpp from " << input << ".\n"
       << "#include \"weft/estimate/constants.h\"\n\nnamespace weft::estimate {\n"
          "const Constants& shipped_constants() {\n  static const Constants constants({\n"
       << rows << "  });\n  return constants;\n}\n}  // namespace weft::estimate\n";
  if (!file.flush()) throw std::runtime_error(fmt::format("cannot write {}.", output));
}
}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("write_constants OUTPUT.cpp CONSTANTS.yaml");
    write(argv[1], argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
