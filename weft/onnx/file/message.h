// Reads ONNX's protobuf messages and the external data of their tensors. Internal to weft/onnx, as
// it shows protobuf's classes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#define ONNX_ML 1
#include <onnx/onnx_pb.h>

#include "weft/base/memory/buffer.h"

namespace weft::onnx {

inline constexpr size_t message_limit = size_t{2} << 30;  // protobuf's, in bytes

// Parses a message; `file` names it in errors. Throws Error(data) for bytes that are no message,
// and for 2 GiB and more, the limit of protobuf.
void parse_message(google::protobuf::MessageLite& message, std::string_view bytes,
                   const std::string& file);

// ExternalData maps the files of a model's folder that its tensors name.
class ExternalData {
 public:
  // An empty folder refuses external data. `file` names the model in messages.
  ExternalData(std::string file, std::string folder)
      : file_(std::move(file)), folder_(std::move(folder)) {}

  // Returns a tensor's bytes, of which there are `usual` where the tensor gives no length. Writes
  // to them stay in memory. `what` names the tensor in errors. Throws Error(data) for a file
  // outside of the folder, and for a file that is missing or too short.
  std::shared_ptr<Buffer> bytes_of(const ::onnx::TensorProto& proto, uint64_t usual,
                                   const std::string& what);

 private:
  uint64_t count_of(const std::string& text, const char* key, const std::string& what) const;
  const std::shared_ptr<Buffer>& whole(const std::string& location, const std::string& what);

  std::string file_, folder_;
  std::map<std::string, std::shared_ptr<Buffer>> files_;  // by location
};

// Returns the folder that a model's external data is in.
std::string folder_of(const std::string& path);

}  // namespace weft::onnx
