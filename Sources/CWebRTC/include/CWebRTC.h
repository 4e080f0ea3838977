// A peer of WebRTC with one ordered, reliable data channel, on GStreamer's webrtcbin.
//
// Swift cannot call the variadic functions of GObject; this is all that it needs of them.
#ifndef CWEBRTC_H
#define CWEBRTC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#pragma clang assume_nonnull begin
#endif

/// A peer. Its functions may be called on any thread, and return at once.
typedef struct cwebrtc_peer cwebrtc_peer;

/// What a peer reports, on threads of GStreamer. None of them may wait.
typedef struct {
    /// Given to all of them.
    void *context;
    /// The own description is there, as SDP without candidates. Once.
    void (*described)(void *context, const char *sdp);
    /// A candidate of this device, as in an SDP line without `a=`. NULL: there will be no more.
    void (*candidate)(void *context, const char *_Nullable candidate);
    /// The channel carries messages. Once.
    void (*opened)(void *context);
    /// A message of the other side. Messages come one after the other.
    void (*message)(void *context, bool is_text, const uint8_t *_Nullable bytes, size_t count);
    /// Less than the threshold waits to be sent.
    void (*drained)(void *context);
    /// The connection has failed, or the other side has closed the channel. It may be called more than once.
    void (*ended)(void *context);
    /// The last call: no other one runs or follows.
    void (*released)(void *context);
} cwebrtc_events;

/// How a peer finds ways to the other side. Strings are copied.
typedef struct {
    /// `stun://HOST:PORT`, or NULL.
    const char *_Nullable stun;
    /// `turn://USER:PASSWORD@HOST:PORT`, coded as in a URL.
    const char *_Nonnull const *_Nullable turn;
    size_t turn_count;
    /// Whether only the relays of `turn` are used.
    bool relay_only;
    /// Numeric addresses of this device to use; with none all interfaces but loopback.
    const char *_Nonnull const *_Nullable addresses;
    size_t address_count;
    /// Bytes that may wait before ``drained`` is of interest.
    uint64_t low_threshold;
} cwebrtc_settings;

/// Makes a peer.
///
/// - Parameter offers: whether it makes the channel and the offer; then `described` follows.
/// - Returns: NULL if an element of GStreamer is missing or a setting is refused; then no event is called.
cwebrtc_peer *_Nullable cwebrtc_new(const cwebrtc_settings *settings, const cwebrtc_events *events, bool offers);

/// Takes the description of the other side. A peer that does not offer answers it: `described` follows.
///
/// - Returns: false if it is not SDP.
bool cwebrtc_set_remote(cwebrtc_peer *peer, const char *sdp, bool is_offer);

/// Takes a candidate of the other side, as in an SDP line without `a=`; after the description.
void cwebrtc_add_candidate(cwebrtc_peer *peer, const char *candidate);

/// Sends a message over the open channel. It is copied.
///
/// - Returns: false if the channel does not carry it.
bool cwebrtc_send(cwebrtc_peer *peer, bool is_text, const uint8_t *bytes, size_t count);

/// Bytes that wait to be sent.
uint64_t cwebrtc_buffered(cwebrtc_peer *peer);

/// Ends the peer and gives it back: the only function that is not called again. `released` follows on another thread.
void cwebrtc_free(cwebrtc_peer *peer);

#if defined(__clang__)
#pragma clang assume_nonnull end
#endif

#endif
