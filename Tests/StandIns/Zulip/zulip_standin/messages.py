"""Messages: sending, reading, editing, moving, deleting, reactions, flags, typing and widgets."""

import difflib
import json
import re
import time
import unicodedata

from . import flags
from .emoji import emoji
from .errors import RequestError, invalid_message
from .narrow import Narrow
from .people import ADMINISTRATOR, avatar
from .rendering import escaped, highlighted, topic_escaped

CONTENT_LIMIT = 10_000
TOPIC_LIMIT = 60
FETCH_LIMIT = 5_000
EDIT_SECONDS = 600
# Clients of the product itself read what they send; programs do not.
READ_BY_SENDER = ("website", "zulipmobile", "zulipelectron", "zulipflutter", "zulipterminal", "zulipdesktop")
RESOLVED = "✔ "
NEWEST = 10_000_000_000_000_000
OLDEST = 0
FOLLOWED = 3


def truncated(text, limit, mark):
    return text if len(text) <= limit else text[:limit - len(mark)] + mark


def normal_content(text):
    text = text.rstrip().lstrip("\n")
    if not text:
        raise RequestError("Message must not be empty")
    if "\0" in text:
        raise RequestError("Message must not contain null bytes")
    return truncated(text, CONTENT_LIMIT, "\n[message truncated]")


def normal_topic(text):
    text = text.strip()
    for position, character in enumerate(text, 1):
        if unicodedata.category(character) in ("Cc", "Cs", "Cn"):
            raise RequestError(f"Invalid character in topic, at position {position}!")
    return truncated(text, TOPIC_LIMIT, "...")


class Messages:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    # MARK: Objects

    def row(self, number):
        return self.store.one("SELECT * FROM messages WHERE id = ?", number)

    def direct_members(self, recipient):
        members = self.store.value("SELECT members FROM recipients WHERE id = ? AND kind = 'direct'", recipient)
        return None if members is None else [int(part) for part in members.split(",")]

    def message(self, row, markdown=True, gravatar=True, allow_empty=True):
        """The object that `GET /messages` and events of type `message` show."""
        sender = self.server.people.find(row["sender"])
        members = self.direct_members(row["recipient"])
        result = {
            "id": row["id"], "sender_id": sender["id"], "sender_email": sender["email"],
            "sender_full_name": sender["full_name"], "sender_realm_str": sender["realm"],
            "avatar_url": None if gravatar else avatar(sender["email"]), "client": row["client"],
            "content": row["rendered"] if markdown else row["content"],
            "content_type": "text/html" if markdown else "text/x-markdown",
            "is_me_message": self.is_status(row["content"], row["rendered"]), "recipient_id": row["recipient"],
            "timestamp": int(row["sent"]), "topic_links": [], "reactions": self.reactions(row["id"]),
            "submessages": [
                {"id": each["id"], "message_id": row["id"], "sender_id": each["sender"], "msg_type": each["kind"],
                 "content": each["content"]}
                for each in self.store.all("SELECT * FROM submessages WHERE message = ? ORDER BY id", row["id"])],
        }
        if members is None:
            channel = self.server.channels.of_recipient(row["recipient"])
            result |= {
                "type": "stream", "display_recipient": channel["name"], "stream_id": channel["id"],
                "subject": self.server.shown_topic(row["topic"], allow_empty)}
        else:
            people = [self.server.people.find(member) for member in members]
            result |= {"type": "private", "subject": "", "display_recipient": [
                {"id": each["id"], "email": each["email"], "full_name": each["full_name"], "is_mirror_dummy": False}
                for each in people]}
        history = json.loads(row["history"])
        if history:
            for entry in history:
                for name in ("topic", "prev_topic"):
                    if name in entry:
                        entry[name] = self.server.shown_topic(entry[name], allow_empty)
            result["edit_history"] = history
        if row["edited"] is not None:
            result["last_edit_timestamp"] = int(row["edited"])
        if row["moved"] is not None:
            result["last_moved_timestamp"] = int(row["moved"])
        return result

    @staticmethod
    def is_status(content, rendered):
        return content.startswith("/me ") and rendered.startswith("<p>") and rendered.endswith("</p>")

    def reactions(self, number):
        result = []
        for each in self.store.all("SELECT * FROM reactions WHERE message = ? ORDER BY id", number):
            result.append({
                "emoji_name": each["name"], "emoji_code": each["code"], "reaction_type": each["kind"],
                "user_id": each["user"]})
        return result

    def flags_of(self, user, number):
        return self.store.value("SELECT flags FROM user_messages WHERE user = ? AND message = ?", user, number)

    def flag_names(self, user, number):
        bits = self.flags_of(user, number)
        # Who did not receive a message has read it.
        return ["read", "historical"] if bits is None else flags.names(bits)

    def accessed(self, user, number):
        """A message that this person may read."""
        row = self.row(number)
        if row is None:
            raise invalid_message()
        if self.flags_of(user, number) is None:
            channel = self.server.channels.of_recipient(row["recipient"])
            if channel is None or not self.server.channels.history_is_open(user, channel):
                raise invalid_message()
        return row

    def called(self, call):
        return self.accessed(call.user["id"], int(call.path["message"]))

    def ids_of_topic(self, recipient, topic):
        return self.store.column(
            "SELECT id FROM messages WHERE recipient = ? AND folded(topic) = ? ORDER BY id", recipient, topic.casefold())

    def has_topic(self, recipient, topic):
        return self.store.one(
            "SELECT 1 FROM messages WHERE recipient = ? AND folded(topic) = ?", recipient, topic.casefold()) is not None

    def audience(self, number):
        return self.store.column("SELECT user FROM user_messages WHERE message = ? ORDER BY user", number)

    # MARK: Sending

    def recipients_of_request(self, call, optional_topic=False):
        """Where a request sends to: (channel or None, topic, ids of people)."""
        parameters = call.parameters
        kind = parameters.choice("type", ("direct", "private", "stream", "channel"))
        to = parameters.text("to")
        topic = parameters.text("topic", None, alias="subject")
        if kind in ("stream", "channel"):
            if topic is None and not optional_topic:
                raise RequestError("Missing topic")
            return self.server.channels.target(call.user, self.channel_indicator(to)), self.topic(topic or ""), []
        return None, "", self.people_indicator(call.user, to)

    def topic(self, text):
        return normal_topic(self.server.topic_of_client("" if text == "(no topic)" else text))

    @staticmethod
    def channel_indicator(text):
        """A channel's name as it is, its name in JSON, its id, or a list with one of them."""
        try:
            value = json.loads(text)
        except ValueError:
            return text
        if isinstance(value, list):
            if len(value) != 1:
                raise RequestError("Expected exactly one channel")
            value = value[0]
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return value
        raise RequestError("Invalid data type for channel")

    def people_indicator(self, sender, text):
        """Ids or addresses in JSON, or addresses with commas between; the sender is one of the result."""
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, int) and not isinstance(value, bool):
            value = [value]
        if not isinstance(value, list):
            raise RequestError("Invalid data type for recipients")
        if not value:
            raise RequestError("Message must have recipients")
        if len({type(part) for part in value}) != 1 or type(value[0]) not in (int, str):
            raise RequestError("Recipient lists may contain emails or user IDs, but not both.")
        result = {sender["id"]}
        for part in value:
            person = self.server.people.find(part)
            if person is None:
                raise RequestError(f"Invalid user ID {part}" if isinstance(part, int) else f"Invalid email '{part}'")
            result.add(person["id"])
        return sorted(result)

    def direct_recipient(self, people):
        members = ",".join(map(str, people))
        self.store.run("INSERT OR IGNORE INTO recipients (kind, members) VALUES ('direct', ?)", members)
        return self.store.value("SELECT id FROM recipients WHERE kind = 'direct' AND members = ?", members)

    def send(self, call):
        parameters = call.parameters
        content = parameters.text("content")
        queue, local = parameters.text("queue_id", None), parameters.text("local_id", None)
        read = parameters.boolean("read_by_sender", None)
        parameters.json("widget_content", None)
        channel, topic, people = self.recipients_of_request(call)
        row, policy = self.deliver(
            call.user, channel, topic, people, normal_content(content), call.client, read, (queue, local))
        answer = {"id": row["id"]}
        if policy is not None:
            answer["automatic_new_visibility_policy"] = policy
        return answer

    def deliver(self, sender, channel, topic, people, content, client, read=None, echo=(None, None)):
        """Stores a message and sends its events. Returns it and the sender's new policy for the topic, or None."""
        rendered = self.server.render(content)
        recipient = channel["recipient"] if channel is not None else self.direct_recipient(people)
        isFirst = channel is not None and not self.has_topic(recipient, topic)
        number = self.store.insert(
            "messages", sender=sender["id"], recipient=recipient, topic=topic, content=content, rendered=rendered.html,
            sent=time.time(), client=client, has_link=rendered.has_link, has_image=rendered.has_image,
            has_attachment=bool(rendered.uploads))
        receivers = self.server.channels.subscribers(channel["id"]) if channel is not None else people
        if read is None:
            read = client.lower() in READ_BY_SENDER
        for user in receivers:
            bits = self.content_flags(user, rendered, content, channel, topic)
            if user == sender["id"] and (read or sender["is_bot"]):
                bits |= flags.READ
            self.store.insert("user_messages", user=user, message=number, flags=bits)
        self.server.uploads.refer(number, rendered.uploads, sender["id"])
        self.add_widget(number, sender["id"], content)
        policy = None
        if isFirst and not sender["is_bot"] and sender["id"] in receivers:
            policy = self.server.personal.set_topic_policy(sender["id"], channel["id"], topic, FOLLOWED)
        row = self.row(number)
        self.send_message_events(row, receivers, echo)
        return row, policy

    def content_flags(self, user, rendered, content, channel, topic):
        bits = flags.MENTIONED if user in rendered.mentions else 0
        if channel is not None and rendered.names_all:
            bits |= flags.CHANNEL_MENTIONED
        if channel is not None and rendered.names_topic and self.store.one(
                "SELECT 1 FROM messages WHERE sender = ? AND recipient = ? AND folded(topic) = ?",
                user, channel["recipient"], topic.casefold()):
            bits |= flags.TOPIC_MENTIONED
        for word in self.store.column("SELECT word FROM alert_words WHERE user = ?", user):
            if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", content, re.IGNORECASE):
                bits |= flags.HAS_ALERT_WORD
        return bits

    def send_message_events(self, row, receivers, echo):
        queues = self.server.queues
        users = set(receivers)
        channel = self.server.channels.of_recipient(row["recipient"])
        for queue in list(queues.queues.values()):
            isPublic = channel is not None and not channel["private"] and queue.all_public
            if not queue.wants("message") or not (queue.user in users or isPublic):
                continue
            message = self.message(
                row, queue.apply_markdown, queue.client_gravatar, "empty_topic_name" in queue.capabilities)
            names = self.flag_names(queue.user, row["id"]) if queue.user in users else []
            if not queue.narrow.accepts(message, names):
                continue
            event = {"type": "message", "message": message, "flags": names}
            if queue.id == echo[0] and echo[1] is not None:
                event["local_message_id"] = echo[1]
            queues.push(queue, event)

    def from_bot_to_channel(self, channel, topic, text):
        return self.deliver(self.server.people.bot(), channel, topic, [], normal_content(text), "Internal")[0]

    def from_bot_to_person(self, person, text):
        bot = self.server.people.bot()
        return self.deliver(bot, None, "", sorted({bot["id"], person["id"]}), normal_content(text), "Internal")[0]

    # MARK: Widgets

    def add_widget(self, number, sender, content):
        """Makes `/poll` and `/todo` what the clients show as widgets; the text of the message stays."""
        match = re.match(r"^/(poll|todo)\b[ ]*(.*)$", content.split("\n")[0])
        if match is None:
            return
        lines = [line.strip() for line in content.split("\n")[1:] if line.strip()]
        if match[1] == "poll":
            options = [re.sub(r"^[*+-]\s*", "", line) for line in lines]
            data = {"question": match[2].strip(), "options": options}
        else:
            tasks = [line.partition(":") for line in lines]
            data = {
                "task_list_title": match[2].strip(),
                "tasks": [{"task": task.strip(), "desc": text.strip()} for task, _, text in tasks]}
        self.store.insert(
            "submessages", message=number, sender=sender, kind="widget",
            content=json.dumps({"widget_type": match[1], "extra_data": data}))

    def submessage(self, call):
        number = call.parameters.integer("message_id")
        kind = call.parameters.text("msg_type")
        content = call.parameters.text("content")
        row = self.accessed(call.user["id"], number)
        first = self.store.one("SELECT * FROM submessages WHERE message = ? ORDER BY id", row["id"])
        if first is None and row["sender"] != call.user["id"]:
            raise RequestError("You cannot attach a submessage to this message.")
        try:
            data = json.loads(content)
        except ValueError:
            raise RequestError("Invalid json for submessage") from None
        if first is not None and json.loads(first["content"]).get("widget_type") == "poll":
            self.check_poll(data, row["sender"] == call.user["id"])
        added = self.store.insert(
            "submessages", message=row["id"], sender=call.user["id"], kind=kind, content=content)
        self.server.queues.send(self.audience(row["id"]), {
            "type": "submessage", "msg_type": kind, "message_id": row["id"], "submessage_id": added,
            "sender_id": call.user["id"], "content": content})
        return {}

    @staticmethod
    def check_poll(data, isAuthor):
        kinds = {
            "vote": {"key": str, "vote": int}, "new_option": {"idx": int, "option": str}, "question": {"question": str}}
        if not isinstance(data, dict) or data.get("type") not in kinds:
            raise RequestError("Unknown type for poll data: " + str(data.get("type") if isinstance(data, dict) else data))
        for name, kind in kinds[data["type"]].items():
            if not isinstance(data.get(name), kind):
                raise RequestError(f'poll data["{name}"] is not {"a string" if kind is str else "an integer"}')
        if data["type"] == "vote" and data["vote"] not in (1, -1):
            raise RequestError("Invalid poll data")
        if data["type"] == "question" and not isAuthor:
            raise RequestError("You can't edit a question unless you are the author.")

    # MARK: Reading

    def base(self, user, narrow):
        """FROM and WHERE of a query for what a person may see within a narrow, and their values."""
        visible = "1" if narrow.public_history else "um.user IS NOT NULL"
        return (
            " FROM messages m LEFT JOIN user_messages um ON um.message = m.id AND um.user = ?"
            f" WHERE {visible} AND {narrow.condition}", [user, *narrow.values])

    def select(self, user, narrow, test, value, order, limit):
        """Up to `limit` messages of a narrow on one side of an id."""
        source, values = self.base(user, narrow)
        cursor = self.store.connection.execute(
            f"SELECT m.*{source} AND m.id {test} ? ORDER BY m.id {order}", [*values, value])
        result = []
        for row in cursor:
            if len(result) == limit:
                break
            if narrow.matches_text(row["content"], row["topic"]):
                result.append(row)
        cursor.close()
        return result

    def anchor(self, user, narrow, text):
        if text in ("newest", "oldest"):
            return NEWEST if text == "newest" else OLDEST
        if text == "first_unread":
            source, values = self.base(user, narrow)
            first = self.store.value(
                f"SELECT MIN(m.id){source} AND um.flags & {flags.READ} = 0", *values)
            return NEWEST if first is None else first
        try:
            return min(max(int(text), OLDEST), NEWEST)
        except ValueError:
            raise RequestError("Invalid anchor") from None

    def around(self, call):
        """The rows around an anchor, and what the answer says about the range."""
        parameters = call.parameters
        text = parameters.text("anchor", None)
        include = parameters.boolean("include_anchor", True)
        before = parameters.integer("num_before", minimum=0)
        after = parameters.integer("num_after", minimum=0)
        narrow = Narrow(self.server, call.user["id"], parameters.array("narrow", default=[]))
        if before + after > FETCH_LIMIT:
            raise RequestError(f"Too many messages requested (maximum {FETCH_LIMIT}).")
        if text is None:
            raise RequestError("Missing 'anchor' argument.")
        user = call.user["id"]
        anchor = self.anchor(user, narrow, text)
        older = self.select(user, narrow, "<", anchor, "DESC", before)[::-1] if before else []
        newer = self.select(user, narrow, ">", anchor, "ASC", after) if after else []
        exact = self.select(user, narrow, "=", anchor, "ASC", 1) if include else []
        return older + exact + newer, narrow, {
            "anchor": anchor, "found_anchor": bool(exact), "history_limited": False,
            "found_oldest": anchor == OLDEST or len(older) < before,
            "found_newest": anchor == NEWEST or len(newer) < after}

    def fetch(self, call):
        parameters = call.parameters
        markdown = parameters.boolean("apply_markdown", True)
        gravatar = parameters.boolean("client_gravatar", True)
        allow_empty = parameters.boolean("allow_empty_topic_name", False)
        parameters.boolean("use_first_unread_anchor", False)
        numbers = parameters.array("message_ids", int, default=None)
        if numbers is None:
            rows, narrow, members = self.around(call)
        else:
            for name in ("anchor", "include_anchor", "num_before", "num_after"):
                if name in parameters.values:
                    raise RequestError(f"The '{name}' parameter is not allowed with message_ids.")
            narrow = Narrow(self.server, call.user["id"], parameters.array("narrow", default=[]))
            rows, members = self.visible(call.user["id"], numbers, narrow), {
                "found_anchor": False, "found_newest": False, "found_oldest": False, "history_limited": False}
        messages = []
        for row in rows:
            message = self.message(row, markdown, gravatar, allow_empty)
            message["flags"] = self.flag_names(call.user["id"], row["id"])
            if narrow.words:
                message |= self.match(row, narrow)
            messages.append(message)
        return {"messages": messages, **members}

    def visible(self, user, numbers, narrow):
        result = []
        for number in sorted(set(numbers))[:FETCH_LIMIT]:
            try:
                self.accessed(user, number)
            except RequestError:
                continue
            source, values = self.base(user, narrow)
            source = source.replace("um.user IS NOT NULL", "1", 1)
            row = self.store.one(f"SELECT m.*{source} AND m.id = ?", *values, number)
            if row is not None and narrow.matches_text(row["content"], row["topic"]):
                result.append(row)
        return result

    @staticmethod
    def match(row, narrow):
        topic = escaped(row["topic"])
        if not narrow.words:
            return {"match_content": row["rendered"], "match_subject": topic}
        return {
            "match_content": highlighted(row["rendered"], narrow.words),
            "match_subject": highlighted(topic, narrow.words)}

    def matches_narrow(self, call):
        numbers = call.parameters.array("msg_ids", int)
        narrow = Narrow(self.server, call.user["id"], call.parameters.array("narrow"))
        rows = self.visible(call.user["id"], numbers, narrow)
        return {"messages": {str(row["id"]): self.match(row, narrow) for row in rows}}

    def one(self, call):
        markdown = call.parameters.boolean("apply_markdown", True)
        allow_empty = call.parameters.boolean("allow_empty_topic_name", False)
        row = self.called(call)
        message = self.message(row, markdown, True, allow_empty)
        message["flags"] = self.flag_names(call.user["id"], row["id"])
        return {"message": message, "raw_content": row["content"]}

    def history(self, call):
        allow_empty = call.parameters.boolean("allow_empty_topic_name", False)
        row = self.called(call)
        content, rendered, topic = row["content"], row["rendered"], row["topic"]
        entries = []
        # The stored history holds what was before each edit, the newest first.
        for edit in json.loads(row["history"]):
            entry = {"user_id": edit["user_id"], "timestamp": edit["timestamp"]}
            entry |= {"topic": self.server.shown_topic(topic, allow_empty), "content": content, "rendered_content": rendered}
            if "prev_topic" in edit:
                topic = edit["prev_topic"]
                entry["prev_topic"] = self.server.shown_topic(topic, allow_empty)
            if "prev_stream" in edit:
                entry |= {"prev_stream": edit["prev_stream"], "stream": edit["stream"]}
            if "prev_content" in edit:
                content = edit["prev_content"]
                entry |= {
                    "prev_content": content, "prev_rendered_content": edit["prev_rendered_content"],
                    "content_html_diff": difference(edit["prev_rendered_content"], rendered)}
                rendered = edit["prev_rendered_content"]
            entries.append(entry)
        entries.append({
            "topic": self.server.shown_topic(topic, allow_empty), "content": content, "rendered_content": rendered,
            "timestamp": int(row["sent"]), "user_id": row["sender"]})
        return {"message_history": entries[::-1]}

    def render(self, call):
        return {"rendered": self.server.render(normal_content(call.parameters.text("content"))).html}

    def read_receipts(self, call):
        row = self.called(call)
        return {"user_ids": self.store.column(
            f"SELECT user FROM user_messages, users u WHERE u.id = user AND NOT u.is_bot AND message = ? AND user != ?"
            f" AND flags & {flags.READ} ORDER BY user", row["id"], row["sender"])}

    # MARK: Editing

    def update(self, call):
        parameters = call.parameters
        content = parameters.text("content", None)
        topic = parameters.text("topic", None, alias="subject")
        stream = parameters.integer("stream_id", None)
        mode = parameters.choice("propagate_mode", ("change_one", "change_later", "change_all"), "change_one")
        notify_old = parameters.boolean("send_notification_to_old_thread", False)
        notify_new = parameters.boolean("send_notification_to_new_thread", True)
        row = self.called(call)
        channel = self.server.channels.of_recipient(row["recipient"])
        if topic is None and content is None and stream is None:
            raise RequestError("Nothing to change")
        if channel is None and stream is not None:
            raise RequestError("Direct messages cannot be moved to channels.")
        if channel is None and topic is not None:
            raise RequestError("Direct messages cannot have topics.")
        if mode != "change_one" and topic is None and stream is None:
            raise RequestError("Invalid propagate_mode without topic edit")
        if stream is not None and content is not None:
            raise RequestError("Cannot change message content while changing channel")
        if self.store.one("SELECT 1 FROM submessages WHERE message = ?", row["id"]) and content is not None:
            raise RequestError("Widgets cannot be edited.")
        target = None
        if stream is not None and stream != channel["id"]:
            target = self.server.channels.target(call.user, stream)
        if topic is not None:
            topic = normal_topic(self.server.topic_of_client(topic))
            if topic == row["topic"]:
                topic = None
        if content is not None:
            self.check_editor(call.user, row)
            content = normal_content(content if content.strip() else "(deleted)")
        edit = {"user_id": call.user["id"], "timestamp": int(time.time())}
        event = {
            "type": "update_message", "user_id": call.user["id"], "edit_timestamp": edit["timestamp"],
            "message_id": row["id"], "message_ids": [row["id"]], "rendering_only": False}
        detached = []
        if channel is not None:
            event |= {"stream_name": channel["name"], "stream_id": channel["id"]}
        if content is not None:
            detached = self.change_content(call.user, row, channel, content, edit, event)
        isMove = topic is not None or target is not None
        if isMove:
            numbers = self.moved_ids(row, mode)
            self.move(row, numbers, channel, target, topic, mode, edit, event)
        elif content is not None:
            self.remember(row["id"], edit)
        self.send_update_events(row["id"], event)
        if isMove:
            self.post_move(call.user, row, channel, target, topic, event["message_ids"], notify_old, notify_new)
        return {"detached_uploads": detached}

    def check_editor(self, user, row):
        if row["sender"] != user["id"]:
            raise RequestError("You don't have permission to edit this message")
        if time.time() - row["sent"] > EDIT_SECONDS:
            raise RequestError("The time limit for editing this message has passed")

    def remember(self, number, edit):
        history = json.loads(self.store.value("SELECT history FROM messages WHERE id = ?", number))
        self.store.run("UPDATE messages SET history = ? WHERE id = ?", json.dumps([edit, *history], ensure_ascii=False), number)

    def change_content(self, user, row, channel, content, edit, event):
        rendered = self.server.render(content)
        edit |= {"prev_content": row["content"], "prev_rendered_content": row["rendered"]}
        event |= {
            "orig_content": row["content"], "orig_rendered_content": row["rendered"], "content": content,
            "rendered_content": rendered.html, "is_me_message": self.is_status(content, rendered.html)}
        self.store.run(
            "UPDATE messages SET content = ?, rendered = ?, edited = ?, has_link = ?, has_image = ?, has_attachment = ?"
            " WHERE id = ?", content, rendered.html, time.time(), rendered.has_link, rendered.has_image,
            bool(rendered.uploads), row["id"])
        for each in self.store.all("SELECT user, flags FROM user_messages WHERE message = ?", row["id"]):
            bits = each["flags"] & ~flags.FROM_CONTENT | self.content_flags(
                each["user"], rendered, content, channel, row["topic"])
            self.store.run(
                "UPDATE user_messages SET flags = ? WHERE user = ? AND message = ?", bits, each["user"], row["id"])
        return self.server.uploads.refer_anew(row["id"], rendered.uploads, user["id"])

    def moved_ids(self, row, mode):
        if mode == "change_one":
            return [row["id"]]
        numbers = self.ids_of_topic(row["recipient"], row["topic"])
        return [number for number in numbers if mode == "change_all" or number >= row["id"]]

    def move(self, row, numbers, channel, target, topic, mode, edit, event):
        event |= {"message_ids": numbers, "propagate_mode": mode, "orig_subject": row["topic"]}
        change = {}
        if topic is not None:
            event |= {"subject": topic, "topic_links": []}
            change |= {"prev_topic": row["topic"], "topic": topic}
        if target is not None:
            event["new_stream_id"] = target["id"]
            change |= {"prev_stream": channel["id"], "stream": target["id"]}
        isResolving = target is None and (topic or "").removeprefix(RESOLVED) == row["topic"].removeprefix(RESOLVED)
        for number in numbers:
            own = edit if number == row["id"] else {"user_id": edit["user_id"], "timestamp": edit["timestamp"]}
            self.remember(number, own | change)
            self.store.run(
                "UPDATE messages SET topic = ?, recipient = ? WHERE id = ?", row["topic"] if topic is None else topic,
                row["recipient"] if target is None else target["recipient"], number)
            if not isResolving:
                self.store.run("UPDATE messages SET moved = ? WHERE id = ?", time.time(), number)
        if target is not None and target["private"]:
            keepers = self.server.channels.subscribers(target["id"])
            for number in numbers:
                for user in self.audience(number):
                    if user not in keepers:
                        self.store.run("DELETE FROM user_messages WHERE user = ? AND message = ?", user, number)

    def send_update_events(self, number, event):
        channel = self.server.channels.of_recipient(self.row(number)["recipient"])
        users = set(self.audience(number))
        if channel is not None:
            users |= set(self.server.channels.subscribers(channel["id"]))
        for queue in self.server.queues.of(users, "update_message"):
            own = event | {"flags": self.flag_names(queue.user, number)}
            for name in ("subject", "orig_subject"):
                if name in own:
                    own[name] = self.server.shown_topic(own[name], "empty_topic_name" in queue.capabilities)
            self.server.queues.push(queue, own)

    def post_move(self, user, row, channel, target, topic, numbers, notify_old, notify_new):
        """Notification Bot writes where messages came from and went to, or that a topic is resolved."""
        channels = self.server.channels
        place = channel if target is None else target
        name = row["topic"] if topic is None else topic
        who = channels.silent(user)
        old = f"#**{channel['name']}>{row['topic']}**"
        isLeft = self.has_topic(row["recipient"], row["topic"])
        if target is None and name.removeprefix(RESOLVED) == row["topic"].removeprefix(RESOLVED):
            if name.startswith(RESOLVED) != row["topic"].startswith(RESOLVED):
                word = "resolved" if name.startswith(RESOLVED) else "unresolved"
                channels.notice(place, f"{who} has marked this topic as {word}.", name)
            return
        wasThere = len(self.ids_of_topic(place["recipient"], name)) > len(numbers)
        near = (
            f"{self.server.address}/#narrow/channel/{place['id']}-{topic_escaped(place['name'].replace(' ', '-'))}"
            f"/topic/{topic_escaped(name)}/near/{numbers[0]}")
        if notify_new:
            if not wasThere and not isLeft:
                text = f"This topic was moved here from {old} by {who}."
            elif len(numbers) == 1:
                text = f"[A message]({near}) was moved here from {old} by {who}."
            else:
                text = f"{len(numbers)} messages were moved here from {old} by {who}."
            channels.notice(place, text, name)
        if notify_old:
            new = f"#**{place['name']}>{name}**"
            if not isLeft:
                text = f"This topic was moved to {new} by {who}."
            elif len(numbers) == 1:
                text = f"A message was moved from this topic to {new} by {who}."
            else:
                text = f"{len(numbers)} messages were moved from this topic to {new} by {who}."
            channels.notice(channel, text, row["topic"])

    # MARK: Deleting

    def delete(self, call):
        row = self.called(call)
        if call.user["role"] > ADMINISTRATOR:
            if row["sender"] != call.user["id"]:
                raise RequestError("You don't have permission to delete this message")
            if time.time() - row["sent"] > EDIT_SECONDS:
                raise RequestError("The time limit for deleting this message has passed")
        self.remove(call.user, [row["id"]])
        return {}

    def remove(self, actor, numbers):
        for number in numbers:
            row = self.row(number)
            channel = self.server.channels.of_recipient(row["recipient"])
            users = set(self.audience(number)) | {actor["id"]}
            if channel is not None:
                users |= set(self.server.channels.subscribers(channel["id"]))
            for queue in self.server.queues.of(users, "delete_message"):
                many = "bulk_message_deletion" in queue.capabilities
                event = {"type": "delete_message", **({"message_ids": [number]} if many else {"message_id": number})}
                if channel is None:
                    event["message_type"] = "private"
                else:
                    event |= {
                        "message_type": "stream", "stream_id": channel["id"],
                        "topic": self.server.shown_topic(row["topic"], "empty_topic_name" in queue.capabilities)}
                self.server.queues.push(queue, event)
            for table in ("user_messages", "reactions", "submessages", "attachment_messages"):
                self.store.run(f"DELETE FROM {table} WHERE message = ?", number)
            self.store.run("DELETE FROM messages WHERE id = ?", number)

    # MARK: Reactions

    def reaction_of_request(self, call):
        name = call.parameters.text("emoji_name", None)
        code = call.parameters.text("emoji_code", None)
        kind = call.parameters.text("reaction_type", None)
        return emoji(name, code, kind)

    def react(self, call):
        name, code, kind = self.reaction_of_request(call)
        row = self.called(call)
        if self.store.one(
                "SELECT 1 FROM reactions WHERE message = ? AND user = ? AND code = ? AND kind = ?",
                row["id"], call.user["id"], code, kind):
            raise RequestError("Reaction already exists.", "REACTION_ALREADY_EXISTS")
        self.store.insert("reactions", message=row["id"], user=call.user["id"], name=name, code=code, kind=kind)
        self.send_reaction(call.user, row, "add", name, code, kind)
        return {}

    def unreact(self, call):
        name, code, kind = self.reaction_of_request(call)
        row = self.called(call)
        if not self.store.changed(
                "DELETE FROM reactions WHERE message = ? AND user = ? AND code = ? AND kind = ?",
                row["id"], call.user["id"], code, kind):
            raise RequestError("Reaction doesn't exist.", "REACTION_DOES_NOT_EXIST")
        self.send_reaction(call.user, row, "remove", name, code, kind)
        return {}

    def send_reaction(self, user, row, operation, name, code, kind):
        self.server.queues.send(self.audience(row["id"]), {
            "type": "reaction", "op": operation, "user_id": user["id"], "message_id": row["id"], "emoji_name": name,
            "emoji_code": code, "reaction_type": kind,
            "user": {"user_id": user["id"], "email": user["email"], "full_name": user["full_name"]}})

    # MARK: Flags

    def change_flag(self, user, numbers, operation, flag, everything=False):
        """Returns the messages that the change is for, and the channels left out as nobody may unread in them."""
        if flag not in flags.BITS:
            raise RequestError(f"Invalid flag: '{flag}'")
        if flag not in flags.EDITABLE:
            raise RequestError(f"Flag not editable: '{flag}'")
        bit, changed, ignored = flags.BITS[flag], [], set()
        for number in numbers:
            bits = self.flags_of(user, number)
            row = self.row(number)
            channel = self.server.channels.of_recipient(row["recipient"])
            if flag == "read" and operation == "remove" and channel is not None \
                    and not self.server.channels.is_subscribed(user, channel["id"]):
                ignored.add(channel["id"])
                continue
            if bits is None:
                bits = flags.READ | flags.HISTORICAL
                self.store.insert("user_messages", user=user, message=number, flags=bits)
            if bool(bits & bit) == (operation == "add"):
                continue
            self.store.run(
                "UPDATE user_messages SET flags = ? WHERE user = ? AND message = ?", bits ^ bit, user, number)
            changed.append(number)
        if changed:
            event = {
                "type": "update_message_flags", "op": operation, "operation": operation, "flag": flag,
                "messages": changed, "all": everything}
            if flag == "read" and operation == "remove":
                event["message_details"] = {str(number): self.detail(user, number) for number in changed}
            self.server.queues.send([user], event)
        return changed, sorted(ignored)

    def detail(self, user, number):
        row = self.row(number)
        members = self.direct_members(row["recipient"])
        result = {"type": "private" if members else "stream", "mentioned": bool(self.flags_of(user, number) & flags.ANY_MENTION)}
        if members:
            return result | {"user_ids": [member for member in members if member != user]}
        return result | {"stream_id": self.server.channels.of_recipient(row["recipient"])["id"], "topic": row["topic"]}

    def update_flags(self, call):
        numbers = call.parameters.array("messages", int)
        operation = call.parameters.choice("op", ("add", "remove"))
        flag = call.parameters.text("flag")
        for number in numbers:
            self.accessed(call.user["id"], number)
        _, ignored = self.change_flag(call.user["id"], numbers, operation, flag)
        answer = {"messages": numbers}
        if flag == "read" and operation == "remove":
            answer["ignored_because_not_subscribed_channels"] = ignored
        return answer

    def update_flags_in_narrow(self, call):
        operation = call.parameters.choice("op", ("add", "remove"))
        flag = call.parameters.text("flag")
        call.parameters.array("narrow")
        rows, _, members = self.around(call)
        numbers = [row["id"] for row in rows]
        changed, ignored = self.change_flag(call.user["id"], numbers, operation, flag)
        answer = {
            "processed_count": len(numbers), "updated_count": len(changed),
            "first_processed_id": numbers[0] if numbers else None, "last_processed_id": numbers[-1] if numbers else None,
            "found_oldest": members["found_oldest"], "found_newest": members["found_newest"]}
        if flag == "read" and operation == "remove":
            answer["ignored_because_not_subscribed_channels"] = ignored
        return answer

    def unread(self, user, condition="1", *values):
        return self.store.column(
            "SELECT m.id FROM messages m, user_messages um WHERE um.message = m.id AND um.user = ?"
            f" AND um.flags & {flags.READ} = 0 AND {condition} ORDER BY m.id", user, *values)

    def mark_all(self, call):
        self.change_flag(call.user["id"], self.unread(call.user["id"]), "add", "read")
        return {"complete": True}

    def mark_channel(self, call):
        channel = self.channel_parameter(call)
        self.change_flag(call.user["id"], self.unread(call.user["id"], "m.recipient = ?", channel["recipient"]), "add", "read")
        return {}

    def mark_topic(self, call):
        topic = self.server.topic_of_client(call.parameters.text("topic_name"))
        channel = self.channel_parameter(call)
        numbers = self.unread(
            call.user["id"], "m.recipient = ? AND folded(m.topic) = ?", channel["recipient"], topic.casefold())
        if not numbers and not self.has_topic(channel["recipient"], topic):
            raise RequestError(f"No such topic '{topic}'")
        self.change_flag(call.user["id"], numbers, "add", "read")
        return {}

    def channel_parameter(self, call):
        channel = self.server.channels.visible(call.user["id"], call.parameters.integer("stream_id"))
        if channel is None:
            raise RequestError("Invalid channel ID")
        return channel

    # MARK: Typing

    def typing(self, call):
        parameters = call.parameters
        kind = parameters.choice("type", ("direct", "private", "stream", "channel"), "direct")
        operation = parameters.choice("op", ("start", "stop"))
        to = parameters.json("to", None)
        stream = parameters.integer("stream_id", None)
        topic = parameters.text("topic", None)
        sender = {"user_id": call.user["id"], "email": call.user["email"]}
        event = {"type": "typing", "op": operation, "sender": sender}
        if kind in ("direct", "private"):
            if to is None:
                raise RequestError("Missing 'to' argument")
            if not isinstance(to, list) or not to:
                raise RequestError("Empty 'to' list")
            people = self.people_indicator(call.user, json.dumps(to))
            event |= {"message_type": "direct", "recipients": [
                {"user_id": person, "email": self.server.people.find(person)["email"]} for person in people]}
            self.server.queues.send(people, event)
            return {}
        if stream is None and isinstance(to, (int, list)):
            stream = to if isinstance(to, int) else (to[0] if len(to) == 1 else None)
        if stream is None:
            raise RequestError("Missing stream_id")
        if topic is None:
            raise RequestError("Missing topic")
        channel = self.server.channels.visible(call.user["id"], stream)
        if channel is None:
            raise RequestError("Invalid channel ID")
        topic = self.topic(topic)
        for queue in self.server.queues.of(self.server.channels.subscribers(channel["id"]), "typing"):
            if "stream_typing_notifications" in queue.capabilities:
                self.server.queues.push(queue, event | {
                    "message_type": "stream", "stream_id": channel["id"],
                    "topic": self.server.shown_topic(topic, "empty_topic_name" in queue.capabilities)})
        return {}

    def typing_edit(self, call):
        operation = call.parameters.choice("op", ("start", "stop"))
        row = self.called(call)
        if row["sender"] != call.user["id"]:
            raise RequestError("You don't have permission to edit this message")
        members = self.direct_members(row["recipient"])
        if members is None:
            channel = self.server.channels.of_recipient(row["recipient"])
            recipient = {"type": "channel", "channel_id": channel["id"], "topic": row["topic"]}
        else:
            recipient = {"type": "direct", "user_ids": members}
        self.server.queues.send(self.audience(row["id"]), {
            "type": "typing_edit_message", "op": operation, "sender_id": call.user["id"], "message_id": row["id"],
            "recipient": recipient})
        return {}


def difference(old, new):
    """The words that two renderings differ in, marked as the message history shows them."""
    def words(markup):
        return re.sub(r"<[^>]*>", " ", markup).split()

    before, after = words(old), words(new)
    parts = []
    for kind, first, last, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            parts += before[first:last]
            continue
        if end > start:
            parts.append(f'<span class="highlight_text_inserted">{" ".join(after[start:end])}</span>')
        if last > first:
            parts.append(f'<span class="highlight_text_deleted">{" ".join(before[first:last])}</span>')
    return f"<div><p>{' '.join(parts)}</p></div>"
