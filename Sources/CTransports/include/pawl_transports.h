// The C interface between Swift and transports in other languages, version 1.
//
// Objects. An object is a pointer to its state and a pointer to its table of functions. A table begins with the version
// of the interface and with its own size in bytes. A caller refuses a table of another version, and one that is shorter
// than the functions that it calls; later functions of the same version are added at the end. `retain` and `release`
// count references; the object is destroyed with its last reference. The caller of a function holds a reference to the
// object until the function has returned and, if it started an operation, until that operation is done.
//
// Bytes. `pawl_bytes` is borrowed: valid until the call returns, and the callee copies what it keeps. `pawl_buffer` is
// owned: the receiver calls its `free` exactly once, so both sides may have allocators of their own. A pointer may
// be NULL if the count is 0. Text is UTF-8 with a count; it may contain NUL.
//
// Operations. A function that takes a `pawl_completion` starts an operation. `done` is called exactly once, on any
// thread, and never on the stack of the call that started the operation. It takes the buffers of the outcome. `cancel`
// asks the operation to end early; `done` is still called once, with the result or with PAWL_CANCELLED, perhaps before
// `cancel` returns. `release` gives the handle back, once, after `done`.
//
// Errors. Functions that return `bool` fill either `value` (true) or `error` (false). A code and a reason are separate.
// No function lets a panic or an exception of its language out: it reports PAWL_PANIC.
//
// Threads. Every function may be called on any thread, and several at the same time.

#ifndef PAWL_TRANSPORTS_H
#define PAWL_TRANSPORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// The version of this interface. A table with another one is refused.
#define PAWL_TRANSPORTS_ABI 1

// Codes of outcomes and errors. Those from PAWL_CUSTOM on belong to transports and services.
#define PAWL_OK 0
#define PAWL_PANIC 1
#define PAWL_CANCELLED 2
#define PAWL_CLOSED 3
#define PAWL_UNAVAILABLE 4
#define PAWL_TOO_LARGE 5
#define PAWL_BUSY 6
#define PAWL_TIMED_OUT 7
#define PAWL_SERIALIZATION 8
#define PAWL_INCOMPATIBLE 9
#define PAWL_UNKNOWN_TRANSPORT 10
#define PAWL_WEIRD 11
#define PAWL_CUSTOM 1000

/// Borrowed bytes.
typedef struct pawl_bytes {
    const uint8_t *data;
    size_t count;
} pawl_bytes;

/// Owned bytes with the function that frees them. `free` may be NULL if there is nothing to free.
typedef struct pawl_buffer {
    const uint8_t *data;
    size_t count;
    void *owner;
    void (*free)(void *owner, const uint8_t *data, size_t count);
} pawl_buffer;

/// Why something failed.
typedef struct pawl_error {
    int32_t code;
    pawl_buffer reason;
} pawl_error;

/// The end of an operation: PAWL_OK and a payload, or another code and a reason.
typedef struct pawl_outcome {
    int32_t code;
    pawl_buffer payload;
    pawl_buffer reason;
} pawl_outcome;

/// What an operation calls when it ends.
typedef struct pawl_completion {
    void *context;
    void (*done)(void *context, pawl_outcome *outcome);
} pawl_completion;

/// An operation under way.
typedef struct pawl_operation {
    void *object;
    void (*cancel)(void *object);
    void (*release)(void *object);
} pawl_operation;

/// The head of every table.
typedef struct pawl_table {
    uint32_t abi;
    uint32_t size;
    void (*retain)(void *object);
    void (*release)(void *object);
} pawl_table;

/// A connection of a client.
typedef struct pawl_client_connection_table {
    pawl_table table;
    /// Sends a request. The payload of the outcome is empty.
    pawl_operation (*send)(void *object, pawl_bytes request, pawl_completion completion);
    /// Receives the reply to the oldest request that has no receiver. If the operation is cancelled, that reply is
    /// dropped when it comes: no later receiver gets it.
    pawl_operation (*receive)(void *object, pawl_completion completion);
} pawl_client_connection_table;

typedef struct pawl_client_connection {
    void *object;
    const pawl_client_connection_table *table;
} pawl_client_connection;

/// A transport of a client.
typedef struct pawl_client_transport_table {
    pawl_table table;
    bool (*id)(void *object, pawl_buffer *value, pawl_error *error);
    /// PAWL_OK: ready. PAWL_UNAVAILABLE: not usable now, the reason is for people. Other codes: errors.
    pawl_operation (*status)(void *object, pawl_bytes proto, pawl_completion completion);
    bool (*connect)(void *object, pawl_bytes proto, pawl_client_connection *value, pawl_error *error);
} pawl_client_transport_table;

typedef struct pawl_client_transport {
    void *object;
    const pawl_client_transport_table *table;
} pawl_client_transport;

/// The processor that a service gives to its transports.
typedef struct pawl_processor_table {
    pawl_table table;
    bool (*supports)(void *object, pawl_bytes proto);
    /// Processes one request. The payload of the outcome is the reply.
    pawl_operation (*process)(void *object, pawl_bytes request, pawl_completion completion);
} pawl_processor_table;

typedef struct pawl_processor {
    void *object;
    const pawl_processor_table *table;
} pawl_processor;

/// A service transport that listens. Its last `release` stops it: `process` is not called after that returned.
typedef struct pawl_service_bound_table {
    pawl_table table;
    /// Done when the transport listens, or with the reason why it does not.
    pawl_operation (*ready)(void *object, pawl_completion completion);
    /// Accepts no more requests, answers those under way, and stops.
    pawl_operation (*close)(void *object, pawl_completion completion);
} pawl_service_bound_table;

typedef struct pawl_service_bound {
    void *object;
    const pawl_service_bound_table *table;
} pawl_service_bound;

/// A transport of a service.
typedef struct pawl_service_transport_table {
    pawl_table table;
    /// Starts listening. Takes the reference to the processor, also if it fails.
    bool (*bind)(void *object, pawl_processor processor, pawl_service_bound *value, pawl_error *error);
} pawl_service_transport_table;

typedef struct pawl_service_transport {
    void *object;
    const pawl_service_transport_table *table;
} pawl_service_transport;

// What a library exports that is loaded at run time.

/// The version of the interface that the library was built for.
typedef uint32_t (*pawl_transports_abi_function)(void);
/// Named `pawl_client_transport_open`.
typedef bool (*pawl_client_transport_open_function)(
    pawl_bytes configuration, pawl_client_transport *value, pawl_error *error);
/// Named `pawl_service_transport_open`.
typedef bool (*pawl_service_transport_open_function)(
    pawl_bytes configuration, pawl_service_transport *value, pawl_error *error);

#ifdef __cplusplus
}
#endif

#endif
