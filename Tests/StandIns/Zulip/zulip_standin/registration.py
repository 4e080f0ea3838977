"""`POST /register`: an event queue, and the state that a client begins with."""

import time

from . import flags, version
from .errors import RequestError
from .messages import CONTENT_LIMIT, TOPIC_LIMIT
from .channels import DESCRIPTION_LIMIT, NAME_LIMIT
from .narrow import QueueNarrow
from .people import avatar
from .queues import CAPABILITIES, Queue

TYPE_LIMIT = 100


class Registration:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def register(self, call):
        parameters = call.parameters
        event_types = parameters.array("event_types", str, default=None)
        fetched = parameters.array("fetch_event_types", str, default=None)
        narrow = parameters.array("narrow", default=[])
        include_subscribers = parameters.boolean("include_subscribers", False)
        slim = parameters.boolean("slim_presence", False)
        capabilities = parameters.object("client_capabilities", {})
        options = {
            "apply_markdown": parameters.boolean("apply_markdown", False),
            "client_gravatar": parameters.boolean("client_gravatar", True),
            "all_public_streams": parameters.boolean("all_public_streams", False),
            "capabilities": {name for name, value in capabilities.items() if value is True and name in CAPABILITIES},
        }
        parameters.integer("presence_history_limit_days", None)
        parameters.boolean("pronouns_field_type_supported", True)
        if any(len(names or []) > TYPE_LIMIT for names in (event_types, fetched)):
            raise RequestError("event_types is too long")
        queue = Queue(call.user["id"], event_types, QueueNarrow(narrow), options)
        self.server.queues.register(queue)
        wanted = fetched if fetched is not None else event_types
        state = {
            "queue_id": queue.id, "last_event_id": -1, "zulip_version": version.VERSION,
            "zulip_feature_level": version.FEATURE_LEVEL, "zulip_merge_base": version.VERSION,
            "event_queue_longpoll_timeout_seconds": 90,
        }
        for name, part in self.parts(call, queue, include_subscribers, slim).items():
            if wanted is None or name in wanted:
                state |= part()
        return state

    def parts(self, call, queue, include_subscribers, slim):
        """What each type of `fetch_event_types` adds."""
        server, user = self.server, call.user["id"]
        personal = server.personal
        return {
            "message": lambda: {"max_message_id": self.store.value(
                "SELECT COALESCE(MAX(message), -1) FROM user_messages WHERE user = ?", user)},
            "realm": self.realm,
            "realm_user": lambda: self.people(call.user, queue.client_gravatar),
            "stream": lambda: {"streams": [
                server.channels.stream(channel)
                for channel in self.store.all("SELECT * FROM streams WHERE NOT archived ORDER BY id")
                if server.channels.visible(user, channel["id"])]},
            "subscription": lambda: self.subscriptions(user, include_subscribers),
            "presence": lambda: {"presences": server.people.presences(slim), "server_timestamp": time.time()},
            "user_status": lambda: {"user_status": {
                str(person["id"]): server.people.status_of(person) for person in server.people.everyone()
                if server.people.status_of(person)}},
            "update_message_flags": lambda: {"unread_msgs": self.unread(user)},
            "starred_messages": lambda: {"starred_messages": self.store.column(
                f"SELECT message FROM user_messages WHERE user = ? AND flags & {flags.STARRED}", user)},
            "drafts": lambda: {"drafts": personal.all_drafts(user)},
            "scheduled_messages": lambda: {"scheduled_messages": personal.all_scheduled(user)},
            "saved_snippets": lambda: {"saved_snippets": personal.all_snippets(user)},
            "alert_words": lambda: {"alert_words": personal.words(user)},
            "user_topic": lambda: {"user_topics": personal.topic_policies(user)},
            "muted_users": lambda: {"muted_users": []},
            "recent_private_conversations": lambda: {"recent_private_conversations": self.conversations(user)},
        }

    def realm(self):
        return {
            "realm_name": version.REALM_NAME, "realm_url": self.server.address, "realm_uri": self.server.address,
            "realm_description": "", "max_message_length": CONTENT_LIMIT, "max_topic_length": TOPIC_LIMIT,
            "max_stream_name_length": NAME_LIMIT, "max_stream_description_length": DESCRIPTION_LIMIT,
            "realm_empty_topic_display_name": self.server.EMPTY_TOPIC, "realm_mandatory_topics": False,
            "max_file_upload_size_mib": self.server.uploads.LIMIT_MIB, "realm_allow_message_editing": True,
            "realm_message_content_edit_limit_seconds": 600, "realm_message_content_delete_limit_seconds": 600,
            "realm_allow_edit_history": True, "realm_enable_read_receipts": True, "realm_inline_url_embed_preview": False,
            "server_typing_started_wait_period_milliseconds": 10_000,
            "server_typing_stopped_wait_period_milliseconds": 5_000,
            "server_typing_started_expiry_period_milliseconds": 15_000,
        }

    def people(self, user, gravatar):
        server = self.server
        profile = server.people.profile
        return {
            "realm_users": [profile(person, gravatar) | {"profile_data": {}} for person in server.people.everyone()],
            "realm_non_active_users": [],
            "cross_realm_bots": [profile(server.people.bot(), gravatar) | {"is_system_bot": True}],
            "user_id": user["id"], "email": user["email"], "delivery_email": user["email"],
            "full_name": user["full_name"], "avatar_url": avatar(user["email"]), "avatar_source": "G",
            "is_admin": user["role"] <= 200, "is_owner": user["role"] == 100, "is_guest": False, "is_moderator": False,
        }

    def subscriptions(self, user, include_subscribers):
        channels = self.server.channels
        never = [
            channels.stream(channel) | ({"subscribers": channels.subscribers(channel["id"])} if include_subscribers else {})
            for channel in self.store.all("SELECT * FROM streams WHERE NOT archived AND NOT private ORDER BY id")
            if not channels.is_subscribed(user, channel["id"])]
        return {
            "subscriptions": channels.subscriptions_of(user, include_subscribers), "unsubscribed": [],
            "never_subscribed": never}

    def unread(self, user):
        """The unread messages, by conversation."""
        messages = self.server.messages
        direct, groups, channels, mentions = {}, {}, {}, []
        numbers = messages.unread(user)
        for number in numbers:
            row = messages.row(number)
            members = messages.direct_members(row["recipient"])
            if members is None:
                channel = self.server.channels.of_recipient(row["recipient"])
                channels.setdefault((channel["id"], row["topic"]), []).append(number)
            elif len(members) > 2:
                groups.setdefault(",".join(map(str, members)), []).append(number)
            else:
                other = next((member for member in members if member != user), user)
                direct.setdefault(other, []).append(number)
            if messages.flags_of(user, number) & flags.ANY_MENTION:
                mentions.append(number)
        return {
            "count": len(numbers), "mentions": mentions, "old_unreads_missing": False,
            "pms": [
                {"other_user_id": other, "sender_id": other, "unread_message_ids": ids} for other, ids in direct.items()],
            "huddles": [{"user_ids_string": key, "unread_message_ids": ids} for key, ids in groups.items()],
            "streams": [
                {"stream_id": key[0], "topic": key[1], "unread_message_ids": ids} for key, ids in channels.items()],
        }

    def conversations(self, user):
        rows = self.store.all(
            "SELECT r.members, MAX(m.id) AS last FROM messages m, recipients r, user_messages um WHERE m.recipient = r.id"
            " AND r.kind = 'direct' AND um.message = m.id AND um.user = ? GROUP BY r.id ORDER BY last DESC", user)
        return [
            {"max_message_id": row["last"],
             "user_ids": [int(part) for part in row["members"].split(",") if int(part) != user]} for row in rows]

    # MARK: Reading the queue

    def events(self, call):
        """The arguments of a read: queue, last event, whether it waits."""
        parameters = call.parameters
        number = parameters.text("queue_id")
        last = parameters.integer("last_event_id", None)
        blocks = not parameters.boolean("dont_block", False)
        if last is None:
            raise RequestError("Missing 'last_event_id' argument")
        return self.server.queues.find(number, call.user["id"], "get events from"), last, blocks

    def deregister(self, call):
        queue = self.server.queues.find(call.parameters.text("queue_id"), call.user["id"], "access")
        self.server.queues.drop(queue)
        return {}
