#include "weft/base/host/signature.h"

#include <array>
#include <cstddef>
#include <fcntl.h>
#include <span>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "weft/base/error.h"
#include "weft/base/host/private_folder.h"
#include "weft/base/text/partial_name.h"

namespace weft {
namespace {
constexpr size_t secret_bytes = 32;

std::optional<std::string> read_secret() {
  const std::optional<std::string> folder = private_cache("signing");
  if (!folder) return std::nullopt;
  std::optional<std::string> secret = read_private(*folder + "/key");
  return secret && secret->size() == secret_bytes ? secret : std::nullopt;
}

// Writes a new secret unless another process did so first. A file that is no secret, such as one
// that a full disk cut, is replaced.
void make_secret() {
  const std::optional<std::string> folder = private_cache("signing");
  std::array<char, secret_bytes> secret;
  if (!folder || getrandom(secret.data(), secret.size(), 0) != std::ssize(secret)) return;
  const std::string path = *folder + "/key", partial = partial_name(path);
  if (!read_secret()) unlink(path.c_str());
  const int file =
      open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  const bool written = write(file, secret.data(), secret.size()) == std::ssize(secret);
  if (close(file) == 0 && written) (void)link(partial.c_str(), path.c_str());
  unlink(partial.c_str());
}

std::string digits_of(std::span<const unsigned char> digest) {
  std::string text;
  for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
  return text;
}

// Returns nullopt where OpenSSL has no HMAC-SHA256, as by its configuration.
std::optional<std::string> hmac_of(const std::string& secret, std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  const bool is_made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                            reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                            digest.data(), &length) != nullptr;
  if (!is_made || length != 32) return std::nullopt;
  return digits_of({digest.data(), length});
}
}  // namespace

std::string sha256_of(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  const int is_made =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  if (is_made != 1) throw Error(ErrorKind::failed, "OpenSSL has no SHA-256 here.");
  return digits_of({digest.data(), length});
}

std::optional<std::string> signature_of(std::string_view bytes) {
  std::optional<std::string> secret = read_secret();
  if (!secret) {
    make_secret();
    secret = read_secret();
  }
  return secret ? hmac_of(*secret, bytes) : std::nullopt;
}

bool is_signed(std::string_view bytes, std::string_view signature) {
  const std::optional<std::string> secret = read_secret();
  if (!secret) return false;
  const std::optional<std::string> right = hmac_of(*secret, bytes);
  return right && right->size() == signature.size() &&
         CRYPTO_memcmp(right->data(), signature.data(), right->size()) == 0;
}

}  // namespace weft
