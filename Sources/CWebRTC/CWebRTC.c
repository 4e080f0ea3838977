#include "CWebRTC.h"

// Without the trait WebRTC there is nothing to compile.
#ifdef PAWL_WEBRTC

#define GST_USE_UNSTABLE_API
#include <gst/gst.h>
#include <gst/sdp/sdp.h>
#include <gst/webrtc/webrtc.h>

// A peer counts those that may still use it: its owner, the handlers of signals, replies that are awaited, and the thread
// that stops the pipeline. The last one ends it.
struct cwebrtc_peer {
    GMutex lock;
    cwebrtc_events events;
    // After cwebrtc_free no event but `released` is called.
    gint is_freed;
    GstElement *pipeline;
    GstElement *bin;
    // Under the lock. Set once.
    GstWebRTCDataChannel *channel;
    gboolean has_opened;
};

static void clear_peer(gpointer data) {
    cwebrtc_peer *peer = data;
    if (peer->channel) g_object_unref(peer->channel);
    if (peer->pipeline) gst_object_unref(peer->pipeline);
    g_mutex_clear(&peer->lock);
    if (peer->events.released) peer->events.released(peer->events.context);
}

static void unref_peer(gpointer peer) { g_atomic_rc_box_release_full(peer, clear_peer); }

static void unref_closure(gpointer peer, GClosure *closure) {
    (void)closure;
    unref_peer(peer);
}

static gulong connect_signal(cwebrtc_peer *peer, gpointer object, const char *name, GCallback handler) {
    return g_signal_connect_data(object, name, handler, g_atomic_rc_box_acquire(peer), unref_closure, 0);
}

static gboolean is_freed(cwebrtc_peer *peer) { return g_atomic_int_get(&peer->is_freed); }

static void report_end(cwebrtc_peer *peer) {
    if (!is_freed(peer)) peer->events.ended(peer->events.context);
}

// MARK: The channel

static void channel_open(GstWebRTCDataChannel *channel, cwebrtc_peer *peer) {
    (void)channel;
    g_mutex_lock(&peer->lock);
    gboolean is_first = !peer->has_opened;
    peer->has_opened = TRUE;
    g_mutex_unlock(&peer->lock);
    if (is_first && !is_freed(peer)) peer->events.opened(peer->events.context);
}

static void channel_data(GstWebRTCDataChannel *channel, GBytes *data, cwebrtc_peer *peer) {
    (void)channel;
    gsize count = 0;
    const guint8 *bytes = data ? g_bytes_get_data(data, &count) : NULL;
    if (!is_freed(peer)) peer->events.message(peer->events.context, false, bytes, count);
}

static void channel_text(GstWebRTCDataChannel *channel, const gchar *text, cwebrtc_peer *peer) {
    (void)channel;
    if (is_freed(peer)) return;
    peer->events.message(peer->events.context, true, (const uint8_t *)text, text ? strlen(text) : 0);
}

static void channel_low(GstWebRTCDataChannel *channel, cwebrtc_peer *peer) {
    (void)channel;
    if (!is_freed(peer)) peer->events.drained(peer->events.context);
}

static void channel_end(GstWebRTCDataChannel *channel, cwebrtc_peer *peer) {
    (void)channel;
    report_end(peer);
}

static void channel_error(GstWebRTCDataChannel *channel, GError *error, cwebrtc_peer *peer) {
    (void)error;
    channel_end(channel, peer);
}

// Uses a channel; false if there is one.
static gboolean use_channel(cwebrtc_peer *peer, GstWebRTCDataChannel *channel) {
    g_mutex_lock(&peer->lock);
    gboolean is_first = !peer->channel;
    if (is_first) peer->channel = g_object_ref(channel);
    g_mutex_unlock(&peer->lock);
    if (!is_first) return FALSE;
    connect_signal(peer, channel, "on-open", G_CALLBACK(channel_open));
    connect_signal(peer, channel, "on-message-data", G_CALLBACK(channel_data));
    connect_signal(peer, channel, "on-message-string", G_CALLBACK(channel_text));
    connect_signal(peer, channel, "on-buffered-amount-low", G_CALLBACK(channel_low));
    connect_signal(peer, channel, "on-close", G_CALLBACK(channel_end));
    connect_signal(peer, channel, "on-error", G_CALLBACK(channel_error));
    return TRUE;
}

static void set_threshold(GstWebRTCDataChannel *channel, guint64 threshold) {
    g_object_set(channel, "buffered-amount-low-threshold", threshold, NULL);
}

static void channel_came(GstElement *bin, GstWebRTCDataChannel *channel, cwebrtc_peer *peer) {
    (void)bin;
    if (is_freed(peer)) return;
    gboolean is_ordered = FALSE;
    gint lifetime = -1, retransmits = -1;
    GstWebRTCDataChannelState state = GST_WEBRTC_DATA_CHANNEL_STATE_CONNECTING;
    g_object_get(
        channel, "ordered", &is_ordered, "max-packet-lifetime", &lifetime, "max-retransmits", &retransmits, NULL);
    // A second channel, or one that may lose messages, is none of ours.
    if (!is_ordered || lifetime != -1 || retransmits != -1 || !use_channel(peer, channel)) return report_end(peer);
    set_threshold(channel, GPOINTER_TO_SIZE(g_object_get_data(G_OBJECT(bin), "cwebrtc-threshold")));
    // It may be open before its handlers are there.
    g_object_get(channel, "ready-state", &state, NULL);
    if (state == GST_WEBRTC_DATA_CHANNEL_STATE_OPEN) channel_open(channel, peer);
}

// MARK: Descriptions

static void report_description(cwebrtc_peer *peer) {
    GstWebRTCSessionDescription *own = NULL;
    g_object_get(peer->bin, "local-description", &own, NULL);
    gchar *text = own ? gst_sdp_message_as_text(own->sdp) : NULL;
    if (own) gst_webrtc_session_description_free(own);
    if (text && !is_freed(peer)) peer->events.described(peer->events.context, text);
    if (!text) report_end(peer);
    g_free(text);
}

static void local_is_set(GstPromise *promise, gpointer data) {
    cwebrtc_peer *peer = data;
    const GstStructure *reply = gst_promise_get_reply(promise);
    gboolean has_failed = gst_promise_wait(promise) != GST_PROMISE_RESULT_REPLIED
        || (reply && gst_structure_has_field(reply, "error"));
    if (has_failed) report_end(peer); else report_description(peer);
    gst_promise_unref(promise);
}

static void is_created(GstPromise *promise, const char *field, cwebrtc_peer *peer) {
    GstWebRTCSessionDescription *own = NULL;
    if (gst_promise_wait(promise) == GST_PROMISE_RESULT_REPLIED) {
        const GstStructure *reply = gst_promise_get_reply(promise);
        if (reply) gst_structure_get(reply, field, GST_TYPE_WEBRTC_SESSION_DESCRIPTION, &own, NULL);
    }
    gst_promise_unref(promise);
    if (!own) return report_end(peer);
    GstPromise *next = gst_promise_new_with_change_func(local_is_set, g_atomic_rc_box_acquire(peer), unref_peer);
    g_signal_emit_by_name(peer->bin, "set-local-description", own, next);
    gst_webrtc_session_description_free(own);
}

static void offer_is_created(GstPromise *promise, gpointer peer) { is_created(promise, "offer", peer); }

static void answer_is_created(GstPromise *promise, gpointer peer) { is_created(promise, "answer", peer); }

static void offer_is_set(GstPromise *promise, gpointer data) {
    cwebrtc_peer *peer = data;
    const GstStructure *reply =
        gst_promise_wait(promise) == GST_PROMISE_RESULT_REPLIED ? gst_promise_get_reply(promise) : NULL;
    gboolean has_failed = reply && gst_structure_has_field(reply, "error");
    gst_promise_unref(promise);
    if (has_failed) return report_end(peer);
    GstPromise *next = gst_promise_new_with_change_func(answer_is_created, g_atomic_rc_box_acquire(peer), unref_peer);
    g_signal_emit_by_name(peer->bin, "create-answer", NULL, next);
}

static void answer_is_set(GstPromise *promise, gpointer data) {
    const GstStructure *reply =
        gst_promise_wait(promise) == GST_PROMISE_RESULT_REPLIED ? gst_promise_get_reply(promise) : NULL;
    gboolean has_failed = reply && gst_structure_has_field(reply, "error");
    gst_promise_unref(promise);
    if (has_failed) report_end(data);
}

bool cwebrtc_set_remote(cwebrtc_peer *peer, const char *sdp, bool is_offer) {
    GstSDPMessage *message = NULL;
    if (gst_sdp_message_new_from_text(sdp, &message) != GST_SDP_OK) return false;
    GstWebRTCSessionDescription *remote = gst_webrtc_session_description_new(
        is_offer ? GST_WEBRTC_SDP_TYPE_OFFER : GST_WEBRTC_SDP_TYPE_ANSWER, message);
    GstPromise *next = gst_promise_new_with_change_func(
        is_offer ? offer_is_set : answer_is_set, g_atomic_rc_box_acquire(peer), unref_peer);
    g_signal_emit_by_name(peer->bin, "set-remote-description", remote, next);
    gst_webrtc_session_description_free(remote);
    return true;
}

// MARK: Candidates

static void candidate_came(GstElement *bin, guint line, gchar *candidate, cwebrtc_peer *peer) {
    (void)bin, (void)line;
    if (!is_freed(peer) && candidate && *candidate) peer->events.candidate(peer->events.context, candidate);
}

static void gathering_changed(GstElement *bin, GParamSpec *spec, cwebrtc_peer *peer) {
    (void)spec;
    GstWebRTCICEGatheringState state = GST_WEBRTC_ICE_GATHERING_STATE_NEW;
    g_object_get(bin, "ice-gathering-state", &state, NULL);
    if (state == GST_WEBRTC_ICE_GATHERING_STATE_COMPLETE && !is_freed(peer))
        peer->events.candidate(peer->events.context, NULL);
}

static void connection_changed(GstElement *bin, GParamSpec *spec, cwebrtc_peer *peer) {
    (void)spec;
    GstWebRTCPeerConnectionState state = GST_WEBRTC_PEER_CONNECTION_STATE_NEW;
    g_object_get(bin, "connection-state", &state, NULL);
    if (state == GST_WEBRTC_PEER_CONNECTION_STATE_FAILED || state == GST_WEBRTC_PEER_CONNECTION_STATE_CLOSED)
        report_end(peer);
}

void cwebrtc_add_candidate(cwebrtc_peer *peer, const char *candidate) {
    g_signal_emit_by_name(peer->bin, "add-ice-candidate", 0, candidate);
}

// MARK: Messages

// The channel, if it was opened: GStreamer 1.22 crashes when a channel sends that was not.
static GstWebRTCDataChannel *open_channel(cwebrtc_peer *peer) {
    g_mutex_lock(&peer->lock);
    GstWebRTCDataChannel *channel = peer->has_opened ? g_object_ref(peer->channel) : NULL;
    g_mutex_unlock(&peer->lock);
    return channel;
}

bool cwebrtc_send(cwebrtc_peer *peer, bool is_text, const uint8_t *bytes, size_t count) {
    GstWebRTCDataChannel *channel = count > 0 ? open_channel(peer) : NULL;
    if (!channel) return false;
    gboolean is_sent;
    if (is_text) {
        gchar *text = g_strndup((const gchar *)bytes, count);
        is_sent = gst_webrtc_data_channel_send_string_full(channel, text, NULL);
        g_free(text);
    } else {
        GBytes *data = g_bytes_new(bytes, count);
        is_sent = gst_webrtc_data_channel_send_data_full(channel, data, NULL);
        g_bytes_unref(data);
    }
    g_object_unref(channel);
    return is_sent;
}

uint64_t cwebrtc_buffered(cwebrtc_peer *peer) {
    GstWebRTCDataChannel *channel = open_channel(peer);
    guint64 amount = 0;
    if (!channel) return 0;
    g_object_get(channel, "buffered-amount", &amount, NULL);
    g_object_unref(channel);
    return amount;
}

// MARK: Beginning and end

static gpointer stop(gpointer data) {
    cwebrtc_peer *peer = data;
    gst_element_set_state(peer->pipeline, GST_STATE_NULL);
    g_signal_handlers_disconnect_matched(peer->bin, G_SIGNAL_MATCH_DATA, 0, 0, NULL, NULL, peer);
    g_mutex_lock(&peer->lock);
    GstWebRTCDataChannel *channel = peer->channel;
    g_mutex_unlock(&peer->lock);
    if (channel) g_signal_handlers_disconnect_matched(channel, G_SIGNAL_MATCH_DATA, 0, 0, NULL, NULL, peer);
    unref_peer(peer);
    return NULL;
}

// Stopping waits for the threads of the pipeline, so none of those may do it.
void cwebrtc_free(cwebrtc_peer *peer) {
    if (g_atomic_int_exchange(&peer->is_freed, 1)) return;
    g_thread_unref(g_thread_new("cwebrtc-stop", stop, peer));
}

// Applies the settings; false if one is refused.
static gboolean apply(cwebrtc_peer *peer, const cwebrtc_settings *settings) {
    g_object_set_data(G_OBJECT(peer->bin), "cwebrtc-threshold", GSIZE_TO_POINTER(settings->low_threshold));
    gst_util_set_object_arg(G_OBJECT(peer->bin), "bundle-policy", "max-bundle");
    if (settings->stun) g_object_set(peer->bin, "stun-server", settings->stun, NULL);
    for (size_t index = 0; index < settings->turn_count; index++) {
        gboolean is_added = FALSE;
        g_signal_emit_by_name(peer->bin, "add-turn-server", settings->turn[index], &is_added);
        if (!is_added) return FALSE;
    }
    if (settings->relay_only) gst_util_set_object_arg(G_OBJECT(peer->bin), "ice-transport-policy", "relay");
    GObject *ice = NULL;
    g_object_get(peer->bin, "ice-agent", &ice, NULL);
    if (!ice) return FALSE;
    gboolean is_taken = TRUE;
    for (size_t index = 0; index < settings->address_count && is_taken; index++)
        g_signal_emit_by_name(ice, "add-local-ip-address", settings->addresses[index], &is_taken);
    // libnice then sees that the other side does not answer any more. It opens no ports of a router, and no TCP sockets.
    GObject *agent = NULL;
    if (g_object_class_find_property(G_OBJECT_GET_CLASS(ice), "agent")) g_object_get(ice, "agent", &agent, NULL);
    if (agent) {
        g_object_set(agent, "keepalive-conncheck", TRUE, "upnp", FALSE, "ice-tcp", FALSE, NULL);
        g_object_unref(agent);
    }
    g_object_unref(ice);
    return is_taken;
}

cwebrtc_peer *cwebrtc_new(const cwebrtc_settings *settings, const cwebrtc_events *events, bool offers) {
    if (!gst_init_check(NULL, NULL, NULL)) return NULL;
    cwebrtc_peer *peer = g_atomic_rc_box_new0(cwebrtc_peer);
    g_mutex_init(&peer->lock);
    peer->pipeline = gst_object_ref_sink(gst_pipeline_new(NULL));
    peer->bin = gst_element_factory_make("webrtcbin", NULL);
    if (!peer->bin || !gst_bin_add(GST_BIN(peer->pipeline), peer->bin) || !apply(peer, settings)
        || gst_element_set_state(peer->pipeline, GST_STATE_PLAYING) == GST_STATE_CHANGE_FAILURE) {
        gst_element_set_state(peer->pipeline, GST_STATE_NULL);
        unref_peer(peer);
        return NULL;
    }
    peer->events = *events;
    connect_signal(peer, peer->bin, "on-ice-candidate", G_CALLBACK(candidate_came));
    connect_signal(peer, peer->bin, "notify::ice-gathering-state", G_CALLBACK(gathering_changed));
    connect_signal(peer, peer->bin, "notify::connection-state", G_CALLBACK(connection_changed));
    connect_signal(peer, peer->bin, "on-data-channel", G_CALLBACK(channel_came));
    if (!offers) return peer;
    GstWebRTCDataChannel *channel = NULL;
    g_signal_emit_by_name(peer->bin, "create-data-channel", "pawl", NULL, &channel);
    if (!channel) {
        peer->events.released = NULL;
        cwebrtc_free(peer);
        return NULL;
    }
    set_threshold(channel, settings->low_threshold);
    use_channel(peer, channel);
    g_object_unref(channel);
    GstPromise *next = gst_promise_new_with_change_func(offer_is_created, g_atomic_rc_box_acquire(peer), unref_peer);
    g_signal_emit_by_name(peer->bin, "create-offer", NULL, next);
    return peer;
}

#endif
