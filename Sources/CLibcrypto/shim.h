// OpenSSL's libcrypto 3, as the system has it. Its documentation calls the SHA256_ and SHA512_ functions deprecated;
// they are the only ones there whose state the caller owns, which hashing without the heap needs.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/modes.h>
#include <openssl/sha.h>
