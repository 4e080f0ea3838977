// libsignal-protocol-c, or with OMEMO defined libomemo-c in its profile `eu.siacs.conversations.axolotl`.
#include "figures.h"
#include "signal_crypto.h"
#include "signal_store.h"
#include <curve.h>
#include <protocol.h>
#include <session_builder.h>
#include <session_cipher.h>
#ifndef OMEMO
#include <group_cipher.h>
#include <group_session_builder.h>
#endif

static signal_context *context;
static const signal_protocol_address address = {"peer", 4, 1};
static uint8_t text[text_size];

static signal_buffer *seal(session_cipher *cipher) {
    ciphertext_message *message = NULL;
    check(session_cipher_encrypt(cipher, text, sizeof text, &message) == 0, "encryption");
    signal_buffer *bytes = signal_buffer_copy(ciphertext_message_get_serialized(message));
    SIGNAL_UNREF(message);
    return bytes;
}

static void open_first(session_cipher *cipher, signal_buffer *bytes) {
    pre_key_signal_message *message = NULL;
    signal_buffer *plaintext = NULL;
    pre_key_signal_message_deserialize(&message, signal_buffer_data(bytes), signal_buffer_len(bytes), context);
    check(session_cipher_decrypt_pre_key_signal_message(cipher, message, NULL, &plaintext) == 0, "the first message");
    signal_buffer_free(plaintext);
    signal_buffer_free(bytes);
    SIGNAL_UNREF(message);
}

static void open_next(session_cipher *cipher, signal_buffer *bytes) {
    signal_message *message = NULL;
    signal_buffer *plaintext = NULL;
    signal_message_deserialize(&message, signal_buffer_data(bytes), signal_buffer_len(bytes), context);
    check(session_cipher_decrypt_signal_message(cipher, message, NULL, &plaintext) == 0, "a message");
    check(signal_buffer_len(plaintext) == sizeof text, "the plaintext");
    signal_buffer_free(plaintext);
    signal_buffer_free(bytes);
    SIGNAL_UNREF(message);
}

static session_pre_key_bundle *make_bundle(party *owner) {
    session_signed_pre_key *signed_pre_key = NULL;
    signal_protocol_key_helper_pre_key_list_node *list = NULL;
    ratchet_identity_key_pair *identity = NULL;
    ec_public_key *public_key = NULL;
    ec_private_key *private_key = NULL;
    curve_decode_point(
        &public_key, signal_buffer_data(owner->public_key), signal_buffer_len(owner->public_key), context);
    curve_decode_private_point(
        &private_key, signal_buffer_data(owner->private_key), signal_buffer_len(owner->private_key), context);
    ratchet_identity_key_pair_create(&identity, public_key, private_key);
    check(signal_protocol_key_helper_generate_signed_pre_key(&signed_pre_key, identity, 1, 1, context) == 0, "a key");
    check(signal_protocol_key_helper_generate_pre_keys(&list, 1, 1, context) == 0, "a key");
    session_pre_key *pre_key = signal_protocol_key_helper_key_list_element(list);
    session_signed_pre_key_serialize(&owner->signed_pre_key, signed_pre_key);
    session_pre_key_serialize(&owner->pre_key, pre_key);
    session_pre_key_bundle *bundle = NULL;
    session_pre_key_bundle_create(
        &bundle, 1, 1, session_pre_key_get_id(pre_key), ec_key_pair_get_public(session_pre_key_get_key_pair(pre_key)), 1,
        ec_key_pair_get_public(session_signed_pre_key_get_key_pair(signed_pre_key)),
        session_signed_pre_key_get_signature(signed_pre_key),
        session_signed_pre_key_get_signature_len(signed_pre_key), public_key);
    return bundle;
}

static void forget(party *self) {
    signal_buffer_free(self->session);
    self->session = NULL;
}

#ifndef OMEMO
static void measure_group(party *alice, party *bob) {
    const signal_protocol_sender_key_name name = {"group", 5, {"alice", 5, 1}};
    group_session_builder *builder = NULL, *reader = NULL;
    sender_key_distribution_message *distribution = NULL;
    group_cipher *sender = NULL, *receiver = NULL;
    static signal_buffer *sealed[messages];
    group_session_builder_create(&builder, alice->store, context);
    group_session_builder_create(&reader, bob->store, context);
    check(group_session_builder_create_session(builder, &distribution, &name) == 0, "a sender key");
    check(group_session_builder_process_session(reader, &name, distribution) == 0, "a distribution");
    group_cipher_create(&sender, alice->store, &name, context);
    group_cipher_create(&receiver, bob->store, &name, context);
    begin();
    for (int i = 0; i < turns; i++) {
        ciphertext_message *message = NULL;
        check(group_cipher_encrypt(sender, text, sizeof text, &message) == 0, "group encryption");
        sealed[i] = signal_buffer_copy(ciphertext_message_get_serialized(message));
        SIGNAL_UNREF(message);
    }
    end("group-encrypt", turns);
    printf("group-bytes %zu\n", signal_buffer_len(sealed[0]));
    begin();
    for (int i = 0; i < turns; i++) {
        sender_key_message *message = NULL;
        signal_buffer *plaintext = NULL;
        sender_key_message_deserialize(
            &message, signal_buffer_data(sealed[i]), signal_buffer_len(sealed[i]), context);
        check(group_cipher_decrypt(receiver, message, NULL, &plaintext) == 0, "group decryption");
        signal_buffer_free(plaintext);
        SIGNAL_UNREF(message);
    }
    end("group-decrypt", turns);
}
#endif

int main(void) {
    context = make_context();
    static party alice, bob;
    make_party(&alice, context);
    make_party(&bob, context);
    session_pre_key_bundle *bundle = make_bundle(&bob);
    session_cipher *ours = NULL, *theirs = NULL;
    session_builder *builder = NULL;
    session_builder_create(&builder, alice.store, &address, context);
    session_cipher_create(&ours, alice.store, &address, context);
    session_cipher_create(&theirs, bob.store, &address, context);

    begin();
    for (int i = 0; i < setups; i++) {
        forget(&alice);
        forget(&bob);
        check(session_builder_process_pre_key_bundle(builder, bundle) == 0, "the bundle");
        open_first(theirs, seal(ours));
    }
    end("setup", setups);

    open_next(ours, seal(theirs));
    begin();
    for (int i = 0; i < turns; i++) {
        open_next(theirs, seal(ours));
        open_next(ours, seal(theirs));
    }
    end("ping-pong", 2 * turns);

    static signal_buffer *sealed[messages];
    begin();
    for (int i = 0; i < messages; i++) sealed[i] = seal(ours);
    end("encrypt", messages);
    printf("message-bytes %zu\n", signal_buffer_len(sealed[messages / 2]));
    begin();
    for (int i = 0; i < messages; i++) open_next(theirs, sealed[i]);
    end("decrypt", messages);
    printf("state-bytes %zu\n", signal_buffer_len(bob.session));
#ifndef OMEMO
    measure_group(&alice, &bob);
#endif
    return 0;
}
