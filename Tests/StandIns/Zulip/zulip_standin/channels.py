"""Channels ("streams"), who is subscribed to them, and their topics."""

import time

from .errors import RequestError, administrator_required, no_channel_named, no_channel_with
from .people import ADMINISTRATOR

NAME_LIMIT = 60
DESCRIPTION_LIMIT = 1024
EVENTS_TOPIC = "channel events"
COLORS = ("#76ce90", "#fae589", "#a6c7e5", "#e79ab5")
SETTINGS = {"is_muted": "muted", "pin_to_top": "pinned", "color": "color"}
# The system group that holds everyone.
EVERYONE_GROUP, ADMINISTRATORS_GROUP, NOBODY_GROUP = 11, 8, 2


class Channels:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    # MARK: Finding

    def by_name(self, name):
        return self.store.one(
            "SELECT * FROM streams WHERE folded(name) = ? AND NOT archived", str(name).strip().casefold())

    def by_id(self, number):
        return self.store.one("SELECT * FROM streams WHERE id = ?", number)

    def of_recipient(self, recipient):
        return self.store.one("SELECT * FROM streams WHERE recipient = ?", recipient)

    def visible(self, user, which):
        """A channel by id or name, if this person may know of it."""
        isNumber = isinstance(which, int) or (isinstance(which, str) and which.isdigit())
        channel = (self.by_id(int(which)) if isNumber else None) or self.by_name(which)
        if channel is None or (channel["private"] and not self.is_subscribed(user, channel["id"])):
            return None
        return channel

    def accessed(self, call):
        number = int(call.path["stream"])
        channel = self.visible(call.user["id"], number)
        if channel is None:
            raise RequestError("Invalid channel ID")
        return channel

    def is_subscribed(self, user, stream):
        return self.store.one("SELECT 1 FROM subscriptions WHERE user = ? AND stream = ?", user, stream) is not None

    def history_is_open(self, user, channel):
        """Whether this person may read messages that they did not receive."""
        if not channel["private"]:
            return True
        return bool(channel["shared_history"]) and self.is_subscribed(user, channel["id"])

    def subscribers(self, stream):
        return self.store.column("SELECT user FROM subscriptions WHERE stream = ? ORDER BY user", stream)

    def aware(self, channel):
        """Who learns that the channel exists."""
        return self.subscribers(channel["id"]) if channel["private"] else self.server.people.ids()

    # MARK: Objects

    def stream(self, channel):
        recent = self.store.value("SELECT MIN(id) FROM messages WHERE recipient = ?", channel["recipient"])
        return {
            "stream_id": channel["id"], "name": channel["name"], "description": channel["description"],
            "rendered_description": channel["rendered_description"], "creator_id": channel["creator"],
            "date_created": int(channel["created"]), "invite_only": bool(channel["private"]),
            "history_public_to_subscribers": not channel["private"] or bool(channel["shared_history"]),
            "is_web_public": False, "is_archived": bool(channel["archived"]), "is_default": False,
            "is_announcement_only": False, "stream_post_policy": 1, "message_retention_days": None,
            "first_message_id": recent, "is_recently_active": True, "stream_weekly_traffic": None,
            "can_add_subscribers_group": NOBODY_GROUP, "can_administer_channel_group": NOBODY_GROUP,
            "can_remove_subscribers_group": ADMINISTRATORS_GROUP, "can_send_message_group": EVERYONE_GROUP,
            "can_subscribe_group": NOBODY_GROUP,
        }

    def subscription(self, user, channel, include_subscribers):
        own = self.store.one("SELECT * FROM subscriptions WHERE user = ? AND stream = ?", user, channel["id"])
        stream = self.stream(channel)
        del stream["is_default"]
        return stream | {
            "color": own["color"], "is_muted": bool(own["muted"]), "in_home_view": not own["muted"],
            "pin_to_top": bool(own["pinned"]), "audible_notifications": None, "desktop_notifications": None,
            "email_notifications": None, "push_notifications": None, "wildcard_mentions_notify": None,
            **({"subscribers": self.subscribers(channel["id"])} if include_subscribers else {}),
        }

    def subscriptions_of(self, user, include_subscribers):
        rows = self.store.all(
            "SELECT s.* FROM streams s, subscriptions b WHERE b.stream = s.id AND b.user = ? AND NOT s.archived"
            " ORDER BY s.id", user)
        return [self.subscription(user, channel, include_subscribers) for channel in rows]

    # MARK: Reading

    def all(self, call):
        parameters = call.parameters
        public = parameters.boolean("include_public", True)
        subscribed = parameters.boolean("include_subscribed", True)
        for name in ("include_web_public", "include_all", "include_default", "include_owner_subscribed",
                     "include_can_access_content", "exclude_archived", "include_all_active"):
            parameters.boolean(name, False)
        channels = self.store.all("SELECT * FROM streams WHERE NOT archived ORDER BY id")
        return {"streams": [
            self.stream(channel) for channel in channels
            if (public and not channel["private"])
            or (subscribed and self.is_subscribed(call.user["id"], channel["id"]))]}

    def one(self, call):
        return {"stream": self.stream(self.accessed(call))}

    def id_of(self, call):
        name = call.parameters.text("stream")
        channel = self.by_name(name)
        if channel is None or self.visible(call.user["id"], channel["id"]) is None:
            raise RequestError(f"Invalid channel name '{name}'")
        return {"stream_id": channel["id"]}

    def members(self, call):
        return {"subscribers": self.subscribers(self.accessed(call)["id"])}

    def own(self, call):
        include = call.parameters.boolean("include_subscribers", False)
        return {"subscriptions": self.subscriptions_of(call.user["id"], include)}

    def status(self, call):
        person = self.server.people.named(call.path["who"])
        return {"is_subscribed": self.is_subscribed(person["id"], self.accessed(call)["id"])}

    def topics(self, call):
        allow_empty = call.parameters.boolean("allow_empty_topic_name", False)
        channel = self.accessed(call)
        rows = self.store.all(
            "SELECT MAX(m.id) AS last, m.topic FROM messages m LEFT JOIN user_messages um"
            " ON um.message = m.id AND um.user = ? WHERE m.recipient = ? AND (? OR um.user IS NOT NULL)"
            " GROUP BY folded(m.topic) ORDER BY last DESC",
            call.user["id"], channel["recipient"], self.history_is_open(call.user["id"], channel))
        return {"topics": [
            {"max_id": row["last"], "name": self.server.shown_topic(row["topic"], allow_empty)} for row in rows]}

    # MARK: Subscribing

    def subscribe(self, call):
        parameters = call.parameters
        wanted = parameters.array("subscriptions", dict)
        principals = parameters.array("principals", default=[])
        private = parameters.boolean("invite_only", False)
        shared = parameters.boolean("history_public_to_subscribers", None)
        parameters.boolean("announce", False)
        parameters.boolean("authorization_errors_fatal", True)
        for name in ("is_web_public", "is_default_stream"):
            parameters.boolean(name, False)
        for name in ("stream_post_policy", "message_retention_days", "can_remove_subscribers_group",
                     "can_send_message_group", "can_administer_channel_group", "can_add_subscribers_group",
                     "can_subscribe_group"):
            parameters.json(name, None)
        people = [self.principal(which) for which in principals] or [call.user]
        channels, created = [], set()
        for each in wanted:
            name = self.valid_name(each.get("name"))
            channel = self.by_name(name)
            if channel is None:
                description = self.valid_description(each.get("description", ""))
                channel = self.create(call.user, name, description, private, not private if shared is None else shared)
                created.add(channel["id"])
            elif channel["private"] and not self.is_subscribed(call.user["id"], channel["id"]):
                raise RequestError(f"Unable to access channel ({name}).")
            channels.append(channel)
        subscribed, already, added = {}, {}, {}
        for channel in channels:
            for person in people:
                if self.is_subscribed(person["id"], channel["id"]):
                    already.setdefault(str(person["id"]), []).append(channel["name"])
                    continue
                self.store.insert(
                    "subscriptions", user=person["id"], stream=channel["id"], color=COLORS[channel["id"] % len(COLORS)])
                subscribed.setdefault(str(person["id"]), []).append(channel["name"])
                added.setdefault(channel["id"], []).append(person["id"])
        self.announce(channels, created, added)
        new = {channel["name"] for channel in channels if channel["id"] in created}
        self.inform(call.user, people, subscribed, new)
        for number in sorted(created):
            self.post_description(call.user, self.by_id(number))
        return {"subscribed": subscribed, "already_subscribed": already}

    def principal(self, which):
        person = self.server.people.find(which)
        if person is None:
            raise RequestError(f"User not authorized to execute queries on behalf of '{which}'", "UNAUTHORIZED_PRINCIPAL",
                               403, principal=which)
        return person

    def create(self, creator, name, description, private, shared):
        recipient = self.store.insert("recipients", kind="stream", members=name.casefold())
        number = self.store.insert(
            "streams", recipient=recipient, name=name, description=description, creator=creator["id"],
            rendered_description=self.server.render(description).html, created=time.time(), private=private,
            shared_history=shared)
        self.store.run("UPDATE recipients SET members = ? WHERE id = ?", str(number), recipient)
        return self.by_id(number)

    def announce(self, channels, created, added):
        """Events: the channel exists, you are subscribed, others are."""
        queues = self.server.queues
        for channel in channels:
            if channel["id"] in created:
                queues.send(self.aware(channel), {
                    "type": "stream", "op": "create", "streams": [self.stream(channel)],
                    "stream_ids": [channel["id"]]})
        for channel in channels:
            users = added.get(channel["id"], [])
            for user in users:
                queues.send([user], {
                    "type": "subscription", "op": "add", "subscriptions": [self.subscription(user, channel, True)]})
            others = [user for user in self.aware(channel) if user not in users]
            if users and others:
                queues.send(others, {
                    "type": "subscription", "op": "peer_add", "stream_ids": [channel["id"]], "user_ids": users})

    def inform(self, actor, people, subscribed, new):
        """Notification Bot writes to those whom somebody else has subscribed to channels that were there before."""
        for person in people:
            names = sorted(set(subscribed.get(str(person["id"]), [])) - new)
            if person["id"] == actor["id"] or not names:
                continue
            who = f"@**{actor['full_name']}|{actor['id']}**"
            if len(names) == 1:
                text = f"{who} subscribed you to the channel #**{names[0]}**."
            else:
                text = f"{who} subscribed you to the following channels:\n\n" + "".join(
                    f"* #**{name}**\n" for name in names)
            self.server.messages.from_bot_to_person(person, text)

    def post_description(self, actor, channel):
        """Notification Bot writes the description into a new channel."""
        kind = "Public" if not channel["private"] else (
            "Private, shared history" if channel["shared_history"] else "Private, protected history")
        self.notice(channel, (
            f"**{kind}** channel created by {self.silent(actor)}. **Description:**\n"
            f"```` quote\n{channel['description'] or '*No description.*'}\n````"))

    def notice(self, channel, text, topic=EVENTS_TOPIC):
        return self.server.messages.from_bot_to_channel(channel, topic, text)

    @staticmethod
    def silent(person):
        return f"@_**{person['full_name']}|{person['id']}**"

    def unsubscribe(self, call):
        names = call.parameters.array("subscriptions", str)
        principals = call.parameters.array("principals", default=[])
        people = [self.principal(which) for which in principals] or [call.user]
        channels = []
        for name in names:
            channel = self.by_name(name)
            if channel is None or self.visible(call.user["id"], channel["id"]) is None:
                raise RequestError(f"Channel(s) ({name}) do not exist")
            channels.append(channel)
        isOwn = all(person["id"] == call.user["id"] for person in people)
        if not isOwn and call.user["role"] > ADMINISTRATOR:
            raise RequestError("Insufficient permission")
        removed, not_removed = [], []
        for channel in channels:
            left = []
            for person in people:
                rows = self.store.changed(
                    "DELETE FROM subscriptions WHERE user = ? AND stream = ?", person["id"], channel["id"])
                (removed if rows else not_removed).append(channel["name"])
                if rows:
                    left.append(person["id"])
            for user in left:
                self.server.queues.send([user], {
                    "type": "subscription", "op": "remove",
                    "subscriptions": [{"name": channel["name"], "stream_id": channel["id"]}]})
            others = [user for user in self.aware(channel) if user not in left]
            if left and others:
                self.server.queues.send(others, {
                    "type": "subscription", "op": "peer_remove", "stream_ids": [channel["id"]], "user_ids": left})
        return {"removed": removed, "not_removed": not_removed}

    def update_settings(self, call):
        for change in call.parameters.array("subscription_data", dict):
            number, name, value = change.get("stream_id"), change.get("property"), change.get("value")
            if not isinstance(number, int) or not self.is_subscribed(call.user["id"], number):
                raise RequestError(f"Not subscribed to channel ID {number}")
            if name == "in_home_view" and isinstance(value, bool):
                name, value = "is_muted", not value
            if name not in SETTINGS:
                raise RequestError(f"Unknown subscription property: {name}")
            if not isinstance(value, str if name == "color" else bool):
                raise RequestError(f"{name} is not a {'string' if name == 'color' else 'boolean'}")
            self.store.run(
                f"UPDATE subscriptions SET {SETTINGS[name]} = ? WHERE user = ? AND stream = ?",
                value, call.user["id"], number)
            self.server.queues.send([call.user["id"]], {
                "type": "subscription", "op": "update", "property": name, "stream_id": number, "value": value})
        return {}

    # MARK: Changing

    @staticmethod
    def valid_name(name):
        name = str(name or "").strip()
        if not name:
            raise RequestError("Channel name can't be empty.")
        if len(name) > NAME_LIMIT:
            raise RequestError(f"Channel name too long (limit: {NAME_LIMIT} characters).")
        for position, character in enumerate(name, 1):
            if ord(character) < 32 or ord(character) == 127:
                raise RequestError(f"Invalid character in channel name, at position {position}.")
        return name

    @staticmethod
    def valid_description(text):
        # A description is one line.
        text = str(text).strip().replace("\n", " ")
        if len(text) > DESCRIPTION_LIMIT:
            raise RequestError(f"description is too long (limit: {DESCRIPTION_LIMIT} characters)")
        return text

    def update(self, call):
        parameters = call.parameters
        description = parameters.text("description", None)
        name = parameters.text("new_name", None)
        private = parameters.boolean("is_private", None)
        shared = parameters.boolean("history_public_to_subscribers", None)
        for other in ("is_web_public", "is_default_stream", "is_archived"):
            parameters.boolean(other, None)
        for other in ("stream_post_policy", "message_retention_days"):
            parameters.json(other, None)
        channel = self.accessed(call)
        if call.user["role"] > ADMINISTRATOR and call.user["id"] != channel["creator"]:
            raise RequestError("You do not have permission to administer this channel.")
        if description is not None:
            self.change_description(call.user, channel, self.valid_description(description))
        if name is not None:
            self.rename(call.user, channel, self.valid_name(name))
        if private is not None and private != bool(channel["private"]):
            self.change_privacy(channel, private, not private if shared is None else shared)
        return {}

    def change_description(self, actor, channel, description):
        if description == channel["description"]:
            return
        rendered = self.server.render(description).html
        self.store.run(
            "UPDATE streams SET description = ?, rendered_description = ? WHERE id = ?",
            description, rendered, channel["id"])
        self.send_update(channel, "description", description, rendered_description=rendered)
        none = "*No description.*"
        self.notice(channel, (
            f"{self.silent(actor)} changed the description for this channel.\n\n"
            f"* **Old description:**\n```` quote\n{channel['description'] or none}\n````\n"
            f"* **New description:**\n```` quote\n{description or none}\n````"))

    def rename(self, actor, channel, name):
        if name == channel["name"]:
            raise RequestError("Channel already has that name.")
        other = self.by_name(name)
        if other is not None and other["id"] != channel["id"]:
            raise RequestError("Channel name is already in use.")
        self.store.run("UPDATE streams SET name = ? WHERE id = ?", name, channel["id"])
        self.send_update(channel, "name", name)
        self.notice(
            self.by_id(channel["id"]), f"{self.silent(actor)} renamed channel **{channel['name']}** to **{name}**.")

    def change_privacy(self, channel, private, shared):
        self.store.run("UPDATE streams SET private = ?, shared_history = ? WHERE id = ?", private, shared, channel["id"])
        self.send_update(
            channel, "invite_only", private, history_public_to_subscribers=shared, is_web_public=False)

    def send_update(self, channel, name, value, **members):
        self.server.queues.send(self.aware(channel), {
            "type": "stream", "op": "update", "property": name, "value": value, "stream_id": channel["id"],
            "name": channel["name"], **members})

    def archive(self, call):
        channel = self.accessed(call)
        if call.user["role"] > ADMINISTRATOR and call.user["id"] != channel["creator"]:
            raise RequestError("You do not have permission to administer this channel.")
        self.store.run("UPDATE streams SET archived = 1 WHERE id = ?", channel["id"])
        self.server.queues.send(self.aware(channel), {
            "type": "stream", "op": "delete", "stream_ids": [channel["id"]],
            "streams": [{"stream_id": channel["id"]}]})
        return {}

    def delete_topic(self, call):
        topic = self.server.topic_of_client(call.parameters.text("topic_name"))
        channel = self.accessed(call)
        if call.user["role"] > ADMINISTRATOR:
            raise administrator_required()
        self.server.messages.remove(call.user, self.server.messages.ids_of_topic(channel["recipient"], topic))
        return {"complete": True}

    # MARK: Sending to

    def target(self, user, which):
        """The channel that a message is for, by name or id, if this person may write to it."""
        if isinstance(which, int):
            channel = self.by_id(which)
            if channel is None:
                raise no_channel_with(which)
        else:
            channel = self.by_name(which)
            if channel is None:
                raise no_channel_named(which)
        if channel["archived"] or (channel["private"] and not self.is_subscribed(user["id"], channel["id"])):
            if user["is_bot"]:
                return channel
            raise RequestError(f"Not authorized to send to channel '{channel['name']}'")
        return channel
