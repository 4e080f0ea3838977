"""The mechanics of steps.py: people with mattermostdriver, canary words, and lines that can be compared.

A line has the name of the step, what was called, the answer, and the events that each person received. Values that
differ between two runs are replaced: ids and times by placeholders in order of appearance, sequence numbers by their
distance to the previous one.

After each step every connected person stores a preference, the mark. Its event arrives over the same connection after
all events of the step, so that no step waits for a time to pass.
"""

import asyncio
import json
import logging
import os
import queue
import re
import sys
import threading
from urllib.parse import urlsplit

import requests
from mattermostdriver import Driver
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

# Requests go to loopback, past every proxy of the environment.
os.environ["NO_PROXY"] = "*"
# The library logs each error that a step asks for.
logging.disable(logging.CRITICAL)

PASSWORD = "correct-horse-battery"
MARKER = "play_marker"
# What has not come after this is not going to. Waits end with what they wait for, so this only bounds a failure.
DEADLINE_SECONDS = 600

ID = re.compile(r"(?<![a-z0-9])[a-z0-9]{26}(?![a-z0-9])")
ID_KEY = re.compile(r"[a-z0-9]{26}")
TIME = re.compile(r"(?<!\d)1\d{12}(?!\d)")
PAIR = re.compile(r"(<id \d+>)__(<id \d+>)")
HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?:[0-9a-f]{24})?(?![0-9a-f])")

# Members of events and of users that hold JSON in a string.
JSON_STRINGS = {
    "channel", "channelMember", "customStatus", "draft", "emoji", "followers", "member", "mentions", "post",
    "preferences", "reaction", "recentCustomStatuses", "scheduledPost", "team", "teammate_ids", "thread",
    "updatedCategories",
}
# Times that may be the same as another one in one run and not in the next.
LOOSE_TIMES = {"last_activity_at", "last_viewed_at", "previous_viewed_at", "server_time"}


class Failed(Exception):
    """The play cannot go on."""


class Canaries:
    """A word for each text that somebody writes. No word is part of another."""

    def __init__(self):
        self.words = []

    def new(self, person, kind):
        word = f"canary{len(self.words) + 1:03}{''.join(filter(str.isalpha, kind))}"
        self.words.append((word, person, kind))
        return word

    def write(self, path):
        lines = "".join(f"{word}\t{person} {kind}\n" for word, person, kind in self.words)
        if path is None:
            sys.stderr.write(lines)
        else:
            with open(path, "w") as file:
                file.write(lines)


class Placeholders:
    def __init__(self, addresses):
        self.ids = {}
        self.times = {}
        self.hosts = {urlsplit(address).netloc for address in addresses}

    def text(self, value):
        for host in self.hosts:
            value = value.replace(host, "<server>")
        value = ID.sub(lambda match: self.ids.setdefault(match.group(), f"<id {len(self.ids) + 1}>"), value)
        # The name of a direct channel has both ids in the order of the alphabet, which is another in each run.
        value = PAIR.sub(lambda match: "__".join(sorted(match.groups(), key=_number)), value)
        value = HASH.sub("<hash>", value)
        return TIME.sub(lambda match: self.time(int(match.group())), value)

    def time(self, value):
        return self.times.setdefault(value, f"<time {len(self.times) + 1}>")

    def value(self, value, key=None):
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return [self.value(entry, key) for entry in value]
        if isinstance(value, str):
            if key in JSON_STRINGS and value[:1] in ("{", "["):
                try:
                    return {"json": self.value(json.loads(value))}
                except ValueError:
                    pass
            return "<host>" if key == "server_hostname" else self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 10**12:
            return "<time>" if key in LOOSE_TIMES else self.time(value)
        return value

    def _object(self, value):
        """Members under ids come last, and in an order that does not depend on the ids."""
        plain = {key: entry for key, entry in value.items() if not ID_KEY.fullmatch(key)}
        if "order" in plain:
            plain = {"order": plain.pop("order"), **plain}
        result = {self.text(key): self.value(entry, key) for key, entry in plain.items()}
        known = sorted(
            (key for key in value if key in self.ids and key not in plain), key=lambda key: _number(self.ids[key]))
        new = [key for key in value if key not in plain and key not in self.ids]
        new.sort(key=lambda key: value[key].get("create_at", 0) if isinstance(value[key], dict) else 0)
        return result | {self.text(key): self.value(value[key]) for key in [*known, *new]}


def _number(placeholder):
    return int(placeholder[4:-1])


class Person:
    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.host = urlsplit(address)
        self.driver = Driver({
            "scheme": self.host.scheme, "url": self.host.hostname, "port": self.host.port, "login_id": name,
            "password": PASSWORD, "request_timeout": DEADLINE_SECONDS,
            # On a busy machine the answer to a ping may take longer than a client of people would wait.
            "websocket_kw_args": {"proxy": None, "ping_interval": None},
        })
        self.events = queue.Queue()
        self.last_seq = None
        self.marks = 0
        self.is_connected = False

    @property
    def id(self):
        return self.driver.client.userid

    @property
    def headers(self):
        return {"Authorization": f"Bearer {self.driver.client.token}"}

    def request(self, method, path, headers=None, **arguments):
        """A request past the library, for what it has no call."""
        headers = self.headers if headers is None else headers
        return requests.request(
            method, f"{self.address}/api/v4{path}", headers=headers, timeout=DEADLINE_SECONDS, allow_redirects=False,
            **arguments)

    def listen(self):
        """The library's WebSocket client, in a thread: it takes the thread's event loop and never gives it back."""
        greeted = threading.Event()

        async def received(text):
            event = json.loads(text)
            self.events.put(event)
            if event.get("event") == "hello":
                greeted.set()

        def run():
            asyncio.set_event_loop(asyncio.new_event_loop())
            self.driver.init_websocket(received)

        threading.Thread(target=run, daemon=True).start()
        if not greeted.wait(DEADLINE_SECONDS):
            raise Failed(f"{self.name} gets no hello")
        self.is_connected = True

    def mark(self):
        self.marks += 1
        preference = {"user_id": self.id, "category": MARKER, "name": "number", "value": str(self.marks)}
        answer = self.request("PUT", f"/users/{self.id}/preferences", json=[preference])
        if answer.status_code != 200:
            raise Failed(f"{self.name} cannot mark: {answer.status_code} {answer.text}")

    def take_events(self):
        """Everything that came before the mark, without the events of the mark itself."""
        self.mark()
        taken = []
        while True:
            try:
                event = self.events.get(timeout=DEADLINE_SECONDS)
            except queue.Empty:
                raise Failed(f"{self.name} gets no events any more; the last ones: {taken[-3:]}") from None
            taken.append(event)
            if is_mark(event, self.marks):
                return self._numbered(taken)

    def _numbered(self, events):
        """Sequence numbers by their distance to the one before. The two events of a mark leave no trace."""
        shown = []
        for event in events[:-2]:
            shown.append(self._with_distance(event))
        for event in events[-2:]:
            self._with_distance(event)
        return shown

    def _with_distance(self, event):
        if "seq" not in event:
            return event
        distance = event["seq"] if self.last_seq is None else event["seq"] - self.last_seq
        self.last_seq = event["seq"]
        return event | {"seq": f"+{distance}"}


def is_mark(event, number=None):
    """Whether an event is that of a mark, of this number if one is given."""
    if event.get("event") != "preferences_changed":
        return False
    entry = json.loads(event["data"]["preferences"])[0]
    return entry["category"] == MARKER and number in (None, int(entry["value"]))


class RawSocket:
    """A WebSocket past the library, for what its client cannot do."""

    def __init__(self, person, headers=None, query=""):
        address = person.address.replace("http", "ws", 1) + "/api/v4/websocket" + query
        self.socket = connect(address, additional_headers=headers, proxy=None, ping_interval=None,
            open_timeout=DEADLINE_SECONDS, close_timeout=DEADLINE_SECONDS)
        # A connection that is taken up has begun before: its first message is no `hello`.
        self.has_begun = "connection_id" in query

    def send(self, value):
        self.socket.send(value if isinstance(value, str) else json.dumps(value))

    def receive(self):
        """The next message but for those of marks; nil if the server has closed the connection."""
        try:
            while True:
                message = json.loads(self.socket.recv(timeout=DEADLINE_SECONDS))
                if message.get("event") != "sidebar_category_updated" and not is_mark(message):
                    return message
        except ConnectionClosed:
            return None

    def reply(self, request):
        """What comes until the reply to a request."""
        self.send(request)
        came = []
        while (message := self.receive()) is not None:
            came.append(message)
            if message.get("seq_reply") == request["seq"]:
                return came
        return [*came, None]

    def until_posted(self, part):
        """The event of the post that contains this text. A `hello` would mean that the server began anew."""
        while (message := self.receive()) is not None:
            if message.get("event") == "posted" and part in message["data"]["post"]:
                return message
            if message.get("event") == "hello" and message["seq"] == 0 and self.has_begun:
                break
            self.has_begun = True
        raise Failed(f"no event of the post with {part}")

    def close(self):
        self.socket.close()


class Play:
    def __init__(self, people, canaries, addresses):
        self.people = people
        self.canaries = canaries
        self.placeholders = Placeholders(addresses)
        self.count = 0

    def write(self, person, kind):
        """A text with a word of its own."""
        return f"{self.canaries.new(person.name, kind)} says {person.name}"

    def word(self, person, kind):
        return self.canaries.new(person.name, kind)

    def call(self, person, step, path, *arguments, **named):
        """Calls mattermostdriver, as `posts.create_post`. Returns what it answers; an error is a line as well."""
        target = person.driver
        for name in path.split("."):
            target = getattr(target, name)
        try:
            result = target(*arguments, **named)
        except requests.HTTPError as error:
            self.line(person, step, path, {"exception": type(error).__name__, "message": str(error)})
            return None
        shown = result
        if isinstance(result, requests.Response):
            shown = response_json(result)
        self.line(person, step, path, shown)
        return result

    def request(self, person, step, method, path, **arguments):
        """A request past the library. Returns the response."""
        response = person.request(method, path, **arguments)
        self.line(person, step, f"{method} {path}", response_json(response))
        return response

    def line(self, person, step, called, answer):
        self.count += 1
        line = {
            "n": self.count, "step": step, "who": person.name, "call": self.placeholders.text(called),
            "answer": self.placeholders.value(answer), "events": {},
        }
        for one in self.people:
            if one.is_connected:
                if events := one.take_events():
                    line["events"][one.name] = [self.placeholders.value(event) for event in events]
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def response_json(response):
    """Status, the headers that mean something, and the body."""
    shown = {"status": response.status_code}
    names = ("Content-Type", "Content-Disposition", "Location", "Token")
    shown |= {name: response.headers[name] for name in names if name in response.headers}
    shown["has X-Request-Id"] = "X-Request-Id" in response.headers
    shown["has X-Version-Id"] = "X-Version-Id" in response.headers
    if response.cookies:
        shown["cookies"] = sorted(response.cookies.keys())
    kind = response.headers.get("Content-Type", "")
    if kind == "application/json" and response.content:
        shown["body"] = response.json()
    elif kind.startswith("text/"):
        shown["body"] = response.text
    elif response.content:
        shown["bytes"] = len(response.content)
    return shown
