#include "data/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"

namespace assay {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr, "EVP_MD_CTX_new gave nothing");
  const int ok = EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr);
  CHECK(ok == 1, "EVP_DigestInit_ex returned %d", ok);
}

Sha256::~Sha256() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}

void Sha256::update(const void* data, size_t bytes) {
  const int ok = EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, bytes);
  CHECK(ok == 1, "EVP_DigestUpdate returned %d", ok);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  const int ok = EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest, &size);
  CHECK(ok == 1, "EVP_DigestFinal_ex returned %d", ok);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += strprintf("%02x", digest[i]);
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_of(int file, const std::string& path,
                      const std::function<void(int64_t)>& on_bytes) {
  std::vector<char> buffer(1 << 20);
  Sha256 hash;
  for (off_t at = 0;;) {
    const ssize_t got = pread(file, buffer.data(), buffer.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_unread(path, errno, "check the path and its permissions");
    if (got == 0) return hash.hex();
    hash.update(buffer.data(), static_cast<size_t>(got));
    at += got;
    if (on_bytes) on_bytes(got);
  }
}

std::string sha256_file(const std::string& path) {
  const int file = open_regular(path);
  if (file < 0) throw_unread(path, errno, "check the path and its permissions");
  try {
    const std::string hash = sha256_of(file, path);
    close(file);
    return hash;
  } catch (...) {
    close(file);
    throw;
  }
}

std::string program_sha256() {
  try {
    return sha256_file("/proc/self/exe");
  } catch (const UserError&) {
    return "unknown";
  }
}

std::string short_hash(const std::string& sha256) {
  return "SHA-256 " + sha256.substr(0, 16);
}

}  // namespace assay
