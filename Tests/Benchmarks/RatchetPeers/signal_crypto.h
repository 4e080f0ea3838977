// The callbacks of libsignal-protocol-c and libomemo-c over libcrypto, with algorithms fetched once.
#pragma once
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <signal_protocol.h>

static EVP_MD *sha256_md, *sha512_md;
static EVP_CIPHER *cbc, *ctr;

static int random_bytes(uint8_t *data, size_t size, void *user) {
    (void)user;
    return RAND_bytes(data, (int)size) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_init(void **context, const uint8_t *key, size_t size, void *user) {
    (void)user;
    *context = HMAC_CTX_new();
    return HMAC_Init_ex(*context, key, (int)size, sha256_md, NULL) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_update(void *context, const uint8_t *data, size_t size, void *user) {
    (void)user;
    return HMAC_Update(context, data, size) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_final(void *context, signal_buffer **output, void *user) {
    (void)user;
    uint8_t code[32];
    unsigned int size = sizeof code;
    if (HMAC_Final(context, code, &size) != 1) return SG_ERR_UNKNOWN;
    *output = signal_buffer_create(code, size);
    return 0;
}

static void hmac_cleanup(void *context, void *user) {
    (void)user;
    HMAC_CTX_free(context);
}

static int sha512_init(void **context, void *user) {
    (void)user;
    *context = EVP_MD_CTX_new();
    return EVP_DigestInit_ex2(*context, sha512_md, NULL) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int sha512_update(void *context, const uint8_t *data, size_t size, void *user) {
    (void)user;
    return EVP_DigestUpdate(context, data, size) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int sha512_final(void *context, signal_buffer **output, void *user) {
    (void)user;
    uint8_t hash[64];
    unsigned int size = sizeof hash;
    if (EVP_DigestFinal_ex(context, hash, &size) != 1) return SG_ERR_UNKNOWN;
    *output = signal_buffer_create(hash, size);
    return EVP_DigestInit_ex2(context, sha512_md, NULL) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static void sha512_cleanup(void *context, void *user) {
    (void)user;
    EVP_MD_CTX_free(context);
}

static int run_cipher(
    signal_buffer **output, int cipher, const uint8_t *key, const uint8_t *iv, const uint8_t *data, size_t size,
    int encrypts) {
    static EVP_CIPHER_CTX *context;
    if (!context) context = EVP_CIPHER_CTX_new();
    int body = 0, tail = 0;
    const EVP_CIPHER *chosen = cipher == SG_CIPHER_AES_CBC_PKCS5 ? cbc : ctr;
    signal_buffer *result = signal_buffer_alloc(size + 16);
    uint8_t *bytes = signal_buffer_data(result);
    if (EVP_CipherInit_ex(context, chosen, NULL, key, iv, encrypts) != 1
        || EVP_CipherUpdate(context, bytes, &body, data, (int)size) != 1
        || EVP_CipherFinal_ex(context, bytes + body, &tail) != 1) {
        signal_buffer_free(result);
        return SG_ERR_UNKNOWN;
    }
    *output = signal_buffer_create(bytes, (size_t)(body + tail));
    signal_buffer_free(result);
    return 0;
}

static int encrypt(
    signal_buffer **output, int cipher, const uint8_t *key, size_t key_size, const uint8_t *iv, size_t iv_size,
    const uint8_t *data, size_t size, void *user) {
    (void)user, (void)key_size, (void)iv_size;
    return run_cipher(output, cipher, key, iv, data, size, 1);
}

static int decrypt(
    signal_buffer **output, int cipher, const uint8_t *key, size_t key_size, const uint8_t *iv, size_t iv_size,
    const uint8_t *data, size_t size, void *user) {
    (void)user, (void)key_size, (void)iv_size;
    return run_cipher(output, cipher, key, iv, data, size, 0);
}

static signal_context *make_context(void) {
    sha256_md = EVP_MD_fetch(NULL, "SHA256", NULL);
    sha512_md = EVP_MD_fetch(NULL, "SHA512", NULL);
    cbc = EVP_CIPHER_fetch(NULL, "AES-256-CBC", NULL);
    ctr = EVP_CIPHER_fetch(NULL, "AES-256-CTR", NULL);
    signal_crypto_provider provider = {
        .random_func = random_bytes,
        .hmac_sha256_init_func = hmac_init,
        .hmac_sha256_update_func = hmac_update,
        .hmac_sha256_final_func = hmac_final,
        .hmac_sha256_cleanup_func = hmac_cleanup,
        .sha512_digest_init_func = sha512_init,
        .sha512_digest_update_func = sha512_update,
        .sha512_digest_final_func = sha512_final,
        .sha512_digest_cleanup_func = sha512_cleanup,
        .encrypt_func = encrypt,
        .decrypt_func = decrypt,
    };
    signal_context *context = NULL;
    if (signal_context_create(&context, NULL) != 0 || signal_context_set_crypto_provider(context, &provider) != 0) {
        abort();
    }
    return context;
}
