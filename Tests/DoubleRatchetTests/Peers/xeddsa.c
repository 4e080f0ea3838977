// libxeddsa, driven by lines. Keys, messages and signatures are base64; every message has at most 1024 bytes.
//   keys PRIVATE                     -> MONTGOMERY EDWARDS
//   sign PRIVATE MESSAGE NONCE64     -> SIGNATURE     (XEdDSA: under the key whose sign is 0)
//   seed SEED MESSAGE                -> SIGNATURE     (Ed25519)
//   verify EDWARDS MESSAGE SIGNATURE -> 1 or 0
//   edwards MONTGOMERY SIGN          -> EDWARDS
//   montgomery EDWARDS               -> MONTGOMERY, or error
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Declared here because Debian's xeddsa.h includes a header that its package does not hold.
int xeddsa_init(void);
void ed25519_priv_sign(uint8_t *sig, const uint8_t *priv, const uint8_t *msg, uint32_t msg_size, const uint8_t *nonce);
void ed25519_seed_sign(uint8_t *sig, const uint8_t *seed, const uint8_t *msg, uint32_t msg_size);
int ed25519_verify(const uint8_t *sig, const uint8_t *pub, const uint8_t *msg, uint32_t msg_size);
void curve25519_pub_to_ed25519_pub(uint8_t *ed25519_pub, const uint8_t *curve25519_pub, bool set_sign_bit);
int ed25519_pub_to_curve25519_pub(uint8_t *curve25519_pub, const uint8_t *ed25519_pub);
void priv_to_curve25519_pub(uint8_t *curve25519_pub, const uint8_t *priv);
void priv_to_ed25519_pub(uint8_t *ed25519_pub, const uint8_t *priv);
void priv_force_sign(uint8_t *priv_out, const uint8_t *priv_in, bool set_sign_bit);

enum { MAX_WORDS = 5, MAX_BYTES = 1024 };

static int decode(const char *word, uint8_t *bytes) {
    size_t length = strlen(word);
    if (strcmp(word, "-") == 0) return 0;
    if (length > 4 * MAX_BYTES / 3) exit(1);
    int count = EVP_DecodeBlock(bytes, (const uint8_t *)word, (int)length);
    if (count < 0) exit(1);
    return count - (word[length - 1] == '=') - (word[length - 2] == '=');
}

static void put(const uint8_t *bytes, int length) {
    uint8_t text[128];
    EVP_EncodeBlock(text, bytes, length);
    printf("%s ", text);
}

int main(void) {
    if (xeddsa_init() < 0) return 1;
    static char line[16384];
    while (fgets(line, sizeof line, stdin)) {
        char *words[MAX_WORDS] = {NULL};
        int found = 0;
        for (char *word = strtok(line, " \n"); word && found < MAX_WORDS; word = strtok(NULL, " \n")) {
            words[found++] = word;
        }
        uint8_t arguments[MAX_WORDS][MAX_BYTES + 8] = {{0}};
        int lengths[MAX_WORDS] = {0};
        for (int index = 1; index < found; index++) {
            if (strlen(words[index]) > 1) lengths[index] = decode(words[index], arguments[index]);
        }
        uint8_t first[64] = {0}, second[64] = {0};
        if (found == 2 && strcmp(words[0], "keys") == 0) {
            priv_to_curve25519_pub(first, arguments[1]);
            priv_to_ed25519_pub(second, arguments[1]);
            put(first, 32);
            put(second, 32);
        } else if (found == 4 && strcmp(words[0], "sign") == 0) {
            uint8_t forced[32];
            priv_force_sign(forced, arguments[1], false);
            ed25519_priv_sign(first, forced, arguments[2], (uint32_t)lengths[2], arguments[3]);
            put(first, 64);
        } else if (found == 3 && strcmp(words[0], "seed") == 0) {
            ed25519_seed_sign(first, arguments[1], arguments[2], (uint32_t)lengths[2]);
            put(first, 64);
        } else if (found == 4 && strcmp(words[0], "verify") == 0) {
            printf("%d", ed25519_verify(arguments[3], arguments[1], arguments[2], (uint32_t)lengths[2]) == 0);
        } else if (found == 3 && strcmp(words[0], "edwards") == 0) {
            curve25519_pub_to_ed25519_pub(first, arguments[1], words[2][0] == '1');
            put(first, 32);
        } else if (found == 2 && strcmp(words[0], "montgomery") == 0) {
            if (ed25519_pub_to_curve25519_pub(first, arguments[1]) == 0) put(first, 32);
            else printf("error");
        } else {
            printf("error");
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
