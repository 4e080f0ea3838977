// One party of libsignal-protocol-c or libomemo-c with its keys and records, one of each kind, in memory.
#pragma once
#include <key_helper.h>
#include <session_pre_key.h>
#include <session_record.h>
#include <signal_protocol.h>
#include <stdlib.h>

typedef struct party {
    signal_buffer *session, *pre_key, *signed_pre_key, *sender_key;
    signal_buffer *public_key, *private_key;
    signal_protocol_store_context *store;
} party;

static void keep(signal_buffer **place, const uint8_t *bytes, size_t size) {
    signal_buffer_free(*place);
    *place = signal_buffer_create(bytes, size);
}

static int load(signal_buffer **record, const signal_buffer *kept) {
    if (!kept) return 0;
    *record = signal_buffer_copy(kept);
    return 1;
}

static int load_session(
    signal_buffer **record, signal_buffer **user_record, const signal_protocol_address *peer, void *self) {
    (void)user_record, (void)peer;
    return load(record, ((party *)self)->session);
}

static int store_session(
    const signal_protocol_address *peer, uint8_t *record, size_t size, uint8_t *user_record, size_t user_size,
    void *self) {
    (void)peer, (void)user_record, (void)user_size;
    keep(&((party *)self)->session, record, size);
    return 0;
}

static int contains_session(const signal_protocol_address *peer, void *self) {
    (void)peer;
    return ((party *)self)->session != NULL;
}

static int load_pre_key(signal_buffer **record, uint32_t id, void *self) {
    (void)id;
    return load(record, ((party *)self)->pre_key) ? SG_SUCCESS : SG_ERR_INVALID_KEY_ID;
}

static int contains_key(uint32_t id, void *self) {
    (void)id, (void)self;
    return 1;
}

// Each set-up begins with the same prekeys, so that making them is not measured.
static int remove_key(uint32_t id, void *self) {
    (void)id, (void)self;
    return 0;
}

static int load_signed_pre_key(signal_buffer **record, uint32_t id, void *self) {
    (void)id;
    return load(record, ((party *)self)->signed_pre_key) ? SG_SUCCESS : SG_ERR_INVALID_KEY_ID;
}

static int load_identity(signal_buffer **public_key, signal_buffer **private_key, void *self) {
    *public_key = signal_buffer_copy(((party *)self)->public_key);
    *private_key = signal_buffer_copy(((party *)self)->private_key);
    return 0;
}

static int load_registration(void *self, uint32_t *id) {
    (void)self;
    *id = 1;
    return 0;
}

static int save_identity(const signal_protocol_address *peer, uint8_t *key, size_t size, void *self) {
    (void)peer, (void)key, (void)size, (void)self;
    return 0;
}

static int trust_identity(const signal_protocol_address *peer, uint8_t *key, size_t size, void *self) {
    (void)peer, (void)key, (void)size, (void)self;
    return 1;
}

static int store_sender_key(
    const signal_protocol_sender_key_name *name, uint8_t *record, size_t size, uint8_t *user_record, size_t user_size,
    void *self) {
    (void)name, (void)user_record, (void)user_size;
    keep(&((party *)self)->sender_key, record, size);
    return 0;
}

static int load_sender_key(
    signal_buffer **record, signal_buffer **user_record, const signal_protocol_sender_key_name *name, void *self) {
    (void)user_record, (void)name;
    return load(record, ((party *)self)->sender_key);
}

static void nothing(void *self) { (void)self; }

static void make_party(party *self, signal_context *context) {
    signal_protocol_session_store sessions = {
        .load_session_func = load_session, .store_session_func = store_session,
        .contains_session_func = contains_session, .destroy_func = nothing, .user_data = self};
    signal_protocol_pre_key_store pre_keys = {
        .load_pre_key = load_pre_key, .contains_pre_key = contains_key, .remove_pre_key = remove_key,
        .destroy_func = nothing, .user_data = self};
    signal_protocol_signed_pre_key_store signed_pre_keys = {
        .load_signed_pre_key = load_signed_pre_key, .contains_signed_pre_key = contains_key,
        .remove_signed_pre_key = remove_key, .destroy_func = nothing, .user_data = self};
    signal_protocol_identity_key_store identities = {
        .get_identity_key_pair = load_identity, .get_local_registration_id = load_registration,
        .save_identity = save_identity, .is_trusted_identity = trust_identity, .destroy_func = nothing,
        .user_data = self};
    signal_protocol_sender_key_store sender_keys = {
        .store_sender_key = store_sender_key, .load_sender_key = load_sender_key, .destroy_func = nothing,
        .user_data = self};
    ratchet_identity_key_pair *identity = NULL;
    signal_protocol_store_context_create(&self->store, context);
    signal_protocol_store_context_set_session_store(self->store, &sessions);
    signal_protocol_store_context_set_pre_key_store(self->store, &pre_keys);
    signal_protocol_store_context_set_signed_pre_key_store(self->store, &signed_pre_keys);
    signal_protocol_store_context_set_identity_key_store(self->store, &identities);
    signal_protocol_store_context_set_sender_key_store(self->store, &sender_keys);
    signal_protocol_key_helper_generate_identity_key_pair(&identity, context);
    ec_public_key_serialize(&self->public_key, ratchet_identity_key_pair_get_public(identity));
    ec_private_key_serialize(&self->private_key, ratchet_identity_key_pair_get_private(identity));
    SIGNAL_UNREF(identity);
}
