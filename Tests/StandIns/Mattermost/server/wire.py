"""How the server writes JSON and reads requests."""

import json

from aiohttp import web

from .errors import APIError, invalid_body, invalid_url, unreadable
from .store import is_id

PER_PAGE_DEFAULT = 60
PER_PAGE_MAXIMUM = 200

# The server's setting MaximumPayloadSizeBytes. Only uploads may be longer.
MAXIMUM_PAYLOAD = 300_000

ESCAPES = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def encode(value):
    """JSON as Go writes it: no spaces, `<`, `>` and `&` escaped. They cannot stand outside strings."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(ESCAPES)


def answer(value, status=200, headers=None):
    # The exact type: mattermostdriver takes no other for JSON.
    return web.Response(
        body=(encode(value) + "\n").encode(), status=status,
        headers={"Content-Type": "application/json", **(headers or {})})


def ok():
    return answer({"status": "OK"})


def is_true(text):
    return text in ("1", "t", "T", "true", "TRUE", "True")


class Call:
    """One request: who asks, and what."""

    def __init__(self, server, request, session):
        self.server = server
        self.store = server.store
        self.hub = server.hub
        self.access = server.access
        self.request = request
        self.session = session
        self.user_id = session["user_id"] if session else ""
        self.query = request.query

    def id(self, name):
        """An id in the path. `me` stands for the caller."""
        value = self.request.match_info[name]
        if name == "user_id" and value == "me":
            return self.user_id
        if not is_id(value):
            raise invalid_url(name)
        return value

    def text(self, name):
        return self.request.match_info[name]

    def number(self, name, default, maximum=None):
        """A number of the query. What is no number counts as the default, as the server has it."""
        try:
            value = int(self.query.get(name, ""))
        except ValueError:
            return default
        if not 0 <= value < 2**31:
            return default
        return value if maximum is None else min(value, maximum)

    @property
    def page(self):
        return self.number("page", 0)

    @property
    def per_page(self):
        return self.number("per_page", PER_PAGE_DEFAULT, PER_PAGE_MAXIMUM)

    def flag(self, name):
        return is_true(self.query.get(name, ""))

    async def raw_body(self):
        if (self.request.content_length or 0) > MAXIMUM_PAYLOAD:
            raise APIError(413, "api.context.request_body_too_large.app_error")
        return await self.request.read()

    async def body(self, name):
        """An object; `name` is what the error calls it."""
        value = await self.json(invalid_body(name))
        if not isinstance(value, dict):
            raise invalid_body(name)
        return value

    async def array(self, name):
        """An array of strings without repetitions, in the order sent."""
        value = await self.json(unreadable())
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise unreadable()
        if not value:
            raise invalid_body(name)
        return list(dict.fromkeys(value))

    async def json(self, failure):
        try:
            return _sound(json.loads(await self.raw_body()))
        except (ValueError, RecursionError):
            raise failure from None


def _sound(value):
    """Replaces lone surrogates as Go does. Numbers that no column holds raise ValueError."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_sound(entry) for entry in value]
    if isinstance(value, dict):
        return {_sound(name): _sound(entry) for name, entry in value.items()}
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def typed(body, name, kind, default, what):
    """A member of a body, of this type; absent and null are the default."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise invalid_body(what)
    return value


class Routes:
    """Routes that a file declares beside what answers them."""

    def __init__(self):
        self.entries = []

    def on(self, method, path, session=True, trusted=False):
        """`trusted`: no token against forged requests is asked of cookies."""
        def declare(handler):
            self.entries.append((method, path, handler, session, trusted))
            return handler
        return declare
