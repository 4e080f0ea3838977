#!/usr/bin/env python3
"""Plays a fixed sequence of steps with the zulip library against a server, and prints what each one brought.

usage: steps.py A B [--canaries FILE] [--heartbeat] [--account EMAIL,PASSWORD,NAME]...

A is the address that Anna and Ben use, B the one of Oda, the outsider: http://HOST:PORT. The server is fresh. One line of
JSON for each step: its name, who did it, what was called, the answer, and the events that each of the three got up to then,
in order. Ids, times and keys are placeholders, numbered as they appear, so that the lines of two runs can be compared.
`--canaries` writes the distinct words that stand in what people write: `WORD KIND` in each line. `--heartbeat` adds a step
that waits for a heartbeat.
"""

import argparse
import io
import json
import re
import threading
import time

import requests
import zulip

ACCOUNTS = [
    "anna@standin.test,anna-password,Anna Arden", "ben@standin.test,ben-password,Ben Bishop",
    "oda@standin.test,oda-password,Oda Outside",
]
CAPABILITIES = {
    "bulk_message_deletion": True, "stream_typing_notifications": True, "empty_topic_name": True,
    "user_avatar_url_field_optional": True, "notification_settings_null": True, "user_settings_object": True,
}
NEWEST = 10_000_000_000_000_000
FAR = 4_000_000_000
# What has not come after this is not going to. Waits end with what they wait for, so this only bounds a failure.
DEADLINE_SECONDS = 600


class Patient(requests.adapters.HTTPAdapter):
    """Waits longer than the library's 15 seconds, which pass on a busy machine."""

    def send(self, request, *arguments, timeout=None, **named):
        return super().send(request, *arguments, timeout=DEADLINE_SECONDS, **named)


def wait_long(client):
    client.ensure_session()
    client.session.mount("http://", Patient())


class Placeholders:
    """Replaces what differs between two runs."""

    BY_KEY = {
        "message": (
            "message_id", "message_ids", "max_message_id", "first_message_id", "first_processed_id", "last_processed_id",
            "unread_message_ids", "max_id", "messages", "starred_messages", "mentions"),
        "person": ("user_id", "user_ids", "sender_id", "creator_id", "other_user_id", "subscribers"),
        "channel": (
            "stream_id", "stream_ids", "new_stream_id", "prev_stream", "stream", "channel_id",
            "ignored_because_not_subscribed_channels"),
        "recipient": ("recipient_id",), "submessage": ("submessage_id",), "draft": ("draft_id", "ids"),
        "scheduled": ("scheduled_message_id",), "snippet": ("saved_snippet_id",), "queue": ("queue_id",),
    }
    KEYED = {
        "subscribed": "person", "already_subscribed": "person", "messages": "message", "user_status": "person",
        "message_details": "message",
    }
    TIMES = {
        "timestamp", "edit_timestamp", "last_edit_timestamp", "last_moved_timestamp", "date_created", "date_joined",
        "date_sent", "create_time", "last_updated", "server_timestamp", "active_timestamp", "idle_timestamp",
        "scheduled_delivery_timestamp",
    }
    HIDDEN = {"api_key": "<key>", "realm_url": "<site>", "realm_uri": "<site>", "user_ids_string": "<people>"}
    TEXTS = (
        (r'data-user-id="(\d+)"', "person"), (r"\|(\d+)\*\*", "person"), (r'data-stream-id="(\d+)"', "channel"),
        (r"#narrow/channel/(\d+)", "channel"), (r"/near/(\d+)", "message"), (r"@(\d+)\*\*", "message"),
        (r"user_uploads/(\d+/[0-9a-f]{2}/[A-Za-z0-9_-]{24})", "upload"), (r"^(\d+/[0-9a-f]{2}/[A-Za-z0-9_-]{24})/", "upload"),
        (r"temporary/([0-9a-f]{64})", "token"), (r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", "queue"),
    )

    def __init__(self, sites):
        self.sites = sorted(sites, key=len, reverse=True)
        self.kinds = {key: kind for kind, keys in self.BY_KEY.items() for key in keys}
        self.numbers = {}

    def number(self, kind, value):
        known = self.numbers.setdefault(kind, {})
        return f"<{kind} {known.setdefault(str(value), len(known) + 1)}>"

    def text(self, text):
        for site in self.sites:
            text = text.replace(site, "<site>")
        for pattern, kind in self.TEXTS:
            text = re.sub(
                pattern, lambda match: match[0].replace(match[1], self.number(kind, match[1])), text)
        return text

    def value(self, value, key=None):
        if isinstance(value, dict):
            return self.members(value, key)
        if isinstance(value, list):
            return [self.value(each, key) for each in value]
        if isinstance(value, bool) or value is None:
            return value
        if key in self.HIDDEN:
            return self.HIDDEN[key]
        if key in self.TIMES:
            return "<time>"
        if key == "anchor":
            return value if value in (0, NEWEST) else self.number("message", value)
        if key in self.kinds and (isinstance(value, int) or key == "queue_id") and value != -1:
            return self.number(self.kinds[key], value)
        return self.text(value) if isinstance(value, str) else value

    def members(self, members, key):
        kind = self.kind_of_id(members, key)
        result = {}
        for name in sorted(members):
            value = members[name]
            if name == "id":
                result[name] = "<event>" if kind == "event" else self.number(kind, value)
            elif name == "to":
                private = members.get("type") != "stream"
                result[name] = self.value(value, "user_ids" if private else "stream_id")
            elif key in self.KEYED and name.isdigit():
                result[self.number(self.KEYED[key], name)] = self.value(value)
            else:
                result[self.text(name)] = self.value(value, name)
        return result

    @staticmethod
    def kind_of_id(members, key):
        for marks, kind in (
                ({"full_name"}, "person"), ({"display_recipient"}, "message"), ({"msg_type", "sender_id", "content"}, "submessage"),
                ({"path_id"}, "attachment"), ({"date_sent"}, "message"), ({"title"}, "snippet"), ({"to"}, "draft"),
                ({"result"}, "message")):
            if marks <= set(members) and not (kind == "submessage" and "submessage_id" in members):
                return kind
        return "attachment" if key == "attachment" else "event"


class Person:
    def __init__(self, name, site, account):
        self.name, self.site = name, site
        self.email, self.password, self.full_name = account.split(",", 2)
        self.key = self.client = self.id = self.queue = None
        self.last = -1

    def raw(self, method, path, data=None, key=None, anonymous=False, files=None):
        """A request without the library."""
        answer = requests.request(
            method, self.site + path, timeout=DEADLINE_SECONDS, files=files,
            auth=None if anonymous else (self.email, self.key if key is None else key),
            **{"params" if method == "GET" else "data": data})
        kind = answer.headers.get("Content-Type", "")
        body = answer.json() if kind.startswith("application/json") else answer.text
        return {"status": answer.status_code, "type": kind.split(";")[0], "body": body}


class Play:
    def __init__(self, arguments):
        accounts = arguments.account or ACCOUNTS
        self.anna = Person("anna", arguments.a, accounts[0])
        self.ben = Person("ben", arguments.a, accounts[1])
        self.oda = Person("oda", arguments.b, accounts[2])
        self.people = [self.anna, self.ben, self.oda]
        self.placeholders = Placeholders({arguments.a, arguments.b})
        self.canaries = []
        self.marks = 0
        self.listening = False

    # MARK: Texts

    def text(self, kind, rest=""):
        """A text that holds a word of its own."""
        word = f"canary{len(self.canaries) + 1:03d}{re.sub('[^a-z]', '', kind)}"
        self.canaries.append((word, kind))
        return word + rest

    # MARK: Steps

    def step(self, name, person, called, work):
        """Does one thing; prints its answer and what everyone got until then. Returns the answer as it came.

        A message that was rejected has the id 0 in later steps, so that the play goes on and the lines show it.
        """
        answer = work()
        line = {"step": name, "person": person.name, "called": called, "answer": self.placeholders.value(answer)}
        if self.listening:
            line["events"] = self.events()
        print(json.dumps(line, ensure_ascii=False), flush=True)
        return answer

    def library(self, name, person, method, *arguments, **named):
        return self.step(name, person, method, lambda: getattr(person.client, method)(*arguments, **named))

    def shown(self, path):
        """A path without the ids in it."""
        return re.sub(r"(?<=/)\d+(?=/|$)", "{id}", self.placeholders.text(path))

    def endpoint(self, name, person, method, path, request=None):
        """A call that the library has no method for, through its `call_endpoint`."""
        return self.step(
            name, person, f"{method} {self.shown(path)}", lambda: person.client.call_endpoint(path, method, request))

    def raw(self, name, person, method, path, data=None, **named):
        return self.step(
            name, person, f"raw {method} {self.shown(path)}", lambda: person.raw(method, path, data, **named))

    def events(self):
        """What everyone got before a mark that reaches all: Anna's status changes to another emoji."""
        self.marks += 1
        emoji = ("hourglass", "time_ticking")[self.marks % 2]
        answer = self.anna.client.call_endpoint("users/me/status", "POST", {"emoji_name": emoji})
        if answer["result"] != "success":
            raise SystemExit(f"the mark was rejected: {answer}")
        result = {}
        for person in self.people:
            found = []
            while True:
                answer = person.client.get_events(queue_id=person.queue, last_event_id=person.last)
                if answer["result"] != "success":
                    raise SystemExit(f"{person.name} cannot read events: {answer}")
                for event in answer["events"]:
                    person.last = event["id"]
                    if event["type"] != "heartbeat":
                        found.append(event)
                if any(self.is_mark(event, emoji) for event in found):
                    break
            if not self.is_mark(found[-1], emoji):
                raise SystemExit(f"{person.name} got events after the mark: {found}")
            if found[:-1]:
                result[person.name] = self.placeholders.value(found[:-1])
        return result

    def is_mark(self, event, emoji):
        return event["type"] == "user_status" and event["user_id"] == self.anna.id and event.get("emoji_name") == emoji

    # MARK: The parts of the play

    def logins(self):
        for person in self.people:
            answer = self.raw(
                "log in", person, "POST", "/api/v1/fetch_api_key",
                {"username": person.email, "password": person.password}, anonymous=True)
            person.key, person.id = answer["body"]["api_key"], answer["body"]["user_id"]
        anna = self.anna
        self.raw("log in with a wrong password", anna, "POST", "/api/v1/fetch_api_key",
                 {"username": anna.email, "password": "wrong"}, anonymous=True)
        self.raw("log in without a password", anna, "POST", "/api/v1/fetch_api_key", {"username": anna.email}, anonymous=True)
        self.raw("ask without a key", anna, "GET", "/api/v1/users/me", anonymous=True)
        self.raw("ask with a malformed key", anna, "GET", "/api/v1/users/me", key="short")
        self.raw("ask with a wrong key", anna, "GET", "/api/v1/users/me", key="0" * 32)
        self.raw("ask for what is not there", anna, "GET", "/api/v1/nothing")
        self.raw("use a wrong method", anna, "PUT", "/api/v1/messages")
        for person in self.people:
            person.client = zulip.Client(
                email=person.email, api_key=person.key, site=person.site, retry_on_errors=False)
            wait_long(person.client)
        self.library("settings of the server", anna, "get_server_settings")
        for person, markdown in ((self.anna, True), (self.ben, False), (self.oda, True)):
            answer = self.library(
                "register", person, "register", event_types=None, apply_markdown=markdown,
                client_capabilities=CAPABILITIES if person is not self.oda else {}, client_gravatar=True)
            person.queue, person.last = answer["queue_id"], answer["last_event_id"]
        self.listening = True

    def profiles(self):
        anna, ben, oda = self.people
        self.library("own profile", anna, "get_profile")
        self.library("all people", ben, "get_members")
        self.library("a person by id", anna, "get_user_by_id", ben.id)
        self.endpoint("a person by address", anna, "GET", f"users/{oda.email}")
        self.endpoint("a person that is not there", anna, "GET", "users/99999")
        self.library("be active", anna, "update_presence", {"status": "active", "new_user_input": True, "ping_only": False})
        self.library("ping", ben, "update_presence", {"status": "idle", "ping_only": True})
        self.library("presence of a person", ben, "get_user_presence", anna.email)
        self.library("presence of all", oda, "get_realm_presence")
        self.endpoint("set a status", ben, "POST", "users/me/status", {
            "status_text": self.text("replaced status", " back soon"), "emoji_name": "car"})
        self.endpoint("read a status", anna, "GET", f"users/{ben.id}/status")
        self.endpoint("read a status from outside", oda, "GET", f"users/{ben.id}/status")
        self.endpoint("a status that is too long", ben, "POST", "users/me/status", {"status_text": "x" * 61})
        self.endpoint("an empty status request", ben, "POST", "users/me/status")
        self.endpoint("clear a status", ben, "POST", "users/me/status", {"status_text": "", "emoji_name": ""})
        self.endpoint("set a status of text alone", ben, "POST", "users/me/status", {"status_text": self.text("status")})

    def channels(self):
        anna, ben, oda = self.people
        self.garden = self.text("stream name")
        description = self.text("stream description", " with *emphasis*")
        self.library("create a channel", anna, "add_subscriptions", [{"name": self.garden, "description": description}])
        self.library("join a channel", ben, "add_subscriptions", [{"name": self.garden}])
        self.library("join again", ben, "add_subscriptions", [{"name": self.garden}])
        self.library("subscribe others", anna, "add_subscriptions", [{"name": self.garden}], principals=[oda.id])
        self.cellar = self.text("stream name")
        self.library(
            "create a private channel", anna, "add_subscriptions",
            [{"name": self.cellar, "description": self.text("stream description")}], principals=[anna.id, ben.id],
            invite_only=True)
        self.library("list channels", anna, "get_streams")
        self.library("list channels from outside", oda, "get_streams")
        self.library("own subscriptions", ben, "get_subscriptions", {"include_subscribers": True})
        self.garden_id = self.library("id of a channel", ben, "get_stream_id", self.garden)["stream_id"]
        self.cellar_id = self.library("id of the private channel", ben, "get_stream_id", self.cellar)["stream_id"]
        self.library("id of a channel that is hidden", oda, "get_stream_id", self.cellar)
        self.endpoint("one channel", ben, "GET", f"streams/{self.garden_id}")
        self.library("members of a channel", ben, "get_subscribers", stream=self.garden)
        self.library("is a person subscribed", anna, "get_subscription_status", oda.id, self.garden_id)
        self.library("change a description", anna, "update_stream", {
            "stream_id": self.garden_id, "description": self.text("stream description", " anew")})
        self.garden = self.text("stream name")
        self.library("rename a channel", anna, "update_stream", {"stream_id": self.garden_id, "new_name": self.garden})
        self.library("rename without the right", oda, "update_stream", {
            "stream_id": self.garden_id, "new_name": self.text("rejected stream name")})
        self.library("a name that is too long", anna, "update_stream", {"stream_id": self.garden_id, "new_name": "n" * 61})
        self.library("mute a channel", ben, "update_subscription_settings", [
            {"stream_id": self.garden_id, "property": "is_muted", "value": True}])
        self.library("unmute a channel", ben, "update_subscription_settings", [
            {"stream_id": self.garden_id, "property": "is_muted", "value": False}])
        self.library("leave a channel", oda, "remove_subscriptions", [self.garden])
        self.library("come back", oda, "add_subscriptions", [{"name": self.garden}])
        self.library("leave a channel that is not there", oda, "remove_subscriptions", ["no such channel"])

    @staticmethod
    def direct(kind, to, text, **more):
        return {"type": kind, "to": to, "content": text, **more}

    def messages(self):
        anna, ben, oda = self.people
        self.topic = self.text("topic")
        self.first = self.library("send to a channel by name", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.topic, "content": self.text("message", " first")}).get("id", 0)
        self.second = self.library("send to a channel by id", ben, "send_message", {
            "type": "channel", "to": self.garden_id, "topic": self.topic,
            "content": self.text("message", " *soft* **loud** `a < b` https://example.test/?q=1&r=2")}).get("id", 0)
        self.library("send to a channel by a name in JSON", anna, "send_message", {
            "type": "stream", "to": [self.garden], "topic": self.topic, "content": self.text("message", " <b>not HTML</b>")})
        self.library("send with the old name of topic", ben, "send_message", {
            "type": "stream", "to": self.garden, "subject": self.text("topic"), "content": self.text("message")})
        self.private = self.library("send to the private channel", anna, "send_message", {
            "type": "stream", "to": self.cellar, "topic": self.text("topic"), "content": self.text("message")}).get("id", 0)
        cellar = lambda name, person, topic, content: self.library(name, person, "send_message", {
            "type": "stream", "to": self.cellar_id, "topic": topic, "content": content}).get("id", 0)
        self.among_two = self.text("topic")
        self.kept = cellar("write among two", anna, self.among_two, self.text("message", " kept"))
        cellar("answer among two", ben, self.among_two, self.text("message", " <b>'a' & \"b\"</b>\nžluťoučký 🐙 漢字"))
        cellar("write Markdown among two", ben, self.among_two, self.text("message", " *soft* **loud** https://example.test/"))
        cellar("write what an envelope begins with", anna, self.among_two, "?PAWL:" + self.text("message"))
        cellar("write a long message among two", anna, self.among_two, self.text("message", " " + "l" * 4000))
        cellar("write the longest message among two", ben, self.among_two, self.text("message", " ").ljust(10_000, "m"))
        self.library("send without a topic", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": "", "content": self.text("message")})
        self.dm = self.library("write to one person by id", anna, "send_message", self.direct(
            "direct", [ben.id], self.text("message", " between two"))).get("id", 0)
        self.library("write to one person by address", ben, "send_message", self.direct(
            "private", [anna.email], self.text("message", " answer")))
        self.library("write to an address without JSON", ben, "send_message", self.direct(
            "private", anna.email, self.text("message", " answer")))
        self.group = self.library("write to a group", anna, "send_message", self.direct(
            "direct", [ben.id, oda.id], self.text("message", " to a group"))).get("id", 0)
        self.outside = self.library("write to the outsider", anna, "send_message", self.direct(
            "direct", [oda.id], self.text("message to outsider"))).get("id", 0)
        self.library("the outsider writes", oda, "send_message", self.direct(
            "direct", [ben.id], self.text("message from outsider", " hello")))
        self.library("write to oneself", ben, "send_message", self.direct("direct", [ben.id], self.text("message")))
        self.library("mention a person", ben, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.topic,
            "content": self.text("message", f" @**{anna.full_name}** and @_**{oda.full_name}|{oda.id}**")})
        self.library("mention all", ben, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.topic, "content": self.text("message", " @**all** look")})
        self.library("link to a topic", ben, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.topic,
            "content": self.text("message", f" see #**{self.garden}>{self.topic}** and #**{self.garden}**")})
        self.library("write a status line", anna, "send_message", self.direct(
            "direct", [ben.id], "/me " + self.text("message", " waves")))
        self.library("write many blocks", anna, "send_message", self.direct("direct", [ben.id], (
            "# " + self.text("message heading") + "\n\n* " + self.text("message item") + "\n* two\n\n> "
            + self.text("message quote") + "\n\n```python\nprint('" + self.text("message code") + "')\n```\n\n"
            "```spoiler " + self.text("message spoiler") + "\nhidden :tada:\n```\n\none\ntwo ~~no~~")))
        self.echoed = self.library("send with a local id", anna, "send_message", {
            "type": "direct", "to": [ben.id], "content": self.text("message"), "queue_id": anna.queue, "local_id": "17.01"}).get("id", 0)
        self.library("send as read", anna, "send_message", {
            "type": "direct", "to": [ben.id], "content": self.text("message"), "read_by_sender": True})
        self.raw("send without the library", anna, "POST", "/api/v1/messages", {
            "type": "direct", "to": json.dumps([ben.id]), "content": self.text("message", " & co = 100 %\nline two")})
        self.library("send a parameter that is not known", anna, "send_message", self.direct(
            "direct", [ben.id], self.text("message"), flavour="sweet"))
        self.library("send with Unicode", ben, "send_message", self.direct(
            "direct", [anna.id], self.text("message", " žluťoučký 🐙 \u202eback\u202c 漢字")))

    def limits(self):
        anna, ben, oda = self.people
        direct = self.direct
        self.library("send nothing", anna, "send_message", direct("direct", [ben.id], "  \n "))
        self.library("send no content", anna, "send_message", {"type": "direct", "to": [ben.id]})
        self.library("send to no one", anna, "send_message", direct("direct", [], self.text("rejected message")))
        self.library("send to a person that is not there", anna, "send_message", direct(
            "direct", ["nobody@standin.test"], self.text("rejected message")))
        self.library("send to an id that is not there", anna, "send_message", direct(
            "direct", [99999], self.text("rejected message")))
        self.library("send to a channel that is not there", anna, "send_message", {
            "type": "stream", "to": "no such channel", "topic": "t", "content": self.text("rejected message")})
        self.library("send to a channel id that is not there", anna, "send_message", {
            "type": "stream", "to": 99999, "topic": "t", "content": self.text("rejected message")})
        self.library("send to a hidden channel", oda, "send_message", {
            "type": "stream", "to": self.cellar, "topic": "t", "content": self.text("rejected message from outsider")})
        self.library("send with a wrong type", anna, "send_message", direct("letter", [ben.id], self.text("rejected message")))
        self.library("send the longest message", anna, "send_message", direct(
            "direct", [ben.id], self.text("message", " " + "l" * 9000).ljust(10_000, "m")))
        self.library("send a longer message", anna, "send_message", direct(
            "direct", [ben.id], self.text("message", " " + "l" * 9000).ljust(10_001, "m")))
        self.library("send with a topic that is too long", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.text("topic").ljust(61, "t"), "content": self.text("message")})
        self.library("send with a control character in the topic", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": "a\u0007b", "content": self.text("rejected message")})

    def fetch(self, name, person, narrow, **more):
        request = {"anchor": "newest", "num_before": 50, "num_after": 0, "narrow": narrow, **more}
        return self.library(name, person, "get_messages", request)

    def reading(self):
        anna, ben, oda = self.people
        term = lambda operator, operand, **more: {"operator": operator, "operand": operand, **more}
        self.fetch("read all", ben, [])
        self.fetch("read all as Markdown", ben, [], apply_markdown=False)
        self.fetch("read a channel", anna, [term("channel", self.garden)])
        self.fetch("read a topic", ben, [term("stream", self.garden_id), term("topic", self.topic)])
        self.fetch("read a topic with pairs", ben, [["stream", self.garden], ["topic", self.topic]])
        self.fetch("read what a person wrote", ben, [term("sender", anna.email)], num_before=3)
        self.fetch("read a conversation", anna, [term("dm", [ben.id])], num_before=5)
        self.fetch("read a conversation by address", anna, [term("pm-with", ben.email)], num_before=2)
        self.fetch("read conversations with a person", ben, [term("dm-including", [oda.id])])
        self.fetch("read direct messages", oda, [term("is", "dm")])
        self.fetch("read mentions", anna, [term("is", "mentioned")])
        self.fetch("read what has links", ben, [term("has", "link")])
        self.fetch("read all but a channel", ben, [term("channel", self.garden, negated=True)], num_before=2)
        self.fetch("read from outside", oda, [term("channel", self.garden)])
        self.fetch("read a hidden channel", oda, [term("channel", self.cellar)])
        self.fetch("read with a wrong operator", anna, [term("colour", "red")])
        word = self.canaries[[kind for _, kind in self.canaries].index("message")][0]
        self.fetch("search for a word", ben, [term("search", word)])
        self.fetch("search in a channel", ben, [term("channel", self.garden), term("search", "soft loud")])
        self.fetch("search for a phrase", anna, [term("search", '"between two"')])
        self.fetch("search for what is not there", anna, [term("search", self.text("search words"))])
        self.fetch("read a channel of two", ben, [term("channel", self.cellar_id)])
        self.fetch("read it as Markdown", anna, [term("channel", self.cellar_id)], apply_markdown=False)
        self.library("a message among two", ben, "get_raw_message", self.kept)
        self.library("a message among two from outside", oda, "get_raw_message", self.kept)
        self.fetch("search among two", ben, [term("channel", self.cellar_id), term("search", "kept")])
        self.fetch("read around a message", ben, [], anchor=self.dm, num_before=1, num_after=1)
        self.fetch("read after the oldest", ben, [], anchor="oldest", num_before=0, num_after=2)
        self.fetch("read the first unread", oda, [], anchor="first_unread", num_before=0, num_after=1)
        self.fetch("read without the anchor", ben, [], anchor=self.dm, num_before=1, num_after=1, include_anchor=False)
        self.library("read by ids", anna, "get_messages", {"message_ids": [self.first, self.dm, 99999]})
        self.fetch("read too many", anna, [], num_before=5001)
        self.library("read without an anchor", anna, "get_messages", {"num_before": 1, "num_after": 0})
        self.raw("read with broken JSON", anna, "GET", "/api/v1/messages", {
            "anchor": "newest", "num_before": 1, "num_after": 0, "narrow": "[{"})
        self.library("one message", ben, "get_raw_message", self.first)
        self.endpoint("one message as Markdown", ben, "GET", f"messages/{self.first}", {"apply_markdown": False})
        self.library("a message of others", oda, "get_raw_message", self.dm)
        self.library("which messages match", ben, "check_messages_match_narrow", msg_ids=[self.first, self.second], narrow=[
            term("search", word)])
        self.library("which messages match a topic", ben, "check_messages_match_narrow", msg_ids=[self.first, self.dm], narrow=[
            term("topic", self.topic)])
        self.library("render", anna, "render_message", {"content": self.text("rendered text", " **b** [l](https://example.test)")})
        self.library("topics of a channel", ben, "get_stream_topics", self.garden_id)
        self.endpoint("state at the beginning", ben, "POST", "register", {
            "event_types": ["typing"], "fetch_event_types": [
                "message", "subscription", "update_message_flags", "user_topic", "recent_private_conversations", "realm"]})

    def editing(self):
        anna, ben, oda = self.people
        edit = lambda number, **change: {"message_id": number, **change}
        self.library("edit a message", anna, "update_message", edit(self.first, content=self.text("edit", " better")))
        self.library("edit it again", anna, "update_message", edit(self.first, content=self.text("edit", " best @**all**")))
        self.library("edit a direct message", anna, "update_message", edit(self.dm, content=self.text("edit")))
        self.library("edit a message of others", ben, "update_message", edit(self.first, content=self.text("rejected edit")))
        self.library("edit among two", anna, "update_message", edit(self.kept, content=self.text("edit", " kept")))
        self.library("edit among two again", anna, "update_message", edit(self.kept, content=self.text("edit", " & kept")))
        self.library("edit a message of others among two", ben, "update_message", edit(
            self.kept, content=self.text("rejected edit")))
        self.library("an edited message among two", ben, "get_raw_message", self.kept)
        self.library("history of a message among two", ben, "get_message_history", self.kept)
        self.library("edit to nothing", anna, "update_message", edit(self.echoed, content=""))
        self.library("change nothing", anna, "update_message", edit(self.first))
        self.library("edit what is not there", anna, "update_message", edit(99999, content=self.text("rejected edit")))
        self.library("history of a message", ben, "get_message_history", self.first)
        self.library("history of a direct message", ben, "get_message_history", self.dm)
        self.library("history from outside", oda, "get_message_history", self.dm)
        self.library("give a direct message a topic", anna, "update_message", edit(self.dm, topic=self.text("rejected topic")))
        moved = self.text("topic")
        self.library("move one message", ben, "update_message", edit(self.second, topic=moved, propagate_mode="change_one"))
        self.library("edit text and topic", ben, "update_message", edit(
            self.second, content=self.text("edit"), topic=self.text("topic")))
        self.library("rename a topic", anna, "update_message", edit(
            self.first, topic=self.text("topic"), propagate_mode="change_all", send_notification_to_old_thread=True))
        topic = self.library("the topic after it", anna, "get_raw_message", self.first).get("message", {}).get("subject", "")
        self.library("resolve a topic", anna, "update_message", edit(
            self.first, topic="✔ " + topic, propagate_mode="change_all"))
        self.library("move to another channel", anna, "move_topic", self.garden, self.cellar, "✔ " + topic)
        self.library("history of a moved message", ben, "get_message_history", self.first)
        self.library("propagate without a topic", anna, "update_message", edit(
            self.first, content=self.text("rejected edit"), propagate_mode="change_all"))
        gone = self.library("write to delete", ben, "send_message", self.direct(
            "direct", [anna.id], self.text("deleted message"))).get("id", 0)
        self.library("delete a message", ben, "delete_message", gone)
        self.library("delete it again", ben, "delete_message", gone)
        self.library("delete a message of others", oda, "delete_message", self.group)
        gone = self.library("write to a channel to delete", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.text("topic"), "content": self.text("deleted message")}).get("id", 0)
        self.library("delete it in the channel", anna, "delete_message", gone)
        gone = self.library("write among two to delete", anna, "send_message", {
            "type": "stream", "to": self.cellar_id, "topic": self.among_two,
            "content": self.text("deleted message")}).get("id", 0)
        self.library("delete it among two", anna, "delete_message", gone)

    def marks_on_messages(self):
        anna, ben, oda = self.people
        react = {"message_id": self.group, "emoji_name": "tada"}
        self.library("react", ben, "add_reaction", react)
        self.library("react with a code", oda, "add_reaction", {
            "message_id": self.group, "emoji_name": "octopus", "emoji_code": "1f419", "reaction_type": "unicode_emoji"})
        self.library("react twice", ben, "add_reaction", react)
        self.library("react with an unknown emoji", ben, "add_reaction", {
            "message_id": self.group, "emoji_name": self.text("rejected emoji name")})
        self.library("see reactions", anna, "get_raw_message", self.group)
        self.library("react among two", ben, "add_reaction", {"message_id": self.kept, "emoji_name": "tada"})
        self.library("take a reaction back", ben, "remove_reaction", react)
        self.library("take it back twice", ben, "remove_reaction", react)
        self.library("mark as read", ben, "update_message_flags", {"messages": [self.dm, self.group], "op": "add", "flag": "read"})
        self.endpoint("read receipts", anna, "GET", f"messages/{self.group}/read_receipts")
        self.library("star", ben, "update_message_flags", {"messages": [self.dm], "op": "add", "flag": "starred"})
        self.fetch("read starred", ben, [{"operator": "is", "operand": "starred"}])
        self.library("mark as unread", ben, "update_message_flags", {"messages": [self.dm], "op": "remove", "flag": "read"})
        self.library("set a flag that only the server sets", ben, "update_message_flags", {
            "messages": [self.dm], "op": "add", "flag": "mentioned"})
        self.library("mark an unknown message", oda, "update_message_flags", {
            "messages": [self.dm], "op": "add", "flag": "read"})
        self.endpoint("mark a narrow as read", ben, "POST", "messages/flags/narrow", {
            "anchor": "oldest", "num_before": 0, "num_after": 100, "op": "add", "flag": "read",
            "narrow": [{"operator": "channel", "operand": self.garden}]})
        self.library("mark a channel as read", anna, "mark_stream_as_read", self.garden_id)
        self.library("mark a topic as read", oda, "mark_topic_as_read", self.garden_id, self.topic)
        self.library("mark all as read", anna, "mark_all_as_read")
        self.library("type to a person", anna, "set_typing_status", {"op": "start", "to": [ben.id]})
        self.library("stop typing", anna, "set_typing_status", {"op": "stop", "to": [ben.id]})
        self.library("type to a channel", ben, "set_typing_status", {
            "op": "start", "type": "stream", "stream_id": self.garden_id, "topic": self.text("typing topic")})
        self.library("type to no one", ben, "set_typing_status", {"op": "start", "to": []})
        self.endpoint("type an edit", anna, "POST", f"messages/{self.dm}/typing", {"op": "start"})

    def widgets(self):
        anna, ben, oda = self.people
        poll = self.library("ask in a poll", anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": self.topic,
            "content": f"/poll {self.text('poll question')}\n{self.text('poll option')}\n* {self.text('poll option')}"}).get("id", 0)
        self.library("see the poll", ben, "get_raw_message", poll)
        submit = lambda name, person, data: self.endpoint(name, person, "POST", "submessage", {
            "message_id": poll, "msg_type": "widget", "content": json.dumps(data)})
        submit("vote", ben, {"type": "vote", "key": "canned,0", "vote": 1})
        submit("add an option", oda, {"type": "new_option", "idx": 1, "option": self.text("poll option from outsider")})
        submit("change the question", anna, {"type": "question", "question": self.text("poll question")})
        submit("change the question of others", ben, {"type": "question", "question": self.text("rejected poll question")})
        self.library("see the votes", ben, "get_raw_message", poll)
        self.library("edit a poll", anna, "update_message", {"message_id": poll, "content": self.text("rejected edit")})
        self.library("make a task list", ben, "send_message", self.direct(
            "direct", [anna.id], f"/todo {self.text('todo title')}\n{self.text('todo task')}: {self.text('todo description')}"))
        self.endpoint("vote where there is no poll", ben, "POST", "submessage", {
            "message_id": self.dm, "msg_type": "widget", "content": json.dumps({"type": "vote"})})

    def files(self):
        anna, ben, oda = self.people
        file = io.BytesIO((self.text("deleted file content") + " in a file\n").encode())
        file.name = self.text("file name") + ".txt"
        answer = self.library("upload a file", anna, "upload_file", file)
        name, url = answer.get("filename", ""), answer.get("url", "/user_uploads/0/00/none").lstrip("/")
        self.endpoint("temporary address of another's file", ben, "GET", url)
        shared = self.library("share the file", anna, "send_message", self.direct(
            "direct", [ben.id], self.text("message", " see ") + f"[{name}](/{url})")).get("id", 0)
        address = self.endpoint("temporary address", ben, "GET", url).get("url", f"/user_uploads/temporary/{'0' * 64}/none")
        self.raw("download", ben, "GET", address, anonymous=True)
        self.raw("download with a wrong token", ben, "GET", re.sub("[0-9a-f]{64}", "0" * 64, address), anonymous=True)
        self.endpoint("temporary address for the outsider", oda, "GET", url)
        attachments = self.library("own files", anna, "get_attachments").get("attachments") or [{"id": 0}]
        self.library("remove the link", anna, "update_message", {"message_id": shared, "content": self.text("edit")})
        self.endpoint("delete a file", anna, "DELETE", f"attachments/{attachments[0]['id']}")
        self.endpoint("delete it twice", anna, "DELETE", f"attachments/{attachments[0]['id']}")
        file = io.BytesIO((self.text("file content") + " for a channel\n").encode())
        file.name = self.text("file name", " plan") + ".txt"
        answer = self.library("upload a file for a channel", anna, "upload_file", file)
        name, url = answer.get("filename", ""), answer.get("url", "/user_uploads/0/00/none").lstrip("/")
        self.library("share it in a channel", anna, "send_message", {
            "type": "channel", "to": self.garden_id, "topic": self.topic,
            "content": self.text("message", " shares ") + f"[{name}](/{url})"})
        address = self.endpoint("address of the shared file", ben, "GET", url).get(
            "url", f"/user_uploads/temporary/{'0' * 64}/none")
        self.raw("download the shared file", ben, "GET", address, anonymous=True)
        self.endpoint("address of the shared file for the outsider", oda, "GET", url)
        self.raw("upload nothing", anna, "POST", "/api/v1/user_uploads")
        self.raw("upload without the library", ben, "POST", "/api/v1/user_uploads", files={
            "file": (self.text("file name", " two.md"), self.text("file content").encode(), "text/markdown")})

    def own_things(self):
        anna, ben, oda = self.people
        draft = lambda kind, to, topic, what="draft": {"type": kind, "to": to, "topic": topic, "content": self.text(what)}
        ids = self.endpoint("write drafts", anna, "POST", "drafts", {"drafts": [
            draft("stream", [self.garden_id], self.text("replaced draft topic"), "replaced draft") | {"timestamp": 1_000},
            draft("private", [ben.id], "", "deleted draft") | {"timestamp": 2_000}]}).get("ids", [0, 0])
        self.endpoint("change a draft", anna, "PATCH", f"drafts/{ids[0]}", {
            "draft": draft("stream", [self.garden_id], self.text("draft topic")) | {"timestamp": 3_000}})
        self.endpoint("read drafts", anna, "GET", "drafts")
        self.endpoint("a draft for two channels", anna, "POST", "drafts", {"drafts": [
            {"type": "stream", "to": [1, 2], "topic": "t", "content": self.text("rejected draft")}]})
        self.endpoint("drop a draft", anna, "DELETE", f"drafts/{ids[1]}")
        self.endpoint("drop it twice", anna, "DELETE", f"drafts/{ids[1]}")
        later = self.endpoint("schedule a message", anna, "POST", "scheduled_messages", {
            "type": "direct", "to": [ben.id], "content": self.text("deleted scheduled"),
            "scheduled_delivery_timestamp": FAR}).get("scheduled_message_id", 0)
        self.endpoint("schedule for a channel", anna, "POST", "scheduled_messages", {
            "type": "channel", "to": self.garden_id, "topic": self.text("scheduled topic"),
            "content": self.text("scheduled"), "scheduled_delivery_timestamp": FAR + 1})
        self.endpoint("change the scheduled message", anna, "PATCH", f"scheduled_messages/{later}", {
            "content": self.text("deleted scheduled", " anew")})
        self.endpoint("read scheduled messages", anna, "GET", "scheduled_messages")
        self.endpoint("schedule for the past", anna, "POST", "scheduled_messages", {
            "type": "direct", "to": [ben.id], "content": self.text("rejected scheduled"), "scheduled_delivery_timestamp": 1})
        self.endpoint("drop the scheduled message", anna, "DELETE", f"scheduled_messages/{later}")
        snippet = self.endpoint("save a snippet", ben, "POST", "saved_snippets", {
            "title": self.text("replaced snippet title"), "content": self.text("snippet")}).get("saved_snippet_id", 0)
        self.endpoint("change a snippet", ben, "PATCH", f"saved_snippets/{snippet}", {"title": self.text("snippet title")})
        self.endpoint("read snippets", ben, "GET", "saved_snippets")
        snippet = self.endpoint("save another snippet", ben, "POST", "saved_snippets", {
            "title": self.text("deleted snippet title"), "content": self.text("deleted snippet")}).get("saved_snippet_id", 0)
        self.endpoint("drop a snippet", ben, "DELETE", f"saved_snippets/{snippet}")
        word = self.text("alert word")
        self.library("watch for a word", ben, "add_alert_words", [word])
        self.library("write the word", anna, "send_message", self.direct("direct", [ben.id], "Look, " + word + "!"))
        self.fetch("read what has the word", ben, [{"operator": "is", "operand": "alerted"}])
        self.library("words that are watched for", ben, "get_alert_words")
        self.library("stop watching", ben, "remove_alert_words", [word])
        self.library("mute a topic", ben, "mute_topic", {"stream": self.garden, "topic": self.text("muted topic"), "op": "add"})
        self.endpoint("follow a topic", ben, "POST", "user_topics", {
            "stream_id": self.garden_id, "topic": self.text("followed topic"), "visibility_policy": 3})
        self.endpoint("a command", ben, "POST", "zcommand", {"command": "/ping"})
        self.endpoint("a command that is not there", ben, "POST", "zcommand", {"command": "/" + self.text("rejected command")})

    def scheduled_delivery(self):
        """Waits on the queue until the server sends what is due in the next second."""
        anna, ben, _ = self.people
        queue = self.library("queue for a delivery", ben, "register", ["message"], apply_markdown=False)
        answer = self.endpoint("schedule for soon", anna, "POST", "scheduled_messages", {
            "type": "direct", "to": [ben.id], "content": self.text("scheduled"),
            "scheduled_delivery_timestamp": int(time.time()) + 2})
        isAccepted = answer["result"] == "success"
        self.step("the delivery", ben, "get_events", lambda: self.until(ben, queue, "message") if isAccepted else None)

    def until(self, person, queue, kind):
        """The first event of a kind in a queue."""
        last = queue["last_event_id"]
        while True:
            answer = person.client.get_events(queue_id=queue["queue_id"], last_event_id=last)
            for event in answer["events"]:
                last = event["id"]
                if event["type"] == kind:
                    return event

    def queues(self, heartbeat):
        anna, ben, oda = self.people
        queue = self.library("queue for a topic", ben, "register", ["message", "reaction"], [
            ["stream", self.garden], ["topic", self.topic]])
        number = queue["queue_id"]
        self.library("nothing without waiting", ben, "get_events", queue_id=number, last_event_id=-1, dont_block=True)
        send = lambda name, topic: self.library(name, anna, "send_message", {
            "type": "stream", "to": self.garden, "topic": topic, "content": self.text("message")}).get("id", 0)
        send("write to another topic", self.text("topic"))
        inside = send("write to the topic", self.topic)
        self.library("react there", oda, "add_reaction", {"message_id": inside, "emoji_name": "eyes"})
        # Without a message nothing would come before a heartbeat.
        answer = self.library(
            "events of the narrow", ben, "get_events", queue_id=number, last_event_id=-1, dont_block=inside == 0)
        events = answer["events"] or [{"id": -1}]
        last = events[-1]["id"]
        self.library(
            "the same events again", ben, "get_events", queue_id=number, last_event_id=events[0]["id"],
            dont_block=inside == 0)
        waiting = {}
        reader = threading.Thread(daemon=True, target=lambda: waiting.update(
            ben.client.get_events(queue_id=number, last_event_id=last)))
        reader.start()
        reader.join(DEADLINE_SECONDS if send("write while another waits", self.topic) else 0)
        self.step("what the waiting one got", ben, "get_events", lambda: waiting)
        self.library("a queue of others", anna, "get_events", queue_id=number, last_event_id=-1, dont_block=True)
        self.library("delete the queue", ben, "deregister", number)
        self.library("read a deleted queue", ben, "get_events", queue_id=number, last_event_id=-1)
        self.library("delete it twice over", ben, "deregister", number)
        self.library("a queue with a wrong narrow", ben, "register", ["message"], [["colour", "red"]])
        self.each_event()
        if heartbeat:
            queue = self.library("queue for a heartbeat", ben, "register", ["typing"])
            self.step("a heartbeat", ben, "get_events", lambda: self.until(ben, queue, "heartbeat"))

    def each_event(self):
        """The library's own loops: they register, somebody writes, and the callback ends them."""
        anna, ben, _ = self.people
        for name, method, types in (
                ("loop over events", "call_on_each_event", [["message", "typing"]]),
                ("loop over messages", "call_on_each_message", [])):
            client, got = LoopingClient(email=ben.email, api_key=ben.key, site=ben.site), []
            wait_long(client)

            def receive(event):
                got.append(event)
                if len(got) == 2:
                    raise Enough

            def loop():
                try:
                    getattr(client, method)(receive, *types)
                except Enough:
                    return

            reader = threading.Thread(target=loop, daemon=True)
            reader.start()
            client.registered.wait(DEADLINE_SECONDS)
            written = [
                self.library(f"write for a {name}", anna, "send_message", self.direct(
                    "direct", [ben.id], self.text("message"))).get("id", 0) for _ in range(2)]
            reader.join(DEADLINE_SECONDS if all(written) else 0)
            self.step(name, ben, method, lambda: got)

    def end(self):
        anna, ben, oda = self.people
        topic = self.text("topic")
        self.library("write to a topic to delete", ben, "send_message", {
            "type": "stream", "to": self.garden, "topic": topic, "content": self.text("deleted message")})
        path = f"streams/{self.garden_id}/delete_topic"
        self.endpoint("delete a topic without the right", ben, "POST", path, {"topic_name": topic})
        self.endpoint("delete a topic", anna, "POST", path, {"topic_name": topic})
        self.library("remove somebody", anna, "remove_subscriptions", [self.garden], [oda.id])
        self.library("archive a channel", anna, "delete_stream", self.garden_id)
        self.listening = False
        for person in self.people:
            self.library("deregister", person, "deregister", person.queue)


class LoopingClient(zulip.Client):
    """The library's client, which makes known that its loop has a queue."""

    def __init__(self, **named):
        self.registered = threading.Event()
        super().__init__(**named)

    def register(self, *arguments, **named):
        answer = super().register(*arguments, **named)
        self.registered.set()
        return answer


class Enough(BaseException):
    """Ends the library's loop, which catches nothing that a callback raises."""


parser = argparse.ArgumentParser(description="Plays a sequence of steps with the zulip library.")
parser.add_argument("a", metavar="A", help="the address that Anna and Ben use")
parser.add_argument("b", metavar="B", help="the address of the outsider")
parser.add_argument("--canaries", metavar="FILE")
parser.add_argument("--heartbeat", action="store_true")
parser.add_argument("--account", action="append", metavar="EMAIL,PASSWORD,NAME")


def main():
    arguments = parser.parse_args()
    play = Play(arguments)
    for part in (
            play.logins, play.profiles, play.channels, play.messages, play.limits, play.reading, play.editing,
            play.marks_on_messages, play.widgets, play.files, play.own_things, play.scheduled_delivery,
            lambda: play.queues(arguments.heartbeat), play.end):
        part()
    if arguments.canaries:
        with open(arguments.canaries, "w", encoding="utf-8") as file:
            file.writelines(f"{word} {kind}\n" for word, kind in play.canaries)


if __name__ == "__main__":
    main()
