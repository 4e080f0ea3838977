"""Identifiers, times and errors of the protocol.

Documents hold a time as {"$date": milliseconds}, the form of the realtime API. `rest_form` makes the REST form of it.
"""

import datetime
import json
import secrets
import sqlite3
import time

# What a request of the wrong shape runs into. The server answers it and goes on.
MISTAKES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, sqlite3.Error)
UNMISTAKABLE = "23456789ABCDEFGHJKLMNPQRSTWXYZabcdefghijkmnopqrstuvwxyz"
BASE64_URL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"


def random_id():
    """The 17 characters of Meteor's Random.id: users, and messages that people send."""
    return "".join(secrets.choice(UNMISTAKABLE) for _ in range(17))


def object_id():
    """The 24 hexadecimal digits of MongoDB: rooms, subscriptions, uploads, system messages."""
    return secrets.token_hex(12)


def random_secret():
    """The 43 characters of Meteor's Random.secret: tokens."""
    return "".join(secrets.choice(BASE64_URL) for _ in range(43))


class Clock:
    """Milliseconds that never repeat, so that an order by time is an order by event."""

    def __init__(self):
        self.last = 0

    def milliseconds(self):
        self.last = max(self.last + 1, time.time_ns() // 1_000_000)
        return self.last

    def date(self):
        return {"$date": self.milliseconds()}


def is_date(value):
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$date"), (int, float))


def iso(milliseconds):
    seconds, rest = divmod(int(milliseconds), 1000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def parse_time(text):
    """Milliseconds of what JavaScript's `new Date(text)` accepts in practice; nil if it is no time."""
    if isinstance(text, (int, float)):
        return int(text)
    if is_date(text):
        return int(text["$date"])
    try:
        moment = datetime.datetime.fromisoformat(str(text).strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return int(moment.timestamp() * 1000 + 0.5)


def rest_form(value):
    """A document with its times as ISO 8601, as JSON.stringify makes of a Date."""
    if is_date(value):
        return iso(value["$date"])
    if isinstance(value, dict):
        return {key: rest_form(member) for key, member in value.items()}
    if isinstance(value, list):
        return [rest_form(member) for member in value]
    return value


def to_json(value):
    """JSON as the server writes it: texts as they are, half surrogate pairs as escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def length(text):
    """The length that JavaScript counts: UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class MeteorError(Exception):
    """An error that clients see. Without a code it is a plain JavaScript Error."""

    def __init__(self, error=None, reason=None, details=None):
        self.error, self.reason, self.details = error, reason, details
        if error is None:
            self.message = reason
        else:
            self.message = f"{reason} [{error}]" if reason else f"[{error}]"
        super().__init__(self.message)

    def realtime_form(self):
        if self.error is None:
            return MeteorError(500, "Internal server error").realtime_form()
        form = {"isClientSafe": True, "error": self.error}
        if self.reason:
            form["reason"] = self.reason
        if self.details is not None:
            form["details"] = self.details
        return form | {"message": self.message, "errorType": "Meteor.Error"}


def check_string(value, what="value"):
    if not isinstance(value, str):
        raise MeteorError(400, "Match failed")
    return value
