// Changes compiled models for tests, as someone who writes one of their own could.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::test {

// Name the JSON of the model and of its first program in an artifact, and its first machine code.
inline constexpr std::string_view artifact_model = "weft/model.json",
                                  artifact_program = "weft/program/0.json",
                                  artifact_kernel = "weft/kernel/0";

// Changes the JSON of this name in the artifact `path`, and seals the file again.
void edit_artifact(const std::string& path, std::string_view name,
                   const std::function<void(nlohmann::json&)>& change);
// Does the same with bytes.
void edit_artifact_bytes(const std::string& path, std::string_view name,
                         const std::function<void(std::string&)>& change);

}  // namespace weft::test
