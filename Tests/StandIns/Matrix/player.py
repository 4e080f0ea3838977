"""The mechanics of steps.py: people of a Matrix server, canary words, and lines that can be compared.

A line has the name of the step, the request, the answer, and what each person's next sync brings. Values that differ
between two runs are replaced: ids by placeholders in order of appearance, times and tokens by a word each. Lists without
an order of their own are sorted.
"""

import json
import os
import re
import sys
import threading
from urllib.parse import quote, urlsplit

import requests

# Requests go to loopback, past every proxy of the environment.
os.environ["NO_PROXY"] = "*"

SERVER = "pawl.test"
PASSWORD = "correct-horse-battery"
# What has not come after this is not going to. Waits end with what they wait for, so this only bounds a failure.
DEADLINE_SECONDS = 600
CLIENT = "/_matrix/client/v3"

# Letters of a base64 without padding; the length is that of a SHA-256.
EVENT = re.compile(r"\$[A-Za-z0-9_-]{43}")
ROOM = re.compile(r"![A-Za-z0-9_-]{43}|![A-Za-z]{18}:pawl\.test")
FILE = re.compile(r"(?<=pawl\.test/)[A-Za-z]{24}")
PATTERNS = (("event", EVENT), ("room", ROOM), ("file", FILE))
ID_KEY = re.compile(r"<[a-z]+ (\d+)>.*")
TOKEN = re.compile(r"\bsy[tr]_[A-Za-z0-9_]+")
STREAM = re.compile(r"\b[smt]\d+(?:-\d+)?(?:_[\d~.]+){5,}\b|\b\d+/s\d+[\d_~.]*")
# Values under these names differ in each run.
LOOSE = {
    "access_token", "refresh_token", "login_token", "next_batch", "prev_batch", "start", "end", "pos", "session",
    "age", "age_ts", "last_active_ago", "currently_active", "last_seen_ip", "last_seen_user_agent", "last_seen_ts",
    "expires_in_ms", "rank", "sha256", "ed25519:a_pawl",
}
# Lists below these names have no order.
UNORDERED = {
    "state", "account_data", "ephemeral", "presence", "joined_rooms", "devices", "changed", "left", "m.heroes",
    "invited", "invite_state", "required_state", "stripped_state", "aliases", "versions", "highlights", "children_state",
    "auth_events", "room_ids",
}


class Failed(Exception):
    """The play cannot go on."""


class Canaries:
    """A word for each text that somebody writes. No word is part of another."""

    def __init__(self):
        self.words = []

    def new(self, person, kind):
        word = f"canary{len(self.words) + 1:03}{''.join(filter(str.isalpha, kind)).lower()}"
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
        self.ids = {kind: {} for kind, _ in PATTERNS}
        self.hosts = {urlsplit(address).netloc for address in addresses}

    def text(self, value):
        for host in self.hosts:
            value = value.replace(host, "<server>")
        for kind, pattern in PATTERNS:
            known = self.ids[kind]
            value = pattern.sub(
                lambda match: known.setdefault(match.group(), f"<{kind} {len(known) + 1}>"), value)  # noqa: B023
        return STREAM.sub("<token>", TOKEN.sub("<token>", value))

    def value(self, value, key=None):
        if key in LOOSE and not isinstance(value, (dict, list)):
            return f"<{key}>"
        if key == "notification_count" and value:
            # The server adds up counts every 30 seconds, and then counts otherwise.
            return "<count>"
        if isinstance(value, dict):
            return self._object(value, key)
        if isinstance(value, list):
            if key in UNORDERED:
                value = sorted(value, key=self._order)
            return [self.value(entry) for entry in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 10**12:
            return "<time>"
        return value

    def _object(self, value, key):
        """Members with ids in their names come last, the known ones first."""
        result = {}
        named = []
        for name, entry in value.items():
            if any(pattern.search(name) for _, pattern in PATTERNS):
                named.append(name)
            else:
                # `events` below `state` is as unordered as `state` itself.
                result[name] = self.value(entry, key if name == "events" else name)
        for name in sorted(named, key=self._known):
            result[self.text(name)] = self.value(value[name])
        return result

    def _known(self, name):
        return self._order(name)

    def _order(self, entry):
        """Known ids by their number; events by type and state key."""
        if isinstance(entry, dict):
            return (
                str(entry.get("type", "")), str(entry.get("state_key", "")), str(entry.get("sender", "")),
                str(entry.get("device_id", "")))
        text = str(entry)
        for kind, pattern in PATTERNS:
            if match := pattern.search(text):
                placeholder = self.ids[kind].get(match.group(), "<zz 999999>")
                return (kind, f"{int(ID_KEY.fullmatch(placeholder)[1]):06}", "", "")
        return (text, "", "", "")


def part(text):
    """One segment of a path."""
    return quote(text, safe="")


class Person:
    def __init__(self, name, address):
        self.name = name
        self.address = address
        self.id = f"@{name}:{SERVER}"
        self.token = None
        self.since = None
        self.transactions = 0
        # Connections are used again, as apps do.
        self.session = requests.Session()
        self.session.trust_env = False

    def request(self, method, path, headers=None, **arguments):
        if headers is None:
            headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        path = path if path.startswith("/_") or path.startswith("/.") else CLIENT + path
        return self.session.request(
            method, self.address + path, headers=headers, timeout=DEADLINE_SECONDS, allow_redirects=False, **arguments)

    def transaction(self):
        self.transactions += 1
        return f"{self.name}-{self.transactions}"

    def news(self):
        """What came since the last call, without presence: it changes as time passes."""
        parameters = {
            "since": self.since, "timeout": "0", "set_presence": "offline", "filter": '{"presence":{"types":[]}}'}
        response = self.request("GET", "/sync", params={name: text for name, text in parameters.items() if text})
        if response.status_code != 200:
            raise Failed(f"{self.name} cannot sync: {response.status_code} {response.text}")
        answer = response.json()
        self.since = answer.pop("next_batch")
        answer.pop("device_one_time_keys_count", None)
        answer.pop("org.matrix.msc2732.device_unused_fallback_key_types", None)
        answer.pop("device_unused_fallback_key_types", None)
        return answer


class Play:
    def __init__(self, people, canaries, addresses):
        self.people = people
        self.canaries = canaries
        self.placeholders = Placeholders(addresses)
        self.count = 0

    def word(self, person, kind):
        return self.canaries.new(person.name, kind)

    def write(self, person, kind):
        """A text with a word of its own."""
        return f"{self.canaries.new(person.name, kind)} says {person.name}"

    def request(self, person, step, method, path, *, shown=None, **arguments):
        """Sends a request and prints its line. Returns the body of the answer; an empty object if it is no JSON object.

        `shown` makes another value of the body for the line.
        """
        response = person.request(method, path, **arguments)
        body = response_json(response)
        if shown is not None and "body" in body and response.ok:
            body["body"] = shown(body["body"])
        self.line(person, step, f"{method} {path}", body, has_news=method != "GET")
        return object_of(response)

    def until(self, person, step, method, path, is_done, *, shown=None, **arguments):
        """For what the server does some time after a request: asks until it is done, and prints the last answer."""
        for _ in range(DEADLINE_SECONDS * 5):
            response = person.request(method, path, **arguments)
            if not response.ok or is_done(object_of(response)):
                break
            threading.Event().wait(0.2)
        body = response_json(response)
        if shown is not None and response.ok:
            body["body"] = shown(body["body"])
        self.line(person, step, f"{method} {path}", body)
        return object_of(response)

    def line(self, person, step, called, answer, has_news=False):
        self.count += 1
        line = {
            "n": self.count, "step": step, "who": person.name,
            "call": self.placeholders.text(called.replace("%3A", ":").replace("%21", "!").replace("%24", "$")),
            "answer": self.placeholders.value(answer), "events": {},
        }
        for one in self.people:
            if has_news and one.token:
                if news := one.news():
                    line["events"][one.name] = self.placeholders.value(news)
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()


def object_of(response):
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def response_json(response):
    """Status, the headers that mean something, and the body."""
    shown = {"status": response.status_code}
    names = ("Content-Type", "Content-Disposition", "Location", "Access-Control-Allow-Origin")
    shown |= {name: response.headers[name] for name in names if name in response.headers}
    if not response.content:
        return shown
    try:
        shown["body"] = response.json()
    except ValueError:
        if response.headers.get("Content-Type", "").startswith("text/"):
            shown["body"] = response.text
        else:
            shown["bytes"] = len(response.content)
    return shown
