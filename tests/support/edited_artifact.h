// Changes compiled models for tests, as someone who writes one of their own could.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace weft::test {

// Name the JSON of the model and of its first program in an artifact.
inline constexpr std::string_view artifact_model = "weft/model.json",
                                  artifact_program = "weft/program/0.json";

// Changes the JSON of this name in the artifact `path`, and seals the file again.
void edit_artifact(const std::string& path, std::string_view name,
                   const std::function<void(nlohmann::json&)>& change);

}  // namespace weft::test
