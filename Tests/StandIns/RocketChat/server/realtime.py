"""DDP, the protocol of the realtime API, over a WebSocket."""

import asyncio
import json

from aiohttp import WSMsgType, web

from .methods import METHODS, Caller
from .values import MISTAKES, MeteorError, random_id, to_json

HEARTBEAT_SECONDS = 17.5
# Ours, because the machine of a test may be busy; the server waits 15 seconds.
PATIENCE_SECONDS = 600
# Ours: connections, frames that wait for one slow client, and subscriptions of one connection.
MOST_CONNECTIONS = 1024
MOST_WAITING = 4096
MOST_SUBSCRIPTIONS = 1024
MOST_FRAME_BYTES = 1 << 20


class Session:
    """One connection. Its frames leave in the order in which they were made."""

    def __init__(self, world, socket):
        self.world, self.socket = world, socket
        self.user_id = self.token = None
        self.identifier = None
        self.subscriptions = {}
        self.waiting = asyncio.Queue(MOST_WAITING)
        self.timer = None

    @property
    def user(self):
        return self.world.people.get(self.user_id) if self.user_id else None

    # Sending

    def send(self, **frame):
        try:
            self.waiting.put_nowait(to_json(frame))
        except asyncio.QueueFull:
            asyncio.ensure_future(self.socket.close(code=1008, message=b"too slow"))

    def send_changed(self, stream, event, arguments):
        self.send(msg="changed", collection=stream, id="id", fields={"eventName": event, "args": list(arguments)})

    async def write(self):
        while True:
            text = await self.waiting.get()
            await self.socket.send_str(text)

    # The connection

    async def run(self):
        writer = asyncio.ensure_future(self.write())
        self.send(server_id="0")
        try:
            self.expect()
            async for frame in self.socket:
                self.expect()
                if frame.type == WSMsgType.TEXT:
                    await self.receive(frame.data)
                elif frame.type == WSMsgType.ERROR:
                    break
        finally:
            self.timer.cancel()
            writer.cancel()
            for identifier in list(self.subscriptions):
                self.drop(identifier)
            self.set_user(None, None)

    def expect(self):
        """Sends a ping to a client that has been silent, and closes the connection if no answer comes."""
        if self.timer:
            self.timer.cancel()
        self.timer = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self.ask)

    def ask(self):
        self.send(msg="ping")
        self.timer = asyncio.get_running_loop().call_later(
            PATIENCE_SECONDS, lambda: asyncio.ensure_future(self.socket.close()))

    async def receive(self, text):
        try:
            await self.answer(json.loads(text))
        except MISTAKES:
            self.send(msg="error", reason="Bad request")

    async def answer(self, frame):
        kind = frame.get("msg") if isinstance(frame, dict) else None
        if kind == "connect":
            self.connect(frame)
        elif kind == "ping":
            self.send(msg="pong", **({"id": frame["id"]} if "id" in frame else {}))
        elif kind == "pong":
            return
        elif self.identifier is None:
            self.send(msg="error", reason="Must connect first", offendingMessage=frame)
        elif kind == "method":
            await self.call(frame)
        elif kind == "sub":
            self.subscribe(frame)
        elif kind == "unsub":
            self.drop(frame.get("id"))
            self.send(msg="nosub", **({"id": frame["id"]} if "id" in frame else {}))
        else:
            self.send(msg="error", reason="Bad request", offendingMessage=frame)

    def connect(self, frame):
        if self.identifier is not None:
            self.send(msg="error", reason="Already connected", offendingMessage=frame)
        elif frame.get("version") not in ("1", "pre1", "pre2"):
            self.send(msg="failed", version="1")
        else:
            self.identifier = random_id()
            self.send(msg="connected", session=self.identifier)

    # Who it is

    def logged_in(self, user, token):
        self.set_user(user["_id"], token)
        self.send(msg="added", collection="users", id=user["_id"], fields={
            "username": user["username"], "emails": user["emails"], "name": user["name"], "roles": user["roles"]})

    def logged_out(self):
        if self.user_id:
            self.send(msg="removed", collection="users", id=self.user_id)
        for identifier in list(self.subscriptions):
            self.drop(identifier)
            self.send(msg="nosub", id=identifier)
        self.set_user(None, None)

    def set_user(self, identifier, token):
        sessions = self.world.sessions
        old, self.user_id, self.token = self.user_id, identifier, token
        for user_id, step in ((old, -1), (identifier, 1)):
            if user_id:
                sessions[user_id] += step
                self.world.people.set_connected(user_id, sessions[user_id] > 0) if self.world.people.get(
                    user_id) else None

    # Methods

    async def call(self, frame):
        identifier, name = frame.get("id"), frame.get("method")
        result = {"id": identifier}
        try:
            method = METHODS.get(name)
            if not method:
                raise MeteorError(404, f"Method '{name}' not found")
            value = await method(Caller(self.world, self.user, self.token, self), *(frame.get("params") or []))
            if value is not None:
                result["result"] = value
        except MeteorError as error:
            result["error"] = error.realtime_form()
        except MISTAKES:
            result["error"] = MeteorError(400, "Match failed").realtime_form()
        self.send(msg="result", **result)
        self.send(msg="updated", methods=[identifier])

    # Subscriptions

    def subscribe(self, frame):
        identifier, name, parameters = frame.get("id"), frame.get("name"), frame.get("params") or []
        if not isinstance(identifier, str) or identifier in self.subscriptions:
            return
        event = parameters[0] if parameters else ""
        if name not in READERS:
            self.send(msg="nosub", id=identifier, error=MeteorError(
                404, f"Subscription '{name}' not found").realtime_form())
        elif not isinstance(event, str) or not event or len(self.subscriptions) >= MOST_SUBSCRIPTIONS or (
                not READERS[name](self.world, self.user, event)):
            self.send(msg="nosub", id=identifier)
        else:
            self.subscriptions[identifier] = (name, event)
            self.world.streams.add(name, event, self, identifier)
            options = parameters[1] if len(parameters) > 1 else False
            if options is True or (isinstance(options, dict) and options.get("useCollection") is True):
                self.send(msg="added", collection=name, id="id", fields={"eventName": event})
            self.send(msg="ready", subs=[identifier])

    def drop(self, identifier):
        found = self.subscriptions.pop(identifier, None) if isinstance(identifier, str) else None
        if found:
            self.world.streams.remove(*found, self, identifier)


# Who may subscribe to an event of a stream.

def may_read_messages(world, user, event):
    if event == "__my_messages__":
        return True
    room = world.rooms.get(event)
    return bool(user and room) and (
        world.rooms.may_access(room, user) or room["t"] == "c" and world.people.may(user, "preview-c-room"))


def may_read_room(world, user, event):
    return bool(user and world.rooms.subscription(event.split("/")[0], user["_id"]))


def may_read_user(world, user, event):
    return bool(user) and event.split("/")[0] == user["_id"]


def may_read_room_data(world, user, event):
    return bool(user) and world.rooms.may_access_id(event, user)


READERS = {
    "stream-room-messages": may_read_messages,
    "stream-notify-room": may_read_room,
    "stream-notify-user": may_read_user,
    "stream-notify-logged": lambda world, user, event: bool(user),
    "stream-notify-all": lambda world, user, event: True,
    "stream-user-presence": lambda world, user, event: bool(user),
    "stream-room-data": may_read_room_data,
    "stream-roles": lambda world, user, event: bool(user),
}


async def websocket(world, request):
    if world.connections >= MOST_CONNECTIONS:
        return web.Response(status=503)
    socket = web.WebSocketResponse(max_msg_size=MOST_FRAME_BYTES)
    world.connections += 1
    try:
        await socket.prepare(request)
        await Session(world, socket).run()
    finally:
        world.connections -= 1
    return socket
