// What the writer and the reader of artifacts share: names of tensors, and the JSON of a machine
// and of machine code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/device/kernel_code.h"

namespace weft::artifact {

inline constexpr int64_t format = 2;
inline constexpr std::string_view model_name = "weft/model.json", file_prefix = "weft/file/";
inline std::string program_name(size_t number) {
  return fmt::format("weft/program/{}.json", number);
}
inline std::string constant_name(size_t number) { return fmt::format("weft/constant/{}", number); }
inline std::string kernel_name(size_t number) { return fmt::format("weft/kernel/{}", number); }

// Returns what plans of a backend depend on here besides the version: the backend's name, the
// machine that its kernels are for, and the number of threads. Opens the device; throws
// Error(device) if there is none, and Error(usage) for an unknown name.
nlohmann::json target_here(const std::string& device);

nlohmann::json code_text(const KernelCode& code);
KernelCode code_of(const nlohmann::json& text, std::string object);  // throws io::JsonError
// Returns what is signed: the code, and the machine that it is for.
std::string signed_text(const nlohmann::json& target, const nlohmann::json& kernels,
                        const std::vector<KernelCode>& codes);

}  // namespace weft::artifact
