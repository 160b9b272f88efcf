#include "weft/base/host/signature.h"

#include <array>
#include <cstddef>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "weft/base/host/private_folder.h"

namespace weft {
namespace {
constexpr size_t secret_bytes = 32;

std::optional<std::string> read_secret() {
  const std::optional<std::string> folder = private_cache("signing");
  if (!folder) return std::nullopt;
  std::optional<std::string> secret = read_private(*folder + "/key");
  return secret && secret->size() == secret_bytes ? secret : std::nullopt;
}

// Writes a new secret unless another process did so first.
void make_secret() {
  const std::optional<std::string> folder = private_cache("signing");
  std::array<char, secret_bytes> secret;
  if (!folder || getrandom(secret.data(), secret.size(), 0) != std::ssize(secret)) return;
  const std::string path = *folder + "/key", partial = fmt::format("{}.{}", path, getpid());
  const int file =
      open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  const bool written = write(file, secret.data(), secret.size()) == std::ssize(secret);
  if (close(file) == 0 && written) (void)link(partial.c_str(), path.c_str());
  unlink(partial.c_str());
}

std::string hmac_of(const std::string& secret, std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data(), &length);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}
}  // namespace

std::optional<std::string> signature_of(std::string_view bytes) {
  std::optional<std::string> secret = read_secret();
  if (!secret) {
    make_secret();
    secret = read_secret();
  }
  return secret ? std::optional(hmac_of(*secret, bytes)) : std::nullopt;
}

bool is_signed(std::string_view bytes, std::string_view signature) {
  const std::optional<std::string> secret = read_secret();
  if (!secret) return false;
  const std::string right = hmac_of(*secret, bytes);
  return right.size() == signature.size() &&
         CRYPTO_memcmp(right.data(), signature.data(), right.size()) == 0;
}

}  // namespace weft
