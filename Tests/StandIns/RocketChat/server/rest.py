"""The frame of the REST API: routes, authentication, the rate limiter, paging, and the forms of answers and errors."""

import collections
import json
import time

from aiohttp import web

from . import query as queries
from .values import MISTAKES, MeteorError, parse_time, rest_form, to_json

# Ours: addresses and routes that the rate limiter remembers.
MOST_COUNTERS = 4096
FORBIDDEN_CODES = ("unauthorized", "error-unauthorized")
LOGIN_NEEDED = {"status": "error", "message": "You must be logged in to do this."}
HANDLERS = {}


class Answer(Exception):
    """An answer that is no plain success."""

    def __init__(self, status, body, headers=None):
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


def failure(error=None, kind=None):
    body = {"success": False}
    if error is not None:
        body["error"] = error
    if kind:
        body["errorType"] = kind
    return Answer(400, body)


def forbidden(error="unauthorized"):
    return Answer(403, {"success": False, "error": error})


def route(method, *names, login=True, limited=True, raw=False):
    def register(handler):
        for name in names:
            HANDLERS[method, name] = (handler, login, limited, raw)
        return handler
    return register


class Call:
    """One request: who makes it, and its parameters."""

    def __init__(self, world, request, body):
        self.world, self.request, self.body = world, request, body
        self.query = dict(request.query)
        self.user = self.token = None

    @property
    def parameters(self):
        return self.query if self.request.method == "GET" else self.body

    def need(self, *names):
        """The parameters of those names, all of which must be there."""
        for name in names:
            if self.parameters.get(name) is None:
                raise MeteorError("invalid-params", f"must have required property '{name}'")
        values = [self.parameters[name] for name in names]
        return values[0] if len(values) == 1 else values

    def flag(self, name):
        return str(self.query.get(name, "")).lower() == "true"

    def moment(self, name):
        if name not in self.parameters:
            return None
        moment = parse_time(self.parameters[name])
        if moment is None:
            raise MeteorError(f"error-{name}-param-invalid", f'The "{name}" query parameter must be a valid date.')
        return moment

    def json(self, name):
        try:
            value = json.loads(self.query.get(name) or "{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise MeteorError(f"error-invalid-{name}", f'Invalid {name} parameter provided: "{self.query[name]}"',
                              {"helperMethod": "parseJsonQuery"})
        return value

    def paging(self):
        settings = self.world.settings
        try:
            offset = max(0, int(self.query.get("offset") or 0))
            count = int(self.query["count"]) if "count" in self.query else settings["API_Default_Count"]
        except ValueError:
            raise MeteorError("invalid-params", "must be number") from None
        if count > settings["API_Upper_Count_Limit"] or (count <= 0 and not settings["API_Allow_Infinite_Count"]):
            count = settings["API_Upper_Count_Limit"]
        return offset, max(0, count)

    def page(self, name, documents, sort=None):
        """A page of documents, after `query`, `sort` and `fields`."""
        offset, count = self.paging()
        found = [document for document in documents if queries.matches(document, self.json("query"))]
        order = self.json("sort") or sort
        found = queries.sorted_by(found, order) if order else found
        part = found[offset:offset + count] if count else found[offset:]
        part = [queries.project(document, self.json("fields")) for document in part]
        return {name: part, "count": len(part), "offset": offset, "total": len(found)}

    def shown(self, messages):
        return [self.world.messages.for_user(message, self.user) for message in messages]


class RateLimiter:
    """Counts the calls of each address and route within a time."""

    def __init__(self, settings):
        self.settings = settings
        self.counters = collections.OrderedDict()

    def headers(self, address, name):
        """Headers of the answer; raises when the limit is passed."""
        limit = self.settings["API_Enable_Rate_Limiter_Limit_Calls_Default"]
        interval = self.settings["API_Enable_Rate_Limiter_Limit_Time_Default"]
        now = time.monotonic_ns() // 1_000_000
        count, start = self.counters.pop((address, name), (0, now))
        if now - start >= interval:
            count, start = 0, now
        self.counters[address, name] = (count + 1, start)
        if len(self.counters) > MOST_COUNTERS:
            self.counters.popitem(last=False)
        left = start + interval - now
        headers = {
            "X-RateLimit-Limit": str(limit), "X-RateLimit-Remaining": str(max(0, limit - count - 1)),
            "X-RateLimit-Reset": str(int(time.time() * 1000) + left)}
        if count + 1 > limit:
            seconds = -(-left // 1000)
            raise Answer(429, {"success": False, "error": (
                "Error, too many requests. Please slow down. You must wait "
                f"{seconds} seconds before trying this endpoint again. [error-too-many-requests]")}, headers)
        return headers


def address(request):
    return request.headers.get("X-Real-IP") or request.remote or ""


async def body_of(request):
    if request.method in ("GET", "HEAD") or request.content_type == "multipart/form-data":
        return {}
    if request.content_type == "application/x-www-form-urlencoded":
        return dict(await request.post())
    data = await request.read()
    if not data:
        return {}
    try:
        body = json.loads(data)
    except MISTAKES:
        raise failure("Invalid JSON") from None
    return body if isinstance(body, dict) else {}


class RestServer:
    def __init__(self, world):
        self.world = world
        self.limiter = RateLimiter(world.settings)

    async def handle(self, request):
        name, rest = request.match_info["name"], request.match_info.get("rest", "")
        found = HANDLERS.get((request.method, name))
        if not found:
            return web.json_response({"success": False, "error": "API endpoint does not exist"}, status=404)
        handler, login, limited, raw = found
        headers = {}
        try:
            call = Call(self.world, request, await body_of(request))
            call.rest = rest.split("/") if rest else []
            self.authenticate(call)
            if login and not call.user:
                raise Answer(401, LOGIN_NEEDED)
            if limited and self.is_limited(call):
                headers = self.limiter.headers(address(request), f"{name}{request.method}")
            result = await handler(call)
            body, status = (result or {}) if raw else (result or {}) | {"success": True}, 200
        except Answer as answer:
            status, body, headers = answer.status, answer.body, headers | (answer.headers or {})
        except MeteorError as error:
            status, body = self.error(error)
        except MISTAKES as error:
            status, body = 400, {"success": False, "error": f"{type(error).__name__}"}
        return web.Response(
            body=to_json(rest_form(body)).encode(), status=status, headers=headers, content_type="application/json")

    def authenticate(self, call):
        token, identifier = call.request.headers.get("X-Auth-Token"), call.request.headers.get("X-User-Id")
        if token and identifier:
            call.user, _ = self.world.people.by_token(token, identifier)
            call.token = token

    def is_limited(self, call):
        return self.world.settings["API_Enable_Rate_Limiter"] and not (
            call.user and self.world.people.may(call.user, "api-bypass-rate-limit"))

    @staticmethod
    def error(error):
        if error.error in FORBIDDEN_CODES:
            return 403, {"success": False, "error": error.message}
        body = {"success": False, "error": error.message}
        if error.error is not None:
            body["errorType"] = error.error
        if error.details is not None:
            body["details"] = error.details
        return 400, body
