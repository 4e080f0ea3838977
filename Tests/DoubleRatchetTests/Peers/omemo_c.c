// One OMEMO device made of libomemo-c, driven by lines: the commands and answers of omemo_python.py, without payloads.
// usage: omemo_c omemo2|axolotl
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <curve.h>
#include <key_helper.h>
#include <protocol.h>
#include <ratchet.h>
#include <session_builder.h>
#include <session_cipher.h>
#include <session_pre_key.h>
#include <signal_protocol.h>

enum { PRE_KEYS = 100, SIGNED_ID = 7, MAX_WORDS = 16, MAX_LINE = 1 << 18 };

static uint32_t version;
static signal_context *context;
static signal_protocol_store_context *store;
static ratchet_identity_key_pair *identity;
static session_signed_pre_key *signed_key;
static session_pre_key *pre_keys[PRE_KEYS];
static signal_buffer *session_bytes;
static signal_protocol_address address = {"peer", 4, 1};

static void check(int result, const char *what) {
    if (result < 0) {
        fprintf(stderr, "%s: %d\n", what, result);
        exit(1);
    }
}

// The cryptographic provider, over OpenSSL.

static int random_bytes(uint8_t *data, size_t length, void *user) {
    return RAND_bytes(data, (int)length) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_init(void **state, const uint8_t *key, size_t length, void *user) {
    HMAC_CTX *hmac = HMAC_CTX_new();
    *state = hmac;
    return hmac && HMAC_Init_ex(hmac, key, (int)length, EVP_sha256(), NULL) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_update(void *state, const uint8_t *data, size_t length, void *user) {
    return HMAC_Update(state, data, length) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int hmac_final(void *state, signal_buffer **output, void *user) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (HMAC_Final(state, digest, &length) != 1) return SG_ERR_UNKNOWN;
    *output = signal_buffer_create(digest, length);
    return *output ? 0 : SG_ERR_NOMEM;
}

static void hmac_cleanup(void *state, void *user) { HMAC_CTX_free(state); }

static int sha512_init(void **state, void *user) {
    *state = EVP_MD_CTX_new();
    return *state && EVP_DigestInit_ex(*state, EVP_sha512(), NULL) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int sha512_update(void *state, const uint8_t *data, size_t length, void *user) {
    return EVP_DigestUpdate(state, data, length) == 1 ? 0 : SG_ERR_UNKNOWN;
}

static int sha512_final(void *state, signal_buffer **output, void *user) {
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    if (EVP_DigestFinal_ex(state, digest, &length) != 1) return SG_ERR_UNKNOWN;
    *output = signal_buffer_create(digest, length);
    return *output ? 0 : SG_ERR_NOMEM;
}

static void sha512_cleanup(void *state, void *user) { EVP_MD_CTX_free(state); }

static int aes_cbc(signal_buffer **output, int cipher, const uint8_t *key, size_t key_length, const uint8_t *iv,
                   const uint8_t *input, size_t length, int encrypting) {
    if (cipher != SG_CIPHER_AES_CBC_PKCS5 || key_length != 32) return SG_ERR_UNKNOWN;
    uint8_t *buffer = malloc(length + 32);
    int first = 0, last = 0;
    EVP_CIPHER_CTX *aes = EVP_CIPHER_CTX_new();
    bool done = EVP_CipherInit_ex(aes, EVP_aes_256_cbc(), NULL, key, iv, encrypting) == 1
        && EVP_CipherUpdate(aes, buffer, &first, input, (int)length) == 1
        && EVP_CipherFinal_ex(aes, buffer + first, &last) == 1;
    EVP_CIPHER_CTX_free(aes);
    if (done) *output = signal_buffer_create(buffer, (size_t)(first + last));
    free(buffer);
    return done ? 0 : SG_ERR_UNKNOWN;
}

static int encrypt_func(signal_buffer **output, int cipher, const uint8_t *key, size_t key_length, const uint8_t *iv,
                        size_t iv_length, const uint8_t *input, size_t length, void *user) {
    return aes_cbc(output, cipher, key, key_length, iv, input, length, 1);
}

static int decrypt_func(signal_buffer **output, int cipher, const uint8_t *key, size_t key_length, const uint8_t *iv,
                        size_t iv_length, const uint8_t *input, size_t length, void *user) {
    return aes_cbc(output, cipher, key, key_length, iv, input, length, 0);
}

// The stores: one session, one identity, one signed prekey, a hundred one-time prekeys.

static int session_load(signal_buffer **record, signal_buffer **user_record, const signal_protocol_address *peer,
                        void *user) {
    if (!session_bytes) return 0;
    *record = signal_buffer_copy(session_bytes);
    return 1;
}

static int session_store(const signal_protocol_address *peer, uint8_t *record, size_t length, uint8_t *user_record,
                         size_t user_length, void *user) {
    signal_buffer_free(session_bytes);
    session_bytes = signal_buffer_create(record, length);
    return 0;
}

static int session_contains(const signal_protocol_address *peer, void *user) { return session_bytes ? 1 : 0; }

static int pre_key_load(signal_buffer **record, uint32_t id, void *user) {
    if (id < 1 || id > PRE_KEYS || !pre_keys[id - 1]) return SG_ERR_INVALID_KEY_ID;
    check(session_pre_key_serialize(record, pre_keys[id - 1]), "prekey");
    return SG_SUCCESS;
}

static int pre_key_contains(uint32_t id, void *user) { return id >= 1 && id <= PRE_KEYS && pre_keys[id - 1]; }

static int pre_key_remove(uint32_t id, void *user) {
    if (id >= 1 && id <= PRE_KEYS && pre_keys[id - 1]) {
        SIGNAL_UNREF(pre_keys[id - 1]);
        pre_keys[id - 1] = NULL;
    }
    return 0;
}

static int signed_load(signal_buffer **record, uint32_t id, void *user) {
    if (id != SIGNED_ID) return SG_ERR_INVALID_KEY_ID;
    check(session_signed_pre_key_serialize(record, signed_key), "signed prekey");
    return SG_SUCCESS;
}

static int signed_contains(uint32_t id, void *user) { return id == SIGNED_ID; }

static int identity_pair(signal_buffer **public_data, signal_buffer **private_data, void *user) {
    check(ec_public_key_serialize(public_data, ratchet_identity_key_pair_get_public(identity)), "identity");
    check(ec_private_key_serialize(private_data, ratchet_identity_key_pair_get_private(identity)), "identity");
    return 0;
}

static int registration_id(void *user, uint32_t *id) {
    *id = 1;
    return 0;
}

static int identity_save(const signal_protocol_address *peer, uint8_t *key, size_t length, void *user) { return 0; }

static int identity_trusted(const signal_protocol_address *peer, uint8_t *key, size_t length, void *user) { return 1; }

static void create_stores(void) {
    static const signal_protocol_session_store sessions = {
        .load_session_func = session_load, .store_session_func = session_store, .contains_session_func = session_contains};
    static const signal_protocol_pre_key_store keys = {
        .load_pre_key = pre_key_load, .contains_pre_key = pre_key_contains, .remove_pre_key = pre_key_remove};
    static const signal_protocol_signed_pre_key_store signed_keys = {
        .load_signed_pre_key = signed_load, .contains_signed_pre_key = signed_contains};
    static const signal_protocol_identity_key_store identities = {
        .get_identity_key_pair = identity_pair,
        .get_local_registration_id = registration_id,
        .save_identity = identity_save,
        .is_trusted_identity = identity_trusted};
    check(signal_protocol_store_context_create(&store, context), "store");
    check(signal_protocol_store_context_set_session_store(store, &sessions), "store");
    check(signal_protocol_store_context_set_pre_key_store(store, &keys), "store");
    check(signal_protocol_store_context_set_signed_pre_key_store(store, &signed_keys), "store");
    check(signal_protocol_store_context_set_identity_key_store(store, &identities), "store");
}

static void create_keys(void) {
    check(signal_protocol_key_helper_generate_identity_key_pair(&identity, context), "identity");
    check(signal_protocol_key_helper_generate_signed_pre_key(&signed_key, identity, SIGNED_ID, 0, context), "signed");
    signal_protocol_key_helper_pre_key_list_node *list = NULL;
    check(signal_protocol_key_helper_generate_pre_keys(&list, 1, PRE_KEYS, context), "prekeys");
    signal_protocol_key_helper_pre_key_list_node *node = list;
    for (int index = 0; index < PRE_KEYS && node; index++) {
        pre_keys[index] = signal_protocol_key_helper_key_list_element(node);
        SIGNAL_REF(pre_keys[index]);
        node = signal_protocol_key_helper_key_list_next(node);
    }
    signal_protocol_key_helper_key_list_free(list);
}

// Words of a line.

static signal_buffer *decoded(const char *word) {
    size_t length = strlen(word);
    if (strcmp(word, "-") == 0) return signal_buffer_create((const uint8_t *)"", 0);
    uint8_t *bytes = malloc(length);
    int count = EVP_DecodeBlock(bytes, (const uint8_t *)word, (int)length);
    check(count, "base64");
    count -= (word[length - 1] == '=') + (word[length - 2] == '=');
    signal_buffer *buffer = signal_buffer_create(bytes, (size_t)count);
    free(bytes);
    return buffer;
}

static void put(const signal_buffer *buffer) {
    size_t length = signal_buffer_len(buffer);
    uint8_t *text = malloc(4 * length / 3 + 8);
    EVP_EncodeBlock(text, signal_buffer_const_data(buffer), (int)length);
    printf(" %s", length ? (char *)text : "-");
    free(text);
}

static void put_key(const ec_public_key *key) {
    signal_buffer *bytes = NULL;
    if (version == 4) {
        bytes = ec_public_key_get_mont(key);
    } else {
        check(ec_public_key_serialize(&bytes, key), "key");
    }
    put(bytes);
    signal_buffer_free(bytes);
}

static int key_in(ec_public_key **key, const char *word, bool is_identity) {
    signal_buffer *bytes = decoded(word);
    int result = (is_identity ? curve_decode_point : curve_decode_point_mont)(
        key, signal_buffer_data(bytes), signal_buffer_len(bytes), context);
    signal_buffer_free(bytes);
    return result;
}

// The commands.

static session_cipher *cipher(void) {
    session_cipher *result = NULL;
    check(session_cipher_create(&result, store, &address, context), "cipher");
    session_cipher_set_version(result, version);
    return result;
}

static int bundle(void) {
    const ec_public_key *key = ratchet_identity_key_pair_get_public(identity);
    signal_buffer *edwards = version == 4 ? ec_public_key_get_ed(key) : NULL;
    if (edwards) put(edwards);
    else put_key(key);
    signal_buffer_free(edwards);
    printf(" %d", SIGNED_ID);
    put_key(ec_key_pair_get_public(session_signed_pre_key_get_key_pair(signed_key)));
    signal_buffer *signature = version == 4
        ? signal_buffer_create(session_signed_pre_key_get_signature_omemo(signed_key),
                               session_signed_pre_key_get_signature_omemo_len(signed_key))
        : signal_buffer_create(session_signed_pre_key_get_signature(signed_key),
                               session_signed_pre_key_get_signature_len(signed_key));
    put(signature);
    signal_buffer_free(signature);
    for (int index = 0; index < PRE_KEYS; index++) {
        if (!pre_keys[index]) continue;
        printf(" %u", session_pre_key_get_id(pre_keys[index]));
        put_key(ec_key_pair_get_public(session_pre_key_get_key_pair(pre_keys[index])));
    }
    return 0;
}

static int encrypt(const char *word) {
    signal_buffer *text = decoded(word);
    session_cipher *sealing = cipher();
    ciphertext_message *message = NULL;
    int result = session_cipher_encrypt(sealing, signal_buffer_data(text), signal_buffer_len(text), &message);
    if (result >= 0) {
        printf(" %d", ciphertext_message_get_type(message) == CIPHERTEXT_PREKEY_TYPE);
        put(ciphertext_message_get_serialized(message));
        SIGNAL_UNREF(message);
    }
    session_cipher_free(sealing);
    signal_buffer_free(text);
    return result;
}

static int initiate(char **words) {
    ec_public_key *key = NULL, *signed_public = NULL, *one_time = NULL;
    session_pre_key_bundle *peer = NULL;
    session_builder *builder = NULL;
    signal_buffer *signature = decoded(words[3]);
    int result = key_in(&key, words[0], true);
    if (result >= 0) result = key_in(&signed_public, words[2], false);
    if (result >= 0) result = key_in(&one_time, words[5], false);
    if (result >= 0) {
        result = session_pre_key_bundle_create(
            &peer, 1, 1, (uint32_t)strtoul(words[4], NULL, 10), one_time, (uint32_t)strtoul(words[1], NULL, 10),
            signed_public, signal_buffer_data(signature), signal_buffer_len(signature), key);
    }
    if (result >= 0) result = session_builder_create(&builder, store, &address, context);
    if (result >= 0) {
        session_builder_set_version(builder, version);
        result = session_builder_process_pre_key_bundle(builder, peer);
    }
    session_builder_free(builder);
    SIGNAL_UNREF(peer);
    SIGNAL_UNREF(key);
    SIGNAL_UNREF(signed_public);
    SIGNAL_UNREF(one_time);
    signal_buffer_free(signature);
    return result < 0 ? result : encrypt(words[6]);
}

static int decrypt(bool is_exchange, const char *word) {
    signal_buffer *bytes = decoded(word), *text = NULL;
    const uint8_t *data = signal_buffer_const_data(bytes);
    size_t length = signal_buffer_len(bytes);
    session_cipher *opening = cipher();
    int result;
    if (is_exchange) {
        pre_key_signal_message *message = NULL;
        result = version == 4 ? pre_key_signal_message_deserialize_omemo(&message, data, length, 1, context)
                              : pre_key_signal_message_deserialize(&message, data, length, context);
        if (result >= 0) result = session_cipher_decrypt_pre_key_signal_message(opening, message, NULL, &text);
        SIGNAL_UNREF(message);
    } else {
        signal_message *message = NULL;
        result = version == 4 ? signal_message_deserialize_omemo(&message, data, length, context)
                              : signal_message_deserialize(&message, data, length, context);
        if (result >= 0) result = session_cipher_decrypt_signal_message(opening, message, NULL, &text);
        SIGNAL_UNREF(message);
    }
    if (result >= 0) put(text);
    session_cipher_free(opening);
    signal_buffer_free(text);
    signal_buffer_free(bytes);
    return result;
}

int main(int count, char **arguments) {
    if (count != 2) return 64;
    version = strcmp(arguments[1], "omemo2") == 0 ? 4 : 3;
    static const signal_crypto_provider provider = {
        .random_func = random_bytes,
        .hmac_sha256_init_func = hmac_init,
        .hmac_sha256_update_func = hmac_update,
        .hmac_sha256_final_func = hmac_final,
        .hmac_sha256_cleanup_func = hmac_cleanup,
        .sha512_digest_init_func = sha512_init,
        .sha512_digest_update_func = sha512_update,
        .sha512_digest_final_func = sha512_final,
        .sha512_digest_cleanup_func = sha512_cleanup,
        .encrypt_func = encrypt_func,
        .decrypt_func = decrypt_func};
    check(signal_context_create(&context, NULL), "context");
    check(signal_context_set_crypto_provider(context, &provider), "provider");
    create_stores();
    create_keys();

    static char line[MAX_LINE];
    while (fgets(line, sizeof line, stdin)) {
        char *words[MAX_WORDS] = {NULL};
        int found = 0;
        for (char *word = strtok(line, " \n"); word && found < MAX_WORDS; word = strtok(NULL, " \n")) {
            words[found++] = word;
        }
        int result = SG_ERR_INVAL;
        if (found == 1 && strcmp(words[0], "bundle") == 0) result = bundle();
        if (found == 8 && strcmp(words[0], "initiate") == 0) result = initiate(words + 1);
        if (found == 2 && strcmp(words[0], "encrypt") == 0) result = encrypt(words[1]);
        if (found == 3 && strcmp(words[0], "decrypt") == 0) result = decrypt(words[1][0] == '1', words[2]);
        // The session is stored and loaded for every message, so a restart is nothing new.
        if (found == 1 && strcmp(words[0], "restart") == 0) result = printf(" ok");
        if (result < 0) printf("error %d", result);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
