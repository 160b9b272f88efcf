#include "weft/comm/message.h"

#include <limits>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/version.h"

namespace weft::comm {
namespace {
using nlohmann::json;

[[noreturn]] void refuse() { throw Error(ErrorKind::failed, "[ranks] not a message of weft."); }

// One function lists the fields of each message, for both directions.
template <class M, class F>
void each_field(M& m, F&& field) {
  using T = std::remove_const_t<M>;
  if constexpr (std::is_same_v<T, Hello>) {
    field(m.version), field(m.token), field(m.host), field(m.pid), field(m.rank), field(m.size);
  } else if constexpr (std::is_same_v<T, Welcome>) {
    field(m.hosts), field(m.pids);
  } else if constexpr (std::is_same_v<T, Beat>) {
    field(m.step), field(m.launch), field(m.begun), field(m.awaited);
    field(m.exchanged), field(m.exchanging), field(m.is_paused);
    field(m.still_seconds), field(m.blind_seconds), field(m.step_seconds), field(m.busy_seconds);
    field(m.waited_seconds);
  } else if constexpr (std::is_same_v<T, Part>) {
    field(m.channel), field(m.what), field(m.bytes);
  } else if constexpr (std::is_same_v<T, Whole>) {
    field(m.channel), field(m.whats), field(m.parts);
  } else if constexpr (std::is_same_v<T, Propose> || std::is_same_v<T, Confirm>) {
    field(m.purpose), field(m.step);
  } else if constexpr (std::is_same_v<T, Ask>) {
    field(m.purpose);
  } else if constexpr (std::is_same_v<T, Answer>) {
    field(m.purpose), field(m.proposed), field(m.at);
  } else if constexpr (std::is_same_v<T, Failed>) {
    field(m.code);
  } else if constexpr (std::is_same_v<T, Verdict>) {
    field(m.rank), field(m.text), field(m.kind);
  }
}

// Texts travel as bytes: CBOR's text would have to be UTF-8, which names of hosts need not be.
json to_json(const std::string& text) { return json::binary({text.begin(), text.end()}); }
template <class T>
json to_json(T value)
  requires std::is_arithmetic_v<T>
{
  return value;
}
template <class T>
json to_json(T value)
  requires std::is_enum_v<T>
{
  return static_cast<uint8_t>(value);
}
template <class T>
json to_json(const std::vector<T>& values) {
  json list = json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

void read(const json& from, std::string& to) {
  if (!from.is_binary()) refuse();
  to.assign(from.get_binary().begin(), from.get_binary().end());
}
void read(const json& from, bool& to) {
  if (!from.is_boolean()) refuse();
  to = from.get<bool>();
}
void read(const json& from, double& to) {
  if (!from.is_number_float()) refuse();
  to = from.get<double>();
  if (!(to >= 0 && to < 1e12)) refuse();  // seconds
}
template <class T>
void read(const json& from, T& to)
  requires std::is_integral_v<T>
{
  if (!from.is_number_integer()) refuse();
  if (from.is_number_unsigned()) {
    if (!std::in_range<T>(from.get<uint64_t>())) refuse();
    to = static_cast<T>(from.get<uint64_t>());
  } else {
    if (!std::in_range<T>(from.get<int64_t>())) refuse();
    to = static_cast<T>(from.get<int64_t>());
  }
}
template <class T>
void read_enum(const json& from, T& to, size_t values) {
  uint8_t number = 0;
  read(from, number);
  if (number >= values) refuse();
  to = static_cast<T>(number);
}
void read(const json& from, Purpose& to) { read_enum(from, to, purposes); }
void read(const json& from, Channel& to) { read_enum(from, to, channels); }
void read(const json& from, ErrorKind& to) {
  read_enum(from, to, static_cast<size_t>(ErrorKind::replicas_differ) + 1);
}
template <class T>
void read(const json& from, std::vector<T>& to) {
  if (!from.is_array()) refuse();
  to.resize(from.size());
  for (size_t i = 0; i < to.size(); ++i) read(from[i], to[i]);
}

template <size_t... kinds>
Message empty_of(size_t kind, std::index_sequence<kinds...> /*all*/) {
  Message message;
  ((kind == kinds ? void(message.emplace<kinds>()) : void()), ...);
  return message;
}
}  // namespace

std::string this_version() { return fmt::format("{} ({})", version::number, version::commit); }

std::string encode(const Message& message) {
  json list = json::array({message.index()});
  std::visit(
      [&](const auto& m) {
        each_field(m, [&](const auto& field) { list.push_back(to_json(field)); });
      },
      message);
  std::string bytes;
  json::to_cbor(list, bytes);
  return bytes;
}

namespace {
json parsed(std::string_view bytes) {
  try {
    return json::from_cbor(bytes);
  } catch (const json::exception&) {  // some are thrown even where exceptions are not allowed
    refuse();
  }
}
}  // namespace

Message decode(std::string_view bytes) {
  const json list = parsed(bytes);
  constexpr size_t kinds = std::variant_size_v<Message>;
  if (!list.is_array() || list.empty() || !list[0].is_number_unsigned() ||
      list[0].get<uint64_t>() >= kinds)
    refuse();
  Message message = empty_of(list[0].get<size_t>(), std::make_index_sequence<kinds>());
  size_t next = 1;
  std::visit(
      [&](auto& m) {
        each_field(m, [&](auto& field) {
          if (next >= list.size()) refuse();
          read(list[next++], field);
        });
      },
      message);
  if (next != list.size()) refuse();
  return message;
}

std::string header_of(size_t bytes) {
  std::string header(header_bytes, '\0');
  for (size_t i = 0; i < header_bytes; ++i)
    header[header_bytes - 1 - i] = static_cast<char>(bytes >> (8 * i) & 0xff);
  return header;
}

size_t bytes_after(std::string_view header) {
  size_t bytes = 0;
  for (const char byte : header.substr(0, header_bytes))
    bytes = bytes << 8 | static_cast<unsigned char>(byte);
  return bytes;
}

}  // namespace weft::comm
