"""Plays a fixed conversation of three people against a Rocket.Chat server and prints what each of them sees.

usage: steps.py A B [--admin NAME] [--admin-password WORD] [--canaries FILE]

A and B are URLs of the same workspace, such as http://127.0.0.1:3000. Ada and Bo are behind A, Olga and the
administrator are at B. The workspace must be new. Each step prints a line of JSON: its name, what was called, the
answer, and the frames of the realtime API that each person received, in their order. Identifiers, times, tokens and
addresses are replaced by names in the order in which they appear, so that the output of two runs can be compared line
by line.

FILE gets a line for each text that a person writes: its canary word, what kind of text it is, and the step, with tabs
between them. The server keeps no word of the kind `search` or of a kind that begins with `refused`, no text that an edit
or a later status replaced, and no content of a deleted file.
"""

import argparse
import asyncio
import hashlib
import json
import re
import sys
import threading
import types

import aiohttp
import requests
from rocketchat_API.APIExceptions.RocketExceptions import (
    RocketApiException,
    RocketAuthenticationException,
    RocketBadStatusCodeException,
)
from rocketchat_API.rocketchat import RocketChat

PASSWORD = "horse-battery-staple"
# What has not come after this is not going to. Waits end with what they wait for, so this only bounds a failure.
TIMEOUT = 600
# The fields of the messages of this play, and those in which a gateway puts what it seals.
CUSTOM_FIELDS = json.dumps({"properties": {
    "priority": {"type": "string"}, "pawl": {"type": "string"}, "encrypted": {"type": "boolean"}}})


class Names:
    """Replaces what differs between two runs by stable names."""

    IDENTIFIER = r"[23456789ABCDEFGHJKLMNPQRSTWXYZabcdefghijkmnopqrstuvwxyz]{17}"
    PATTERN = re.compile(
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"
        r"|(?P<address>http://127\.0\.0\.1:\d+)"
        r"|(?<![A-Za-z0-9_-])(?:"
        r"(?P<token>[A-Za-z0-9_-]{43})"
        rf"|(?P<pair>{IDENTIFIER}{IDENTIFIER})"
        rf"|(?P<id>{IDENTIFIER}|[0-9a-f]{{24}})"
        r"|(?P<stamp>1[0-9]{12})"
        r")(?![A-Za-z0-9_-])")
    # Words of the protocol that look like identifiers.
    WORDS = {"getPinnedMessages", "getThreadMessages"}
    # Parts of texts and answers that differ, by the member that holds them.
    MEMBERS = {"lastTokenPart", "X-RateLimit-Remaining", "X-RateLimit-Reset"}

    def __init__(self):
        self.known = {}

    def name(self, kind, value):
        found = self.known.get((kind, value))
        if found is None:
            number = sum(1 for other, _ in self.known if other == kind) + 1
            found = self.known[kind, value] = f"<{kind} {number}>"
        return found

    def replacement(self, match):
        kind, value = match.lastgroup, match.group()
        if value in self.WORDS:
            return value
        if kind == "address":
            return "<address>"
        if kind in ("time", "stamp"):
            return "<time>"
        if kind == "pair":
            # The two parts are in the order of their random characters.
            return "".join(sorted((self.name("id", value[:17]), self.name("id", value[17:]))))
        return self.name(kind, value)

    def of(self, value):
        if isinstance(value, dict):
            if set(value) == {"$date"}:
                return {"$date": "<time>"}
            form = {self.of(key): "<value>" if key in self.MEMBERS else self.of(member)
                    for key, member in value.items()}
            if "uids" in form:
                form["uids"].sort()
            return form
        if isinstance(value, list):
            return [self.of(member) for member in value]
        if isinstance(value, str):
            text = self.PATTERN.sub(self.replacement, value)
            return re.sub(r"wait \d+ seconds", "wait <time> seconds", text)
        if isinstance(value, int) and not isinstance(value, bool) and 10**12 <= value < 10**13:
            return "<time>"
        return value


class Nothing(str):
    """Stands for what a step did not bring, so that the later steps that need it are played too."""

    def __getitem__(self, key):
        return self

    def __or__(self, other):
        return other

    def json(self):
        return self


class Found(dict):
    """An answer; members that it does not have are `Nothing`."""

    def __missing__(self, key):
        return Nothing("nothing")


class Socket:
    """A raw connection of the realtime API."""

    def __init__(self):
        self.frames, self.seen, self.last = [], 0, 0
        self.arrived = asyncio.Condition()

    async def open(self, session, address):
        self.socket = await session.ws_connect(address.replace("http", "ws", 1) + "/websocket", heartbeat=None)
        self.reader = asyncio.ensure_future(self.read())

    async def read(self):
        async for message in self.socket:
            if message.type != aiohttp.WSMsgType.TEXT:
                continue
            frame = json.loads(message.data)
            if frame.get("msg") == "ping":
                await self.send({"msg": "pong"})
                continue
            async with self.arrived:
                self.frames.append(frame)
                self.arrived.notify_all()
        async with self.arrived:
            self.frames.append({"msg": "closed"})
            self.arrived.notify_all()

    async def send(self, frame):
        await self.socket.send_str(json.dumps(frame))

    async def wait_for(self, fits):
        """The first frame that fits."""
        async def waiting():
            async with self.arrived:
                while True:
                    for frame in self.frames:
                        if frame.get("msg") == "closed":
                            raise RuntimeError("the server closed the connection of the realtime API")
                        if fits(frame):
                            return frame
                    await self.arrived.wait()
        return await asyncio.wait_for(waiting(), TIMEOUT)

    def number(self):
        self.last += 1
        return str(self.last)

    async def method(self, name, *parameters):
        """The result of a method, and which of its two frames did not come before the answer to a later ping."""
        identifier = self.number()
        await self.send({"msg": "method", "method": name, "id": identifier, "params": list(parameters)})
        await self.ping()
        results = [frame for frame in self.frames if frame.get("msg") == "result" and frame.get("id") == identifier]
        updated = [frame for frame in self.frames if frame.get("msg") == "updated" and identifier in frame["methods"]]
        missing = [name for name, frames in (("result", results), ("updated", updated)) if len(frames) != 1]
        result = {key: value for key, value in (results or [{}])[0].items() if key != "id"}
        return Found(result | ({"missing": missing} if missing else {}))

    async def subscribe(self, stream, event, options=False):
        identifier = "s" + self.number()
        await self.send({"msg": "sub", "id": identifier, "name": stream, "params": [event, options]})
        frame = await self.wait_for(lambda frame: frame.get("msg") == "ready" and identifier in frame["subs"]
                                    or frame.get("msg") == "nosub" and frame.get("id") == identifier)
        return identifier, frame

    async def unsubscribe(self, identifier):
        await self.send({"msg": "unsub", "id": identifier})
        return await self.wait_for(
            lambda frame: frame.get("msg") == "nosub" and frame.get("id") == identifier)

    async def ping(self):
        """The answer to a ping comes after all that was sent before it."""
        identifier = "p" + self.number()
        await self.send({"msg": "ping", "id": identifier})
        await self.wait_for(lambda frame: frame.get("msg") == "pong" and frame.get("id") == identifier)

    async def news(self):
        """The frames since the last call."""
        await self.ping()
        frames, self.frames = self.frames, []
        return [frame for frame in frames if frame.get("msg") not in ("pong", "result", "updated", "server_id")
                and "server_id" not in frame]

    async def close(self):
        await self.socket.close()
        await self.reader


class Person:
    """Somebody with the library's client, a way to make raw requests, and perhaps a socket."""

    def __init__(self, name, address):
        self.name, self.address = name, address
        self.library = RocketChat(server_url=address, timeout=TIMEOUT)
        self.requests = requests.Session()
        self.socket = None

    @property
    def id(self):
        return self.library.headers["X-User-Id"]

    @property
    def token(self):
        return self.library.headers["X-Auth-Token"]

    def get(self, path, headers=None, **query):
        return self.raw("GET", path, headers, params=query)

    def post(self, path, body=None, headers=None, **options):
        return self.raw("POST", path, headers, json=body, **options)

    def raw(self, method, path, headers=None, **options):
        path = path if path.startswith("/") else f"/api/v1/{path}"
        headers = self.library.headers if headers is None else headers
        return self.requests.request(method, self.address + path, headers=headers, timeout=TIMEOUT, **options)

    def call(self, method, *parameters, anonymous=False):
        """method.call: JSON text inside JSON in both directions."""
        message = json.dumps({"msg": "method", "id": "rest", "method": method, "params": list(parameters)})
        name = "method.callAnon" if anonymous else "method.call"
        return self.post(f"{name}/{method.replace('/', ':')}", {"message": message})


class Play:
    def __init__(self, canaries):
        self.names = Names()
        self.people = []
        self.steps = 0
        self.words = 0
        self.canaries = canaries
        self.pending = []
        self.lock = threading.Lock()

    def text(self, kind, template="{}"):
        """A text of a person with a word that occurs nowhere else."""
        with self.lock:
            self.words += 1
            word = f"kanari{self.words:04d}{hashlib.sha256(str(self.words).encode()).hexdigest()[:2]}"
            self.pending.append((word, kind))
        return template.replace("{}", word)

    async def step(self, name, called, action):
        """Plays a step: a function for another thread, or a coroutine. Returns what it came to."""
        if asyncio.iscoroutine(action):
            outcome = await action
            shown = outcome
        else:
            outcome, shown = await asyncio.to_thread(self.outcome, action)
        events = {}
        for person in self.people:
            if person.socket:
                frames = await person.socket.news()
                if frames:
                    events[person.name] = frames
        self.steps += 1
        line = {"step": name, "called": called} | self.names.of({"answer": shown, "events": events})
        print(json.dumps(line, ensure_ascii=False, sort_keys=True), flush=True)
        for word, kind in self.pending:
            if self.canaries:
                self.canaries.write(f"{word}\t{kind}\t{name}\n")
        self.pending = []
        return self.usable(outcome)

    @staticmethod
    def usable(outcome):
        """What later steps take ids from."""
        if outcome is None or isinstance(outcome, requests.Response) and not outcome.ok:
            return Nothing("nothing")
        return Found(outcome) if isinstance(outcome, dict) else outcome

    def outcome(self, action):
        try:
            value = action()
            if isinstance(value, (types.GeneratorType,)) or type(value).__name__ == "islice":
                value = list(value)
        except RocketAuthenticationException:
            return None, {"raised": "RocketAuthenticationException"}
        except RocketApiException as error:
            return None, {"raised": "RocketApiException", "status": error.status_code, "body": error.response_json}
        except RocketBadStatusCodeException as error:
            return None, {"raised": "RocketBadStatusCodeException", "status": error.status_code,
                          "body": error.response_json}
        if not isinstance(value, requests.Response):
            return value, value
        shown = {"status": value.status_code}
        for header in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Content-Disposition"):
            if header in value.headers:
                shown[header] = value.headers[header]
        try:
            body = shown["body"] = value.json()
            if isinstance(body, dict) and isinstance(body.get("message"), str) and "method.call" in value.url:
                shown["body"] = body | {"message": json.loads(body["message"])}
        except ValueError:
            shown["body"] = value.text
        return value, shown


def result_of(response):
    """The result of a method that went over method.call."""
    if isinstance(response, Nothing):
        return response
    return Found(json.loads(response.json()["message"]))["result"]


async def play(arguments, canaries):
    script = Play(canaries)
    step, text = script.step, script.text
    ada, bo = Person("ada", arguments.a), Person("bo", arguments.a)
    olga, admin = Person("olga", arguments.b), Person("admin", arguments.b)
    script.people = [ada, bo, olga]

    # The workspace, and logging in

    await step("info", "lib info", lambda: ada.library.info())
    settings = await step("settings.public", "lib settings_public",
                          lambda: ada.library.settings_public(_id="Message_MaxAllowedSize,Site_Url"))
    site = next(row["value"] for row in settings if row["_id"] == "Site_Url")
    await step("me without login", "GET me", lambda: ada.get("me", {}))
    await step("unknown endpoint", "GET no.suchThing", lambda: ada.get("no.suchThing"))
    await step("admin logs in", "lib login", lambda: admin.library.login(arguments.admin, arguments.admin_password))
    await step("admin raises the rate limit", "lib settings_update", lambda: admin.library.settings_update(
        "API_Enable_Rate_Limiter_Limit_Calls_Default", 100000))
    for setting, value in (("Message_CustomFields", CUSTOM_FIELDS), ("Message_CustomFields_Enabled", True)):
        await step(f"admin sets {setting}", "lib settings_update", lambda setting=setting, value=value: (
            admin.library.settings_update(setting, value)))
    for name, roles in (("ada", ["user"]), ("bo", ["user", "bot"])):
        await step(f"admin creates {name}", "lib users_create", lambda name=name, roles=roles: (
            admin.library.users_create(
                f"{name}@example.org", text("display name", f"{name.title()} {{}}"), PASSWORD, name, roles=roles)))
    await step("olga registers", "lib users_register", lambda: olga.library.users_register(
        "olga@example.org", text("display name", "Olga {}"), PASSWORD, "olga"))
    await step("name is taken", "lib users_register", lambda: olga.library.users_register(
        "other@example.org", "Other", PASSWORD, "olga"))
    await step("wrong password", "lib login", lambda: ada.library.login("ada", "no"))
    await step("wrong password, raw", "POST login", lambda: ada.post("login", {"user": "ada", "password": "no"}))
    await step("unknown person", "POST login", lambda: ada.post("login", {"user": "nobody", "password": "no"}))
    await step("ada logs in", "lib login", lambda: ada.library.login("ada", PASSWORD))
    await step("bo logs in by address", "lib login", lambda: bo.library.login("bo@example.org", PASSWORD))
    await step("olga logs in with a digest", "POST login", lambda: olga.post("login", {
        "user": "olga", "password": {"digest": hashlib.sha256(PASSWORD.encode()).hexdigest(), "algorithm": "sha-256"}}))
    await step("olga logs in", "lib login", lambda: olga.library.login("olga", PASSWORD))
    await step("login with a token", "POST login", lambda: bo.post("login", {"resume": bo.token}))
    await step("me", "lib me", lambda: ada.library.me())
    await step("token without user", "GET me", lambda: ada.get("me", {"X-Auth-Token": ada.token}))
    await step("user without token", "GET me", lambda: ada.get("me", {"X-User-Id": ada.id}))
    await step("token of another", "GET me", lambda: ada.get("me", {"X-Auth-Token": ada.token, "X-User-Id": bo.id}))
    await step("login at the library fails", "lib me", lambda: RocketChat(
        server_url=ada.address, auth_token="0" * 43, user_id=ada.id).me())
    await step("users.info of oneself", "lib users_info", lambda: ada.library.users_info(username="ada"))
    await step("users.info of another", "lib users_info", lambda: ada.library.users_info(user_id=bo.id))
    await step("users.info of nobody", "lib users_info", lambda: ada.library.users_info(username="nobody"))
    await step("users.list in pages", "lib users_list", lambda: ada.library.users_list(count=2))
    await step("users.list, page", "GET users.list", lambda: ada.get("users.list", count=2, offset=1))
    await step("users.list, query", "GET users.list", lambda: ada.get(
        "users.list", query=json.dumps({"username": {"$regex": "^[ao]"}})))
    await step("users.getPresence", "lib users_get_presence", lambda: ada.library.users_get_presence(username="bo"))
    await step("users.presence", "GET users.presence", lambda: ada.get("users.presence", ids=f"{ada.id},{bo.id}"))
    await step("users.setStatus", "lib users_set_status",
               lambda: ada.library.users_set_status(text("status", "at sea {}"), status="busy"))
    await step("users.getStatus", "GET users.getStatus", lambda: bo.get("users.getStatus", username="ada"))
    await step("users.updateOwnBasicInfo", "POST users.updateOwnBasicInfo", lambda: ada.post(
        "users.updateOwnBasicInfo", {"data": {"bio": text("bio", "sails {}"), "nickname": text("nickname")}}))

    # Personal access tokens

    personal = await step("personal token", "POST users.generatePersonalAccessToken", lambda: ada.post(
        "users.generatePersonalAccessToken", {"tokenName": "robot"}))
    token = personal.json()["token"]
    await step("personal token, name taken", "POST users.generatePersonalAccessToken", lambda: ada.post(
        "users.generatePersonalAccessToken", {"tokenName": "robot"}))
    await step("personal tokens", "GET users.getPersonalAccessTokens", lambda: ada.get("users.getPersonalAccessTokens"))
    await step("personal token in use", "lib users_get_presence", lambda: RocketChat(
        server_url=ada.address, auth_token=token, user_id=ada.id).users_get_presence(username="bo"))
    await step("personal token anew", "POST users.regeneratePersonalAccessToken", lambda: ada.post(
        "users.regeneratePersonalAccessToken", {"tokenName": "robot"}))
    await step("personal token removed", "POST users.removePersonalAccessToken", lambda: ada.post(
        "users.removePersonalAccessToken", {"tokenName": "robot"}))
    await step("personal token unusable", "GET me", lambda: ada.get(
        "me", {"X-Auth-Token": token, "X-User-Id": ada.id}))

    # The realtime API: connecting

    digest = {"digest": hashlib.sha256(PASSWORD.encode()).hexdigest(), "algorithm": "sha-256"}
    wrong = {"digest": hashlib.sha256(b"no").hexdigest(), "algorithm": "sha-256"}
    async with aiohttp.ClientSession() as session:
        async def connect(person):
            socket = Socket()
            await socket.open(session, person.address)
            await socket.send({"msg": "connect", "version": "1", "support": ["1"]})
            answer = await socket.wait_for(lambda frame: frame.get("msg") == "connected")
            person.socket = socket
            return answer

        async def early(person):
            socket = Socket()
            await socket.open(session, person.address)
            await socket.send({"msg": "method", "method": "rooms/get", "id": "1", "params": []})
            answer = await socket.wait_for(lambda frame: frame.get("msg") == "error")
            await socket.send({"msg": "connect", "version": "0", "support": ["0"]})
            failed = await socket.wait_for(lambda frame: frame.get("msg") == "failed")
            await socket.close()
            return [answer, failed]

        await step("method before connect", "ddp", early(ada))
        for person in script.people:
            await step(f"{person.name} connects", "ddp connect", connect(person))
        a, b, o = ada.socket, bo.socket, olga.socket
        await step("sub without login", "ddp sub stream-notify-user", a.subscribe(
            "stream-notify-user", f"{ada.id}/notification"))
        await step("method without login", "ddp rooms/get", a.method("rooms/get", {"$date": 0}))
        await step("ddp wrong password", "ddp login", a.method(
            "login", {"user": {"username": "ada"}, "password": wrong}))
        await step("ddp password", "ddp login", a.method("login", {"user": {"username": "ada"}, "password": digest}))
        await step("ddp token", "ddp login", b.method("login", {"resume": bo.token}))
        await step("ddp token, outsider", "ddp login", o.method("login", {"resume": olga.token}))
        await step("ddp bad token", "ddp login", o.method("login", {"resume": "0" * 43}))
        await step("ddp unknown method", "ddp noSuchMethod", a.method("noSuchMethod"))
        await step("ddp unknown stream", "ddp sub", a.subscribe("no-such-stream", "x"))
        await step("ddp public-settings/get", "ddp public-settings/get", a.method("public-settings/get"))
        for person in script.people:
            for event in ("notification", "subscriptions-changed", "rooms-changed", "message"):
                await step(
                    f"{person.name} subscribes to {event}", "ddp sub stream-notify-user",
                    person.socket.subscribe("stream-notify-user", f"{person.id}/{event}"))
        await step("sub of another's events", "ddp sub stream-notify-user", o.subscribe(
            "stream-notify-user", f"{ada.id}/notification"))

        await rooms(script, ada, bo, olga)
        await messages(script, ada, bo, olga, admin, site)
        await endings(script, ada, bo, olga, admin)
    return script.steps


async def rooms(script, ada, bo, olga):
    step, text = script.step, script.text
    a, b, o = ada.socket, bo.socket, olga.socket

    made = await step("channels.create", "lib channels_create", lambda: ada.library.channels_create(
        "harbour", members=["bo"]))
    script.channel = rid = made["channel"]["_id"]
    await step("channels.create, name taken", "lib channels_create", lambda: bo.library.channels_create("harbour"))
    await step("channels.create, bad name", "lib channels_create", lambda: bo.library.channels_create("no good"))
    await step("channels.create without name", "POST channels.create", lambda: bo.post("channels.create", {}))
    made = await step("groups.create", "lib groups_create", lambda: ada.library.groups_create("cabin", members=["bo"]))
    script.group = group = made["group"]["_id"]
    made = await step("dm.create", "lib dm_create", lambda: ada.library.dm_create("bo"))
    script.direct = made["room"]["_id"]
    await step("dm.create, again", "lib dm_create", lambda: bo.library.dm_create("ada"))
    made = await step("dm.create, three", "lib dm_create_multiple",
                      lambda: ada.library.dm_create_multiple(["bo", "olga"]))
    script.three = made["room"]["_id"]
    await step("dm.create, nobody", "lib dm_create", lambda: ada.library.dm_create("nobody"))
    await step("ada subscribes to the channel", "ddp sub stream-room-messages", a.subscribe("stream-room-messages", rid))
    await step("bo subscribes to the channel", "ddp sub stream-room-messages", b.subscribe("stream-room-messages", rid, {
        "useCollection": False, "args": []}))
    _, frame = await step("olga subscribes to the public channel", "ddp sub stream-room-messages",
                          o.subscribe("stream-room-messages", rid))
    await step("olga may not subscribe to the group", "ddp sub stream-room-messages",
               o.subscribe("stream-room-messages", group))
    await step("bo subscribes to the group", "ddp sub stream-room-messages",
               b.subscribe("stream-room-messages", group, True))
    await step("bo subscribes to the direct messages", "ddp sub stream-room-messages",
               b.subscribe("stream-room-messages", script.direct))
    await step("bo subscribes to typing", "ddp sub stream-notify-room",
               b.subscribe("stream-notify-room", f"{rid}/typing"))
    await step("bo subscribes to activity", "ddp sub stream-notify-room",
               b.subscribe("stream-notify-room", f"{rid}/user-activity"))
    await step("bo subscribes to deletions", "ddp sub stream-notify-room",
               b.subscribe("stream-notify-room", f"{rid}/deleteMessage"))
    await step("olga may not subscribe to typing", "ddp sub stream-notify-room",
               o.subscribe("stream-notify-room", f"{rid}/typing"))
    await step("channels.setTopic", "lib channels_set_topic",
               lambda: ada.library.channels_set_topic(rid, text("topic", "tides {}")))
    await step("channels.setDescription", "lib channels_set_description",
               lambda: ada.library.channels_set_description(rid, text("description", "ships {}")))
    await step("channels.setAnnouncement", "lib channels_set_announcement",
               lambda: ada.library.channels_set_announcement(rid, text("announcement", "storm {}")))
    await step("channels.setTopic, not allowed", "lib channels_set_topic",
               lambda: olga.library.channels_set_topic(rid, text("refused topic", "mine {}")))
    await step("groups.setTopic", "lib groups_set_topic",
               lambda: ada.library.groups_set_topic(group, text("topic", "secret {}")))
    await step("groups.setDescription", "lib groups_set_description",
               lambda: ada.library.groups_set_description(group, text("description")))
    await step("groups.setAnnouncement", "lib groups_set_announcement",
               lambda: ada.library.groups_set_announcement(group, text("announcement")))
    await step("dm.setTopic", "lib dm_set_topic",
               lambda: ada.library.dm_set_topic(script.direct, text("topic", "us {}")))
    await step("channels.list", "lib channels_list", lambda: ada.library.channels_list())
    await step("channels.list, page", "GET channels.list", lambda: ada.get(
        "channels.list", count=1, offset=1, sort='{"name": 1}'))
    await step("channels.list.joined", "lib channels_list_joined", lambda: olga.library.channels_list_joined())
    await step("groups.list", "lib groups_list", lambda: bo.library.groups_list())
    await step("groups.list, outsider", "lib groups_list", lambda: olga.library.groups_list())
    await step("dm.list", "lib dm_list", lambda: bo.library.dm_list())
    await step("channels.info by name", "lib channels_info", lambda: olga.library.channels_info(channel="harbour"))
    await step("groups.info", "lib groups_info", lambda: bo.library.groups_info(group))
    await step("groups.info, outsider", "lib groups_info", lambda: olga.library.groups_info(group))
    await step("rooms.info", "lib rooms_info", lambda: bo.library.rooms_info(script.direct))
    await step("rooms.info, outsider", "lib rooms_info", lambda: olga.library.rooms_info(script.direct))
    await step("channels.members", "lib channels_members", lambda: ada.library.channels_members(rid, count=1))
    await step("channels.members, page", "GET channels.members", lambda: ada.get(
        "channels.members", roomId=rid, count=1, offset=1))
    await step("groups.members", "lib groups_members", lambda: ada.library.groups_members(group))
    await step("dm.members", "lib dm_members", lambda: ada.library.dm_members(script.three))
    await step("im.members", "GET im.members", lambda: ada.get("im.members", roomId=script.direct))
    await step("olga joins", "lib channels_join", lambda: olga.library.channels_join(rid, ""))
    await step("channels.addModerator", "lib channels_add_moderator",
               lambda: ada.library.channels_add_moderator(rid, bo.id))
    await step("channels.roles", "lib channels_roles", lambda: ada.library.channels_roles(rid))
    await step("channels.kick, not allowed", "lib channels_kick", lambda: olga.library.channels_kick(rid, bo.id))
    await step("channels.kick", "lib channels_kick", lambda: ada.library.channels_kick(rid, olga.id))
    await step("channels.invite", "lib channels_invite", lambda: bo.library.channels_invite(rid, olga.id))
    await step("channels.leave", "lib channels_leave", lambda: olga.library.channels_leave(rid))
    await step("channels.leave, last owner", "lib channels_leave", lambda: ada.library.channels_leave(rid))
    await step("groups.invite", "lib groups_invite", lambda: ada.library.groups_invite(group, olga.id))
    await step("groups.kick", "lib groups_kick", lambda: ada.library.groups_kick(group, olga.id))
    await step("rooms.get", "lib rooms_get", lambda: bo.library.rooms_get())
    await step("subscriptions.get", "lib subscriptions_get", lambda: bo.library.subscriptions_get())
    await step("subscriptions.getOne", "lib subscriptions_get_one",
               lambda: bo.library.subscriptions_get_one(rid))
    await step("ddp rooms/get", "ddp rooms/get", b.method("rooms/get", {"$date": 0}))
    await step("ddp subscriptions/get", "ddp subscriptions/get", b.method("subscriptions/get"))
    await step("ddp getRoomNameById", "ddp getRoomNameById", b.method("getRoomNameById", rid))
    await step("spotlight", "lib spotlight", lambda: bo.library.spotlight("harb"))
    await step("directory", "lib directory", lambda: bo.library.directory({"type": "channels", "text": "harb"}))


async def messages(script, ada, bo, olga, admin, site):
    step, text = script.step, script.text
    a, b = ada.socket, bo.socket
    rid, group, direct = script.channel, script.group, script.direct

    # Sending. A gateway that seals refuses or accepts the first of these otherwise than the server.

    await step("chat.postMessage", "lib chat_post_message", lambda: ada.library.chat_post_message(
        text("message", "ahoy {}"), channel="#harbour"))
    made = await step("dm.create, outsider", "lib dm_create", lambda: ada.library.dm_create("olga"))
    await step("direct message to an outsider", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": made["room"]["_id"], "msg": text("message to an outsider", "for olga {}")}))
    await step("message to a room with an outsider", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": script.three, "msg": text("message", "whoever reads {}")}))
    await step("chat.postMessage to a person", "lib chat_post_message", lambda: bo.library.chat_post_message(
        text("message", "for you {}"), channel="@ada"))
    await step("chat.postMessage, attachment only", "lib chat_post_message", lambda: bo.library.chat_post_message(
        "", room_id=rid, attachments=[{"text": text("attachment text")}]))
    await step("chat.postMessage as form", "POST chat.postMessage", lambda: ada.raw(
        "POST", "chat.postMessage", data={"roomId": rid, "text": text("message", "as a form {}")}))
    await step("too long message", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "msg": text("refused message", "{} ").ljust(5001, "x")}))
    await step("too long in postMessage", "lib chat_post_message", lambda: ada.library.chat_post_message(
        text("refused message", "{} ").ljust(5001, "x"), room_id=rid))
    await step("ddp sendMessage, too long", "ddp sendMessage", a.method("sendMessage", {
        "rid": rid, "msg": text("refused message", "{} ").ljust(5001, "x")}))
    first = await step("chat.postMessage by id", "lib chat_post_message", lambda: bo.library.chat_post_message(
        text("message", "*bold {}* and `code` https://example.org/tide @ada #harbour :smile:"), room_id=rid))
    await step("chat.postMessage with attachment", "lib chat_post_message", lambda: bo.library.chat_post_message(
        text("message", "see {}"), room_id=rid, emoji=":rocket:", alias=text("alias", "Gull {}"), attachments=[{
            "title": text("attachment title"), "text": text("attachment text", "rope {}"),
            "author_name": text("attachment author"), "color": "#ff0000",
            "fields": [{"short": True, "title": text("attachment field title"), "value": text("attachment field")}]}]))
    await step("chat.postMessage, alias not allowed", "lib chat_post_message", lambda: ada.library.chat_post_message(
        text("refused message"), room_id=rid, alias=text("refused alias")))
    await step("chat.postMessage, no such room", "lib chat_post_message", lambda: ada.library.chat_post_message(
        text("refused message"), channel="#nowhere"))
    await step("chat.postMessage without room", "POST chat.postMessage", lambda: ada.post(
        "chat.postMessage", {"text": text("refused message")}))
    second = await step("chat.sendMessage", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "msg": text("message", "anchor {}\n> quoted\n- one\n- two\n1. first\n```js\ncode\n```")}))
    own = "Aa2Bb3Cc4Dd5Ee6Ff"
    await step("chat.sendMessage with an id", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "_id": own, "rid": rid, "msg": text("message", "chosen id {}")}))
    await step("chat.sendMessage, id taken", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "_id": own, "rid": rid, "msg": text("refused message", "again {}")}))
    await step("custom field that is not known", "POST chat.sendMessage", lambda: ada.post("chat.sendMessage", {
        "message": {"rid": rid, "msg": text("refused message"), "customFields": {"colour": "red"}}}))
    await step("chat.sendMessage, outsider", "lib chat_send_message", lambda: olga.library.chat_send_message({
        "rid": group, "msg": text("refused message")}))
    await step("chat.sendMessage, system type", "POST chat.sendMessage", lambda: ada.post(
        "chat.sendMessage", {"message": {"rid": rid, "msg": text("refused message"), "t": "uj"}}))
    await step("chat.sendMessage without message", "POST chat.sendMessage", lambda: ada.post("chat.sendMessage", {}))
    await step("longest message", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "msg": text("message", "{} ").ljust(5000, "x")}))
    await step("not ASCII", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "msg": text("message", "grüße ⛵ 𝄞 \"quotes\" \\ \u0001 {}")}))
    await step("group message", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": group, "msg": text("message", "cabin {} @bo")}))
    await step("direct message", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": direct, "msg": text("message", "just us {}")}))
    await step("message to three", "lib chat_send_message", lambda: olga.library.chat_send_message({
        "rid": script.three, "msg": text("message", "all three {}")}))
    await step("quote", "lib chat_send_message", lambda: bo.library.chat_send_message({
        "rid": rid, "msg": f"[ ]({site}/channel/harbour?msg={first['message']['_id']}) " + text("message", "so {}")}))

    # A gateway may not tell the server whom a text mentions, so that counters differ until here.
    await step("ada reads the channel", "lib subscriptions_read", lambda: ada.library.subscriptions_read(rid))
    await step("bo reads the group", "lib subscriptions_read", lambda: bo.library.subscriptions_read(group))

    # The realtime API

    live = await step("ddp sendMessage", "ddp sendMessage", a.method("sendMessage", {
        "_id": "Gg7Hh8Jj9Kk2Mm3Nn", "rid": rid, "msg": text("message", "live {}")}))
    await step("ddp sendMessage, direct", "ddp sendMessage", a.method("sendMessage", {
        "rid": direct, "msg": text("message", "live us {}")}))
    await step("ddp sendMessage, outsider", "ddp sendMessage", olga.socket.method("sendMessage", {
        "rid": group, "msg": text("refused message")}))
    await step("ddp sendMessage, no object", "ddp sendMessage", a.method("sendMessage", "text"))
    await step("ddp typing", "ddp stream-notify-room", a.method("stream-notify-room", f"{rid}/typing", "ada", True))
    await step("ddp activity", "ddp stream-notify-room", a.method(
        "stream-notify-room", f"{rid}/user-activity", "ada", [], {}))
    await step("ddp typing as another", "ddp stream-notify-room", a.method(
        "stream-notify-room", f"{rid}/typing", "bo", True))
    await step("ddp updateMessage", "ddp updateMessage", a.method("updateMessage", {
        "_id": live["result"]["_id"], "rid": rid, "msg": text("edit", "live again {}")}))
    await step("ddp updateMessage, whole message", "ddp updateMessage", a.method(
        "updateMessage", live["result"] | {"msg": text("refused edit", "live whole {}")}))
    await step("ddp updateMessage, another's", "ddp updateMessage", olga.socket.method("updateMessage", {
        "_id": live["result"]["_id"], "rid": rid, "msg": text("refused edit")}))
    await step("ddp setReaction", "ddp setReaction", b.method("setReaction", ":wave:", live["result"]["_id"], True))
    await step("ddp getSingleMessage", "ddp getSingleMessage", b.method("getSingleMessage", live["result"]["_id"]))
    await step("ddp loadHistory", "ddp loadHistory", b.method("loadHistory", rid, None, 3, {"$date": 1}))
    await step("ddp loadHistory, earlier", "ddp loadHistory", b.method(
        "loadHistory", rid, live["result"]["ts"], 2, None))
    await step("ddp loadHistory, outsider", "ddp loadHistory", olga.socket.method("loadHistory", group, None, 3, None))
    await step("ddp messages/get", "ddp messages/get", b.method(
        "messages/get", rid, {"lastUpdate": live["result"]["ts"]}))
    await step("ddp search", "ddp rocketchatSearch.search", b.method(
        "rocketchatSearch.search", text("search", "{} anchor"), {"uid": bo.id, "rid": rid},
        {"searchAll": False, "limit": 5}))
    await step("ddp pinMessage", "ddp pinMessage", a.method("pinMessage", live["result"]))
    await step("ddp deleteMessage", "ddp deleteMessage", a.method("deleteMessage", {"_id": live["result"]["_id"]}))

    # Methods over REST

    sent = await step("method.call sendMessage", "POST method.call/sendMessage", lambda: ada.call(
        "sendMessage", {"_id": "Xx2Yy3Zz4Aa5Bb6Cc", "rid": rid, "msg": text("message", "over rest {}")}))
    sent = result_of(sent)
    await step("method.call updateMessage", "POST method.call/updateMessage", lambda: ada.call(
        "updateMessage", {"_id": sent["_id"], "rid": rid, "msg": text("edit", "over rest again {}")}))
    await step("method.call setReaction", "POST method.call/setReaction", lambda: bo.call(
        "setReaction", ":eyes:", sent["_id"]))
    await step("method.call loadHistory", "POST method.call/loadHistory", lambda: bo.call(
        "loadHistory", rid, None, 2, None))
    await step("method.call rooms/get", "POST method.call/rooms:get", lambda: bo.call("rooms/get", {"$date": 0}))
    await step("method.call saveRoomSettings", "POST method.call/saveRoomSettings", lambda: ada.call(
        "saveRoomSettings", rid, "roomTopic", text("topic", "by method {}")))
    await step("method.call search", "POST method.call/rocketchatSearch.search", lambda: bo.call(
        "rocketchatSearch.search", "anchor", {"uid": bo.id, "rid": rid}, {"limit": 5}))
    await step("method.call, outsider", "POST method.call/sendMessage", lambda: olga.call(
        "sendMessage", {"rid": group, "msg": text("refused message")}))
    await step("method.call, unknown", "POST method.call/noSuchMethod", lambda: ada.call("noSuchMethod"))
    await step("method.call, no JSON", "POST method.call/sendMessage", lambda: ada.post(
        "method.call/sendMessage", {"message": "no json"}))
    await step("method.callAnon", "POST method.callAnon/public-settings:get", lambda: ada.call(
        "public-settings/get", anonymous=True))
    await step("method.call deleteMessage", "POST method.call/deleteMessage", lambda: ada.call(
        "deleteMessage", {"_id": sent["_id"]}))

    # Changing and reading

    one = second["message"]["_id"]
    await step("chat.update", "lib chat_update", lambda: ada.library.chat_update(rid, one, text("edit", "hauled {}")))
    await step("chat.update, another's", "lib chat_update",
               lambda: olga.library.chat_update(rid, one, text("refused edit")))
    await step("chat.update, wrong room", "lib chat_update",
               lambda: ada.library.chat_update(group, one, text("refused edit")))
    await step("chat.update to what is too long to send", "lib chat_update",
               lambda: ada.library.chat_update(rid, own, text("edit", "{} ").ljust(5001, "x")))
    await step("chat.getMessage", "lib chat_get_message", lambda: bo.library.chat_get_message(one))
    await step("chat.getMessage, none", "lib chat_get_message", lambda: bo.library.chat_get_message("nothing"))
    await step("chat.react", "lib chat_react", lambda: bo.library.chat_react(one, emoji="tada"))
    await step("chat.react, another", "lib chat_react", lambda: ada.library.chat_react(one, emoji=":tada:"))
    await step("chat.react, take back", "lib chat_react", lambda: bo.library.chat_react(one, emoji="tada"))
    await step("chat.react, no such emoji", "lib chat_react", lambda: bo.library.chat_react(one, emoji="kraken"))
    await step("chat.starMessage", "lib chat_star_message", lambda: bo.library.chat_star_message(one))
    await step("chat.getStarredMessages", "lib chat_get_starred_messages",
               lambda: bo.library.chat_get_starred_messages(rid))
    await step("chat.unStarMessage", "lib chat_unstar_message", lambda: bo.library.chat_unstar_message(one))
    await step("chat.pinMessage", "lib chat_pin_message", lambda: ada.library.chat_pin_message(one))
    await step("chat.pinMessage, not allowed", "lib chat_pin_message", lambda: olga.library.chat_pin_message(one))
    await step("chat.getPinnedMessages", "lib chat_get_pinned_messages",
               lambda: bo.library.chat_get_pinned_messages(rid))
    await step("chat.unPinMessage", "lib chat_unpin_message", lambda: ada.library.chat_unpin_message(one))
    await step("chat.reportMessage", "lib chat_report_message",
               lambda: bo.library.chat_report_message(one, text("report", "rude {}")))
    await step("chat.search", "lib chat_search", lambda: bo.library.chat_search(rid, "hauled", count=5))
    await step("chat.search for nothing", "lib chat_search",
               lambda: bo.library.chat_search(rid, text("search"), count=5))
    await step("chat.search by expression", "lib chat_search",
               lambda: bo.library.chat_search(rid, "/HAULED/i", count=5))
    await step("chat.search, outsider", "lib chat_search", lambda: olga.library.chat_search(group, "cabin", count=5))
    await step("chat.getMentionedMessages", "lib chat_get_mentioned_messages",
               lambda: ada.library.chat_get_mentioned_messages(rid))

    # Threads

    reply = await step("reply in a thread", "lib chat_send_message", lambda: bo.library.chat_send_message({
        "rid": rid, "tmid": one, "msg": text("thread reply", "aye {}")}))
    await step("reply shown in the room", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "tmid": one, "tshow": True, "msg": text("thread reply", "aye aye {}")}))
    await step("chat.getThreadsList", "lib chat_get_threads_list", lambda: ada.library.chat_get_threads_list(rid))
    await step("chat.getThreadMessages", "lib chat_get_thread_messages",
               lambda: ada.library.chat_get_thread_messages(one))
    await step("chat.unfollowMessage", "lib chat_unfollow_message", lambda: bo.library.chat_unfollow_message(one))
    await step("chat.followMessage", "lib chat_follow_message", lambda: bo.library.chat_follow_message(one))
    await step("chat.syncThreadMessages", "lib chat_sync_thread_messages",
               lambda: ada.library.chat_sync_thread_messages(one, reply["message"]["ts"]))
    await step("reply is deleted", "lib chat_delete", lambda: bo.library.chat_delete(rid, reply["message"]["_id"]))
    # History

    await step("channels.history", "lib channels_history", lambda: bo.library.channels_history(rid, max_count=5))
    await step("channels.history, page", "GET channels.history", lambda: bo.get(
        "channels.history", roomId=rid, count=3, offset=2))
    oldest, latest = first["message"]["ts"], second["message"]["ts"]
    await step("channels.history between", "GET channels.history", lambda: bo.get(
        "channels.history", roomId=rid, oldest=oldest, latest=latest))
    await step("channels.history inclusive", "GET channels.history", lambda: bo.get(
        "channels.history", roomId=rid, oldest=oldest, latest=latest, inclusive="true"))
    await step("channels.history unreads", "GET channels.history", lambda: bo.get(
        "channels.history", roomId=rid, oldest=oldest, count=2, unreads="true"))
    await step("channels.history, threads", "GET channels.history", lambda: bo.get(
        "channels.history", roomId=rid, count=6, showThreadMessages="true"))
    await step("channels.messages", "GET channels.messages", lambda: bo.get("channels.messages", roomId=rid, count=4))
    await step("channels.messages, query", "GET channels.messages", lambda: bo.get(
        "channels.messages", roomId=rid, query=json.dumps({"msg": {"$regex": "^ahoy"}})))
    await step("groups.history", "lib groups_history", lambda: bo.library.groups_history(group))
    await step("groups.history, outsider", "lib groups_history", lambda: olga.library.groups_history(group))
    await step("dm.history", "lib dm_history", lambda: bo.library.dm_history(direct))
    await step("dm.messages", "lib dm_messages", lambda: bo.library.dm_messages(username="ada"))
    await step("dm.history of three", "lib dm_history", lambda: ada.library.dm_history(script.three))
    await step("chat.syncMessages", "lib chat_sync_messages", lambda: bo.library.chat_sync_messages(
        rid, second["message"]["ts"]))
    await step("chat.getDeletedMessages", "lib chat_get_deleted_messages",
               lambda: bo.library.chat_get_deleted_messages(rid, oldest))
    await step("channels.counters", "lib channels_counters", lambda: bo.library.channels_counters(rid))
    await step("subscriptions.unread", "lib subscriptions_unread", lambda: bo.library.subscriptions_unread(rid))
    await step("subscriptions.read", "lib subscriptions_read", lambda: bo.library.subscriptions_read(rid))
    await step("subscriptions.get since", "GET subscriptions.get", lambda: bo.get(
        "subscriptions.get", updatedSince=second["message"]["ts"]))

    # Commands and discussions, after the history, because a gateway that seals refuses them.

    await step("commands.list", "GET commands.list", lambda: ada.get("commands.list", count=3))
    for command, words in (("me", "waves {}"), ("shrug", "why {}"), ("gimme", "{}"), ("topic", "by command {}"),
                           ("status", "ashore {}"), ("msg", "@bo psst {}")):
        await step(f"command {command}", "POST commands.run", lambda command=command, words=words: ada.post(
            "commands.run", {"command": command, "params": text("command", words), "roomId": rid}))
    await step("command invite, nobody", "POST commands.run", lambda: ada.post(
        "commands.run", {"command": "invite", "params": "@" + text("refused command"), "roomId": rid}))
    await step("command in a thread", "POST commands.run", lambda: ada.post(
        "commands.run", {"command": "lennyface", "params": text("command"), "roomId": rid, "tmid": one}))
    await step("unknown command", "POST commands.run", lambda: ada.post(
        "commands.run", {"command": "sink", "params": text("refused command"), "roomId": rid}))
    await step("command, outsider", "POST commands.run", lambda: olga.post(
        "commands.run", {"command": "me", "params": text("refused command"), "roomId": group}))

    await step("ddp slashCommand", "ddp slashCommand", a.method("slashCommand", {
        "cmd": "shrug", "params": text("command", "who knows {}"), "triggerId": "1",
        "msg": {"_id": "Pp4Qq5Rr6Ss7Tt8Ww", "rid": rid, "msg": "/shrug"}}))
    await step("ddp slashCommand for oneself", "ddp slashCommand", a.method("slashCommand", {
        "cmd": "msg", "params": "@nobody hello", "msg": {"rid": rid}}))
    talk = await step("rooms.createDiscussion", "lib rooms_create_discussion",
                      lambda: ada.library.rooms_create_discussion(
                          rid, text("discussion name", "Repairs {}"), pmid=one, users=["bo"],
                          reply=text("message", "begin {}")))
    await step("history of the discussion", "lib groups_history",
               lambda: bo.library.channels_history(talk["discussion"]["_id"]))
    await step("chat.getDiscussions", "lib chat_get_discussions", lambda: bo.library.chat_get_discussions(rid))

    # Where a gateway refuses commands or files, the last messages and the topic are the same again from here.
    await step("channels.setTopic, again", "lib channels_set_topic",
               lambda: ada.library.channels_set_topic(rid, text("topic", "ebb {}")))
    await step("message after the commands", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": rid, "msg": text("message", "enough {}")}))
    await step("direct message after the commands", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": direct, "msg": text("message", "and you {}")}))
    await step("bo reads the channel", "lib subscriptions_read", lambda: bo.library.subscriptions_read(rid))

    # Files

    upload = await step("rooms.upload", "POST rooms.upload", lambda: ada.post(
        f"rooms.upload/{rid}", files={"file": (
            text("file name", "{}.txt"), text("file content", "cargo {}").encode(), "text/plain")},
        data={"msg": text("message", "papers {}"), "description": text("file description", "manifest {}")}))
    file = upload.json()["message"]["attachments"][0]
    await step("file-upload", "GET title_link", lambda: bo.get(file["title_link"]))
    await step("file-upload by cookie", "GET title_link", lambda: bo.get(
        file["title_link"] + "?download", {"Cookie": f"rc_uid={bo.id}; rc_token={bo.token}"}))
    await step("file-upload without login", "GET title_link", lambda: bo.get(file["title_link"], {}))
    media = await step("rooms.media", "lib rooms_media", lambda: ada.library.rooms_media(
        group, (text("file name", "{} map.png"), text("file content", "png {}").encode(), "image/png")))
    shown = await step("rooms.mediaConfirm", "lib rooms_media_confirm", lambda: ada.library.rooms_media_confirm(
        group, media["file"]["_id"], msg=text("message", "chart {}"),
        description=text("file description", "chart of {}")))
    await step("media of the group", "GET url", lambda: bo.get(media["file"]["url"]))
    await step("media of the group by cookie", "GET url", lambda: bo.get(
        media["file"]["url"], {"Cookie": f"rc_uid={bo.id}; rc_token={bo.token}"}))
    await step("history with the file", "lib groups_history", lambda: bo.library.groups_history(group, count=3))
    await step("file of the group, outsider", "GET url", lambda: olga.get(media["file"]["url"]))
    await step("rooms.media, outsider", "lib rooms_media", lambda: olga.library.rooms_media(
        group, ("x.txt", text("refused file content").encode(), "text/plain")))
    await step("rooms.upload without file", "POST rooms.upload", lambda: ada.post(
        f"rooms.upload/{rid}", files={"other": ("x.txt", b"x", "text/plain")}))
    await step("description is edited", "lib chat_update", lambda: ada.library.chat_update(
        group, shown["message"]["_id"], text("edit", "better chart {}")))
    await step("rooms.media for one", "lib rooms_media", lambda: bo.library.rooms_media(
        direct, (text("file name", "{}.bin"), text("file content", "\0\1 {}").encode(), "application/octet-stream")))
    await step("sound in direct messages", "POST rooms.upload", lambda: bo.post(
        f"rooms.upload/{direct}", files={"file": (
            text("file name", "{}.mp3"), text("file content").encode(), "audio/mpeg")},
        data={"msg": text("message", "listen {}")}))
    await step("dm.files", "lib dm_files", lambda: ada.library.dm_files(direct))
    await step("channels.files", "lib channels_files", lambda: bo.library.channels_files(rid))
    await step("file is deleted", "lib chat_delete", lambda: ada.library.chat_delete(
        rid, upload.json()["message"]["_id"]))
    await step("file-upload, deleted", "GET title_link", lambda: bo.get(file["title_link"]))

    for name, room in (("channel", rid), ("group", group), ("direct messages", direct)):
        await step(f"message after the files, {name}", "lib chat_send_message", lambda room=room: (
            ada.library.chat_send_message({"rid": room, "msg": text("message", "unloaded {}")})))

    # History of edits

    await step("edits are kept from now on", "lib settings_update",
               lambda: admin.library.settings_update("Message_KeepHistory", True))
    kept = await step("message to edit", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": group, "msg": text("message", "first words {}")}))
    await step("edited message", "lib chat_update", lambda: ada.library.chat_update(
        group, kept["message"]["_id"], text("edit", "last words {}")))
    await step("groups.messages shows the kept", "GET groups.messages", lambda: bo.get(
        "groups.messages", roomId=group, count=2))
    await step("deleted status is shown from now on", "lib settings_update",
               lambda: admin.library.settings_update("Message_ShowDeletedStatus", True))
    await step("deleted message", "lib chat_delete", lambda: ada.library.chat_delete(group, kept["message"]["_id"]))
    await step("chat.getMessage, deleted", "lib chat_get_message",
               lambda: bo.library.chat_get_message(kept["message"]["_id"]))
    for setting in ("Message_KeepHistory", "Message_ShowDeletedStatus"):
        await step(f"{setting} off", "lib settings_update",
                   lambda setting=setting: admin.library.settings_update(setting, False))


async def endings(script, ada, bo, olga, admin):
    step, text = script.step, script.text
    rid, group = script.channel, script.group

    identifier, _ = await step("sub of all messages", "ddp sub stream-room-messages", bo.socket.subscribe(
        "stream-room-messages", "__my_messages__"))
    gone = await step("message for all subs", "lib chat_send_message", lambda: ada.library.chat_send_message({
        "rid": group, "msg": text("message", "received twice {}")}))
    await step("unsub", "ddp unsub", bo.socket.unsubscribe(identifier))
    await step("unsub of nothing", "ddp unsub", bo.socket.unsubscribe("nothing"))
    await step("chat.delete", "lib chat_delete", lambda: ada.library.chat_delete(group, gone["message"]["_id"]))
    await step("chat.delete, again", "lib chat_delete", lambda: ada.library.chat_delete(group, gone["message"]["_id"]))
    await step("channels.setReadOnly", "lib channels_set_read_only",
               lambda: ada.library.channels_set_read_only(rid, True))
    await step("olga joins the read-only channel", "lib channels_join", lambda: olga.library.channels_join(rid, ""))
    await step("read-only", "lib chat_send_message", lambda: olga.library.chat_send_message({
        "rid": rid, "msg": text("refused message")}))
    await step("channels.setReadOnly off", "lib channels_set_read_only",
               lambda: ada.library.channels_set_read_only(rid, False))
    await step("channels.setCustomFields", "lib channels_set_custom_fields",
               lambda: ada.library.channels_set_custom_fields(rid, {"port": text("custom field")}))
    await step("channels.rename", "lib channels_rename", lambda: ada.library.channels_rename(rid, "marina"))
    await step("groups.rename", "lib groups_rename",
               lambda: ada.library.groups_rename(group, text("room name", "cabin-{}")))
    await step("channels.archive", "lib channels_archive", lambda: ada.library.channels_archive(rid))
    await step("channels.setTopic, archived", "lib channels_set_topic",
               lambda: ada.library.channels_set_topic(rid, text("refused topic")))
    await step("channels.unarchive", "lib channels_unarchive", lambda: admin.library.channels_unarchive(rid))
    await step("channels.close", "lib channels_close", lambda: bo.library.channels_close(rid))
    await step("channels.open", "lib channels_open", lambda: bo.library.channels_open(rid))
    await step("groups.leave", "lib groups_leave", lambda: bo.library.groups_leave(group))
    await step("groups.delete, not allowed", "lib groups_delete", lambda: bo.library.groups_delete(group))
    await step("groups.delete", "lib groups_delete", lambda: ada.library.groups_delete(group))
    await step("channels.delete", "lib channels_delete", lambda: ada.library.channels_delete(rid))
    await step("rooms.get, after", "lib rooms_get", lambda: ada.library.rooms_get())

    await step("admin lowers the rate limit", "lib settings_update", lambda: admin.library.settings_update(
        "API_Enable_Rate_Limiter_Limit_Calls_Default", 2))
    for count in ("first", "second", "third"):
        await step(f"rate limit, {count}", "GET users.getUsernameSuggestion",
                   lambda: ada.get("users.getUsernameSuggestion"))
    await step("admin raises it again", "lib settings_update", lambda: admin.library.settings_update(
        "API_Enable_Rate_Limiter_Limit_Calls_Default", 100000))
    await step("ddp logout", "ddp logout", ada.socket.method("logout"))
    for person in (ada, bo, olga):
        await person.socket.close()
        person.socket = None
    await step("logout", "lib logout", lambda: ada.library.logout())
    await step("after logout", "GET me", lambda: ada.get("me"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("a", metavar="A", help="URL for Ada and Bo")
    parser.add_argument("b", metavar="B", help="URL for Olga and the administrator")
    parser.add_argument("--admin", default="admin")
    parser.add_argument("--admin-password", default="correct-horse-battery")
    parser.add_argument("--canaries", type=argparse.FileType("w"))
    arguments = parser.parse_args()
    steps = asyncio.run(play(arguments, arguments.canaries))
    print(f"{steps} steps", file=sys.stderr)


if __name__ == "__main__":
    main()
