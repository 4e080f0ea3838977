"""What a person keeps for themselves: drafts, scheduled messages, snippets, alert words, topic settings, commands."""

import json
import time

from .errors import RequestError
from .messages import normal_content, truncated, CONTENT_LIMIT, TOPIC_LIMIT

TITLE_LIMIT = 60
WORD_LIMIT = 100
DRAFT_LIMIT = 1_000


class Personal:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def notify(self, user, kind, operation, **members):
        self.server.queues.send([user], {"type": kind, "op": operation, **members})

    # MARK: Drafts

    @staticmethod
    def draft(row):
        return {
            "id": row["id"], "type": row["type"], "to": json.loads(row["recipients"]), "topic": row["topic"],
            "content": row["content"], "timestamp": int(row["edited"])}

    def all_drafts(self, user):
        return [self.draft(row) for row in self.store.all(
            "SELECT * FROM drafts WHERE user = ? ORDER BY edited DESC, id DESC", user)]

    def drafts(self, call):
        drafts = self.all_drafts(call.user["id"])
        return {"count": len(drafts), "drafts": drafts}

    def checked_draft(self, user, draft):
        """The columns of a draft that a client sent."""
        kind, to, topic, content = (draft.get(name) for name in ("type", "to", "topic", "content"))
        if kind not in ("", "stream", "private") or not isinstance(to, list) \
                or not all(isinstance(each, int) for each in to) \
                or not isinstance(topic, str) or not isinstance(content, str):
            raise RequestError("drafts[0] is invalid")
        if "\0" in topic:
            raise RequestError("Topic must not contain null bytes")
        content = normal_content(content)
        if kind == "stream":
            if len(to) != 1:
                raise RequestError("Must specify exactly 1 channel ID for channel messages")
            if self.server.channels.visible(user, to[0]) is None:
                raise RequestError("Invalid channel ID")
            topic = truncated(topic.strip(), TOPIC_LIMIT, "...")
        else:
            topic = ""
            for each in to if kind == "private" else []:
                if self.server.people.find(each) is None:
                    raise RequestError(f"Invalid user ID {each}")
        return {
            "type": kind, "recipients": json.dumps(to if kind else []), "topic": topic, "content": content,
            "edited": draft["timestamp"] if isinstance(draft.get("timestamp"), (int, float)) else time.time()}

    def add_drafts(self, call):
        drafts = call.parameters.array("drafts", dict)
        user = call.user["id"]
        checked = [self.checked_draft(user, draft) for draft in drafts]
        if self.store.value("SELECT COUNT(*) FROM drafts WHERE user = ?", user) + len(checked) > DRAFT_LIMIT:
            raise RequestError("Too many drafts")
        numbers = [self.store.insert("drafts", user=user, **draft) for draft in checked]
        rows = [self.own("drafts", user, number, "Draft does not exist") for number in numbers]
        self.notify(user, "drafts", "add", drafts=[self.draft(row) for row in rows])
        return {"ids": numbers}

    def own(self, table, user, number, message):
        row = self.store.one(f"SELECT * FROM {table} WHERE id = ? AND user = ?", number, user)
        if row is None:
            raise RequestError(message, status=404)
        return row

    def change_draft(self, call):
        draft = call.parameters.object("draft")
        number, user = int(call.path["number"]), call.user["id"]
        self.own("drafts", user, number, "Draft does not exist")
        columns = self.checked_draft(user, draft)
        self.store.run(
            f"UPDATE drafts SET {', '.join(name + ' = ?' for name in columns)} WHERE id = ?", *columns.values(), number)
        self.notify(user, "drafts", "update", draft=self.draft(self.own("drafts", user, number, "")))
        return {}

    def remove_draft(self, call):
        number, user = int(call.path["number"]), call.user["id"]
        self.own("drafts", user, number, "Draft does not exist")
        self.store.run("DELETE FROM drafts WHERE id = ?", number)
        self.notify(user, "drafts", "remove", draft_id=number)
        return {}

    # MARK: Scheduled messages

    @staticmethod
    def scheduled(row):
        to = json.loads(row["recipients"])
        result = {
            "scheduled_message_id": row["id"], "type": row["type"], "to": to, "content": row["content"],
            "rendered_content": row["rendered"], "scheduled_delivery_timestamp": row["due"],
            "failed": bool(row["failed"])}
        return result | ({"topic": row["topic"]} if row["type"] == "stream" else {})

    def all_scheduled(self, user):
        return [self.scheduled(row) for row in self.store.all(
            "SELECT * FROM scheduled WHERE user = ? ORDER BY due, id", user)]

    def list_scheduled(self, call):
        return {"scheduled_messages": self.all_scheduled(call.user["id"])}

    @staticmethod
    def checked_due(due):
        if due is not None and due <= time.time():
            raise RequestError("Scheduled delivery time must be in the future.")
        return due

    @staticmethod
    def scheduled_columns(channel, topic, people, sender):
        if channel is not None:
            return {"type": "stream", "recipients": str(channel["id"]), "topic": topic}
        others = [each for each in people if each != sender] or [sender]
        return {"type": "private", "recipients": json.dumps(others), "topic": ""}

    def schedule(self, call):
        content = call.parameters.text("content")
        due = self.checked_due(call.parameters.integer("scheduled_delivery_timestamp"))
        call.parameters.boolean("read_by_sender", None)
        channel, topic, people = self.server.messages.recipients_of_request(call)
        user, content = call.user["id"], normal_content(content)
        number = self.store.insert(
            "scheduled", user=user, content=content, rendered=self.server.render(content).html, due=due,
            client=call.client, **self.scheduled_columns(channel, topic, people, user))
        row = self.own("scheduled", user, number, "")
        self.notify(user, "scheduled_messages", "add", scheduled_messages=[self.scheduled(row)])
        self.server.arm()
        return {"scheduled_message_id": number}

    def reschedule(self, call):
        parameters = call.parameters
        content = parameters.text("content", None)
        due = self.checked_due(parameters.integer("scheduled_delivery_timestamp", None))
        topic = parameters.text("topic", None)
        kind = parameters.text("type", None)
        to = parameters.text("to", None)
        user, number = call.user["id"], int(call.path["number"])
        row = self.own("scheduled", user, number, "Scheduled message does not exist")
        if all(value is None for value in (content, due, topic, kind, to)):
            raise RequestError("Nothing to change")
        if kind is not None and to is None:
            raise RequestError("Recipient required when updating type of scheduled message.")
        columns = {"failed": 0}
        if to is not None:
            parameters.values.setdefault("type", "channel" if row["type"] == "stream" else "direct")
            channel, new_topic, people = self.server.messages.recipients_of_request(call, optional_topic=True)
            columns |= self.scheduled_columns(channel, new_topic if topic is not None else row["topic"], people, user)
        elif topic is not None:
            columns["topic"] = self.server.messages.topic(topic)
        if content is not None:
            content = normal_content(content)
            columns |= {"content": content, "rendered": self.server.render(content).html}
        if due is not None:
            columns["due"] = due
        self.store.run(
            f"UPDATE scheduled SET {', '.join(name + ' = ?' for name in columns)} WHERE id = ?", *columns.values(), number)
        row = self.own("scheduled", user, number, "")
        self.notify(user, "scheduled_messages", "update", scheduled_message=self.scheduled(row))
        self.server.arm()
        return {}

    def unschedule(self, call):
        user, number = call.user["id"], int(call.path["number"])
        self.own("scheduled", user, number, "Scheduled message does not exist")
        self.drop_scheduled(user, number)
        return {}

    def drop_scheduled(self, user, number):
        self.store.run("DELETE FROM scheduled WHERE id = ?", number)
        self.notify(user, "scheduled_messages", "remove", scheduled_message_id=number)

    def next_due(self):
        return self.store.value("SELECT MIN(due) FROM scheduled WHERE NOT failed")

    def send_due(self):
        """Sends the scheduled messages whose time has come."""
        for row in self.store.all("SELECT * FROM scheduled WHERE NOT failed AND due <= ? ORDER BY due, id", time.time()):
            sender, to = self.server.people.find(row["user"]), json.loads(row["recipients"])
            try:
                channel = self.server.channels.target(sender, to) if row["type"] == "stream" else None
            except RequestError:
                self.store.run("UPDATE scheduled SET failed = 1 WHERE id = ?", row["id"])
                failed = self.own("scheduled", row["user"], row["id"], "")
                self.notify(row["user"], "scheduled_messages", "update", scheduled_message=self.scheduled(failed))
                continue
            people = [] if channel is not None else sorted({sender["id"], *to})
            self.server.messages.deliver(sender, channel, row["topic"], people, row["content"], row["client"])
            self.drop_scheduled(row["user"], row["id"])

    # MARK: Snippets

    @staticmethod
    def snippet(row):
        return {
            "id": row["id"], "title": row["title"], "content": row["content"], "date_created": int(row["created"])}

    def all_snippets(self, user):
        return [self.snippet(row) for row in self.store.all("SELECT * FROM snippets WHERE user = ? ORDER BY id", user)]

    def snippets(self, call):
        return {"saved_snippets": self.all_snippets(call.user["id"])}

    @staticmethod
    def checked_snippet(title, content):
        if title is not None and not title:
            raise RequestError("Title cannot be empty.")
        if content is not None and not content:
            raise RequestError("Content cannot be empty.")

    def add_snippet(self, call):
        title = call.parameters.text("title", limit=TITLE_LIMIT, strip=True)
        content = call.parameters.text("content", limit=CONTENT_LIMIT, strip=True)
        self.checked_snippet(title, content)
        user = call.user["id"]
        number = self.store.insert("snippets", user=user, title=title, content=content, created=time.time())
        self.notify(user, "saved_snippets", "add", saved_snippet=self.snippet(self.own("snippets", user, number, "")))
        return {"saved_snippet_id": number}

    def change_snippet(self, call):
        title = call.parameters.text("title", None, limit=TITLE_LIMIT, strip=True)
        content = call.parameters.text("content", None, limit=CONTENT_LIMIT, strip=True)
        user, number = call.user["id"], int(call.path["number"])
        row = self.own("snippets", user, number, "Saved snippet does not exist.")
        if title is None and content is None:
            raise RequestError("No new data is supplied")
        self.checked_snippet(title, content)
        self.store.run(
            "UPDATE snippets SET title = ?, content = ? WHERE id = ?",
            row["title"] if title is None else title, row["content"] if content is None else content, number)
        self.notify(user, "saved_snippets", "update", saved_snippet=self.snippet(self.own("snippets", user, number, "")))
        return {}

    def remove_snippet(self, call):
        user, number = call.user["id"], int(call.path["number"])
        self.own("snippets", user, number, "Saved snippet does not exist.")
        self.store.run("DELETE FROM snippets WHERE id = ?", number)
        self.notify(user, "saved_snippets", "remove", saved_snippet_id=number)
        return {}

    # MARK: Alert words

    def words(self, user):
        return self.store.column("SELECT word FROM alert_words WHERE user = ? ORDER BY rowid", user)

    def alert_words(self, call):
        return {"alert_words": self.words(call.user["id"])}

    def add_alert_words(self, call):
        words = [word.strip() for word in call.parameters.array("alert_words", str)]
        for index, word in enumerate(words):
            if len(word) > WORD_LIMIT:
                raise RequestError(f"alert_words[{index}] is too long (limit: {WORD_LIMIT} characters)")
        for word in words:
            if word:
                self.store.run("INSERT OR IGNORE INTO alert_words VALUES (?, ?)", call.user["id"], word)
        return self.send_words(call.user["id"])

    def remove_alert_words(self, call):
        for word in call.parameters.array("alert_words", str):
            self.store.run("DELETE FROM alert_words WHERE user = ? AND word = ?", call.user["id"], word.strip())
        return self.send_words(call.user["id"])

    def send_words(self, user):
        words = self.words(user)
        self.server.queues.send([user], {"type": "alert_words", "alert_words": words})
        return {"alert_words": words}

    # MARK: Topics

    def topic_policies(self, user):
        return [
            {"stream_id": row["stream"], "topic_name": row["topic"], "last_updated": int(row["updated"]),
             "visibility_policy": row["policy"]}
            for row in self.store.all("SELECT * FROM user_topics WHERE user = ? ORDER BY rowid", user)]

    def set_topic_policy(self, user, stream, topic, policy):
        self.store.run(
            "DELETE FROM user_topics WHERE user = ? AND stream = ? AND folded(topic) = ?", user, stream, topic.casefold())
        now = time.time()
        if policy:
            self.store.insert("user_topics", user=user, stream=stream, topic=topic, policy=policy, updated=now)
        for queue in self.server.queues.of([user], "user_topic"):
            self.server.queues.push(queue, {
                "type": "user_topic", "stream_id": stream, "last_updated": int(now), "visibility_policy": policy,
                "topic_name": self.server.shown_topic(topic, "empty_topic_name" in queue.capabilities)})
        return policy

    def update_topic(self, call):
        topic = self.server.messages.topic(call.parameters.text("topic"))
        policy = call.parameters.integer("visibility_policy")
        channel = self.server.messages.channel_parameter(call)
        if policy not in (0, 1, 2, 3):
            raise RequestError("Invalid visibility_policy")
        self.set_topic_policy(call.user["id"], channel["id"], topic, policy)
        return {}

    def mute_topic(self, call):
        stream = call.parameters.text("stream", None)
        number = call.parameters.integer("stream_id", None)
        topic = self.server.messages.topic(call.parameters.text("topic"))
        operation = call.parameters.choice("op", ("add", "remove"))
        if (stream is None) == (number is None):
            raise RequestError("Please choose one: 'stream' or 'stream_id'.")
        channel = self.server.channels.visible(call.user["id"], stream if number is None else number)
        if channel is None:
            raise RequestError("Invalid channel ID" if stream is None else f"Invalid channel name '{stream}'")
        self.set_topic_policy(call.user["id"], channel["id"], topic, 1 if operation == "add" else 0)
        return {}

    # MARK: Commands

    @staticmethod
    def command(call):
        text = call.parameters.text("command")
        if not text.startswith("/"):
            raise RequestError("There should be a leading slash in the zcommand.")
        name = text[1:].split()[0] if text[1:].split() else ""
        if name != "ping":
            raise RequestError(f"No such command: {name}")
        return {}
