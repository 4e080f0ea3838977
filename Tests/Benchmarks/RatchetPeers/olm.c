// libolm: Olm sessions, and Megolm for groups. Its messages are base64 text.
#include "figures.h"
#include <olm/olm.h>
#include <openssl/rand.h>
#include <stdint.h>
#include <string.h>

static uint8_t text[text_size];
static uint8_t noise[4096];

static const uint8_t *fresh(size_t size) {
    check(size <= sizeof noise && RAND_bytes(noise, (int)size) == 1, "randomness");
    return noise;
}

static OlmAccount *make_account(void) {
    OlmAccount *account = olm_account(malloc(olm_account_size()));
    size_t size = olm_create_account_random_length(account);
    check(olm_create_account(account, (void *)fresh(size), size) != olm_error(), "an account");
    return account;
}

// The value of the first member of `json` behind `label` whose value has 43 characters, which is how a key looks.
static void find_key(const char *json, const char *label, char key[44]) {
    const char *place = strstr(json, label);
    check(place != NULL, label);
    for (place += strlen(label); (place = strchr(place, '"')) != NULL; place++) {
        if (strchr(place + 1, '"') - place != 44) continue;
        memcpy(key, place + 1, 43);
        key[43] = 0;
        return;
    }
    check(0, label);
}

typedef struct message { size_t type, size; char bytes[1024]; } message;

static void seal(OlmSession *session, message *sealed) {
    sealed->type = olm_encrypt_message_type(session);
    size_t size = olm_encrypt_random_length(session);
    const uint8_t *random = size ? fresh(size) : NULL;
    sealed->size = olm_encrypt(session, text, sizeof text, (void *)random, size, sealed->bytes, sizeof sealed->bytes);
    check(sealed->size != olm_error(), "encryption");
}

// Opens in place, as the library does.
static void open(OlmSession *session, message *sealed) {
    char output[1024];
    check(
        olm_decrypt(session, sealed->type, sealed->bytes, sealed->size, output, sizeof output) == text_size,
        "a message");
}

static void measure_group(void) {
    static message sealed[messages];
    OlmOutboundGroupSession *sender = olm_outbound_group_session(malloc(olm_outbound_group_session_size()));
    OlmInboundGroupSession *receiver = olm_inbound_group_session(malloc(olm_inbound_group_session_size()));
    size_t size = olm_init_outbound_group_session_random_length(sender);
    uint8_t key[1024], output[1024];
    uint32_t index;
    check(olm_init_outbound_group_session(sender, (void *)fresh(size), size) != olm_error(), "a group session");
    size = olm_outbound_group_session_key(sender, key, sizeof key);
    check(olm_init_inbound_group_session(receiver, key, size) != olm_error(), "a group session");
    begin();
    for (int i = 0; i < turns; i++) {
        sealed[i].size = olm_group_encrypt(
            sender, text, sizeof text, (uint8_t *)sealed[i].bytes, sizeof sealed[i].bytes);
    }
    end("group-encrypt", turns);
    printf("group-bytes %zu\n", sealed[0].size);
    begin();
    for (int i = 0; i < turns; i++) {
        check(
            olm_group_decrypt(
                receiver, (uint8_t *)sealed[i].bytes, sealed[i].size, output, sizeof output, &index) == text_size,
            "group decryption");
    }
    end("group-decrypt", turns);
}

int main(void) {
    OlmAccount *alice = make_account(), *bob = make_account();
    char identity[44], one_time[44], keys[4096], copy[1024];
    check(olm_account_identity_keys(bob, keys, sizeof keys) != olm_error(), "the identity");
    find_key(keys, "curve25519", identity);
    OlmSession *ours = olm_session(malloc(olm_session_size())), *theirs = olm_session(malloc(olm_session_size()));
    static message sealed[messages];

    size_t size = olm_account_generate_one_time_keys_random_length(bob, 1);
    olm_account_generate_one_time_keys(bob, 1, (void *)fresh(size), size);
    memset(keys, 0, sizeof keys);
    check(olm_account_one_time_keys(bob, keys, sizeof keys) != olm_error(), "one-time keys");
    find_key(keys, "{\"", one_time);

    begin();
    for (int i = 0; i < setups; i++) {
        size = olm_create_outbound_session_random_length(ours);
        check(
            olm_create_outbound_session(ours, alice, identity, 43, one_time, 43, (void *)fresh(size), size)
                != olm_error(),
            "an outbound session");
        seal(ours, &sealed[0]);
        memcpy(copy, sealed[0].bytes, sealed[0].size);
        check(olm_create_inbound_session(theirs, bob, copy, sealed[0].size) != olm_error(), "an inbound session");
        open(theirs, &sealed[0]);
    }
    end("setup", setups);

    seal(theirs, &sealed[0]);
    open(ours, &sealed[0]);
    begin();
    for (int i = 0; i < turns; i++) {
        seal(ours, &sealed[0]);
        open(theirs, &sealed[0]);
        seal(theirs, &sealed[0]);
        open(ours, &sealed[0]);
    }
    end("ping-pong", 2 * turns);

    begin();
    for (int i = 0; i < messages; i++) seal(ours, &sealed[i]);
    end("encrypt", messages);
    printf("message-bytes %zu\n", sealed[messages / 2].size);
    begin();
    for (int i = 0; i < messages; i++) open(theirs, &sealed[i]);
    end("decrypt", messages);
    printf("state-bytes %zu\n", olm_pickle_session_length(theirs));
    measure_group();
    return 0;
}
