"""WebSocket connections: authentication, events with sequence numbers, requests of clients."""

import asyncio
import collections
import json
import platform
from urllib.parse import urlsplit

from aiohttp import WSMsgType, web

from .errors import APIError
from .store import is_id, new_id
from .wire import Routes, encode

routes = Routes()

# The server's numbers: events that wait for one connection, events kept for one that comes back, bytes of one request.
SEND_QUEUE = 256
DEAD_QUEUE = 128
MAXIMUM_REQUEST = 8192

# Ours, because the machine of a test may be busy: seconds until a connection has to be authenticated (the server's: 5) and
# between pings (60; the answer may take half of it).
AUTHENTICATION_SECONDS = 600
PING_SECONDS = 1200

# Ours: connections at a time, and closed connections whose events are kept.
MAXIMUM_CONNECTIONS = 200
KEPT_CONNECTIONS = 32


class Event:
    """One event: its data, and to whom it goes."""

    def __init__(
        self, name, data, channel_id="", user_id="", team_id="", omit_users=None, omit_connection="", admins=None,
        special=None,
    ):
        self.name = name
        self.data = data
        self.channel_id = channel_id
        self.user_id = user_id
        self.team_id = team_id
        self.omit_users = omit_users
        self.omit_connection = omit_connection
        # True: only to administrators, False: only to others, None: to both.
        self.admins = admins
        # Returns what one user's event has besides `data`.
        self.special = special

    def text(self, seq, user_id):
        data = dict(self.data)
        if self.special:
            data.update(self.special(user_id))
        broadcast = {
            "omit_users": self.omit_users, "user_id": self.user_id, "channel_id": self.channel_id,
            "team_id": self.team_id, "connection_id": "", "omit_connection_id": self.omit_connection,
        }
        if self.admins is not None:
            broadcast["contains_sensitive_data" if self.admins else "contains_sanitized_data"] = True
        return encode(
            {"event": self.name, "data": dict(sorted(data.items())), "broadcast": broadcast, "seq": seq})


class Connection:
    def __init__(self, socket):
        self.socket = socket
        self.id = new_id()
        self.user_id = ""
        self.token = ""
        self.seq = 0
        self.queue = asyncio.Queue(SEND_QUEUE)
        self.sent = collections.deque(maxlen=DEAD_QUEUE)
        self.is_full = False
        self.is_lost = False

    def put(self, text):
        """A connection that does not read is closed."""
        try:
            self.queue.put_nowait(text)
        except asyncio.QueueFull:
            self.is_full = True

    def put_event(self, event):
        text = event.text(self.seq, self.user_id)
        self.sent.append((self.seq, text))
        self.seq += 1
        if not self.is_lost:
            self.put(text)

    def reply(self, seq, data=None):
        body = {"status": "OK", "seq_reply": seq}
        if data:
            body["data"] = data
        self.put(encode(body))

    def fail(self, seq, error):
        body = {"status": "FAIL"}
        if seq:
            body["seq_reply"] = seq
        body["error"] = {"id": error.id, "message": error.message, "detailed_error": "", "status_code": error.status}
        self.put(encode(body))


class Hub:
    def __init__(self, server):
        self.server = server
        self.connections = {}
        self.gone = collections.OrderedDict()
        self.open_sockets = 0

    def publish(self, event):
        """Lost connections get it too, for the case that they come back."""
        for connection in [*self.connections.values(), *self.gone.values()]:
            if self._is_for(connection, event):
                connection.put_event(event)

    def _is_for(self, connection, event):
        user_id = connection.user_id
        if event.admins is not None and event.admins != self.server.access.is_admin(user_id):
            return False
        if event.omit_connection and connection.id == event.omit_connection:
            return False
        if event.user_id:
            return user_id == event.user_id
        if event.omit_users and user_id in event.omit_users:
            return False
        if event.channel_id:
            return self.server.access.member(event.channel_id, user_id) is not None
        if event.team_id:
            return self.server.access.is_in_team(event.team_id, user_id)
        return True

    def has_connection(self, user_id):
        return any(connection.user_id == user_id for connection in self.connections.values())

    async def close(self, user_id=None, token=None):
        """Closes the connections of a user or of one session."""
        for connection in list(self.connections.values()):
            if user_id in (None, connection.user_id) and token in (None, connection.token):
                await connection.socket.close()

    def register(self, connection, session):
        connection.user_id = session["user_id"]
        connection.token = session["token"]
        self.connections[connection.id] = connection
        if connection.seq == 0:
            connection.put_event(Event(
                "hello",
                {
                    "server_version": self.server.version, "connection_id": connection.id,
                    "server_hostname": platform.node(),
                },
                user_id=connection.user_id))

    def unregister(self, connection):
        if self.connections.pop(connection.id, None) is None:
            return
        connection.is_lost = True
        self.gone[connection.id] = connection
        while len(self.gone) > KEPT_CONNECTIONS:
            self.gone.popitem(last=False)
        if not self.has_connection(connection.user_id):
            self.server.statuses.set_offline(connection.user_id)

    def take_up(self, connection, session, connection_id, seq):
        """Goes on with a connection that was lost, if no event is missing; then there is no `hello`."""
        before = self.connections.get(connection_id) or self.gone.get(connection_id)
        if before is None or before.user_id != session["user_id"]:
            return
        missed = [(number, text) for number, text in before.sent if number >= seq]
        if seq > before.seq or len(missed) != before.seq - seq:
            return
        self.connections.pop(connection_id, None)
        self.gone.pop(connection_id, None)
        connection.id, connection.seq, connection.sent = before.id, before.seq, before.sent
        for _, text in missed:
            connection.put(text)


@routes.on("GET", "/websocket", session=False, trusted=True)
async def connect(call):
    hub = call.hub
    origin = call.request.headers.get("Origin")
    if origin and urlsplit(origin).netloc != call.request.headers.get("Host"):
        return web.Response(text="Forbidden\n", status=403)
    if hub.open_sockets >= MAXIMUM_CONNECTIONS:
        return web.Response(status=503)
    socket = web.WebSocketResponse(
        heartbeat=PING_SECONDS, max_msg_size=MAXIMUM_REQUEST, compress=False, autoclose=True)
    if not socket.can_prepare(call.request).ok:
        return web.Response(text="Bad Request\n", status=400)
    hub.open_sockets += 1
    connection = Connection(socket)
    writer = None
    try:
        await socket.prepare(call.request)
        if call.session:
            connection_id, seq = call.query.get("connection_id", ""), call.query.get("sequence_number", "")
            if connection_id and seq.isdigit():
                hub.take_up(connection, call.session, connection_id, int(seq))
            hub.register(connection, call.session)
            call.server.statuses.set_online(connection.user_id)
        writer = asyncio.create_task(_write(connection))
        await _read(call.server, connection)
    finally:
        hub.open_sockets -= 1
        if writer:
            writer.cancel()
        hub.unregister(connection)
    return socket


async def _write(connection):
    try:
        while not connection.is_full:
            await connection.socket.send_str(await connection.queue.get())
    except (ConnectionError, RuntimeError):
        pass
    await connection.socket.close()


async def _read(server, connection):
    deadline = asyncio.get_running_loop().time() + AUTHENTICATION_SECONDS
    while True:
        timeout = None
        if not connection.token:
            timeout = max(0, deadline - asyncio.get_running_loop().time())
        try:
            message = await asyncio.wait_for(connection.socket.receive(), timeout)
        except asyncio.TimeoutError:
            await connection.socket.close()
            return
        if message.type != WSMsgType.TEXT:
            await connection.socket.close()
            return
        server.store.keep("websocket", message.data.encode())
        try:
            request = json.loads(message.data)
        except (ValueError, RecursionError):
            await connection.socket.close()
            return
        if not isinstance(request, dict) or not await _serve(server, connection, request):
            await connection.socket.close()
            return


async def _serve(server, connection, request):
    """Answers one request. Returns false if the connection has to end."""
    action, seq, data = request.get("action"), request.get("seq"), request.get("data") or {}
    if not isinstance(data, dict):
        return False
    seq = seq if isinstance(seq, int) and not isinstance(seq, bool) else 0
    try:
        if not action:
            raise APIError(400, "api.web_socket_router.no_action.app_error")
        if seq <= 0:
            raise APIError(400, "api.web_socket_router.bad_seq.app_error")
        if action == "authentication_challenge":
            return _authenticate(server, connection, seq, data)
        if not connection.token or not server.access.session(connection.token):
            raise APIError(401, "api.web_socket_router.not_authenticated.app_error")
        if action not in ACTIONS:
            raise APIError(500, "api.web_socket_router.bad_action.app_error")
        connection.reply(seq, ACTIONS[action](server, connection.user_id, data))
    except APIError as error:
        # Without a user there is no hub, and the server then answers nothing.
        if connection.user_id:
            connection.fail(seq, error)
    return True


def _authenticate(server, connection, seq, data):
    if connection.token:
        return True
    session = server.access.session(data.get("token")) if isinstance(data.get("token"), str) else None
    if session is None:
        return False
    server.hub.register(connection, session)
    connection.reply(seq)
    server.statuses.set_online(connection.user_id)
    return True


def _invalid(name):
    return APIError(400, "api.websocket_handler.invalid_param.app_error", Name=name)


def _user_typing(server, user_id, data):
    channel_id = data.get("channel_id")
    if not is_id(channel_id) or not server.access.may_post(channel_id, user_id):
        raise _invalid("channel_id")
    parent_id = data.get("parent_id")
    publish_typing(server, user_id, channel_id, parent_id if isinstance(parent_id, str) else "")


def publish_typing(server, user_id, channel_id, parent_id):
    server.hub.publish(Event(
        "typing", {"parent_id": parent_id, "user_id": user_id}, channel_id=channel_id, omit_users={user_id: True}))


def _get_statuses(server, user_id, data):
    return {row["user_id"]: row["status"] for row in server.store.all("SELECT user_id, status FROM statuses")}


def _get_statuses_by_ids(server, user_id, data):
    ids = data.get("user_ids")
    if not isinstance(ids, list) or not ids:
        raise _invalid("user_ids")
    return {id: server.statuses.of(id)["status"] for id in ids if isinstance(id, str)}


def _user_update_active_status(server, user_id, data):
    if not isinstance(data.get("user_is_active"), bool):
        raise _invalid("user_is_active")
    if data["user_is_active"]:
        server.statuses.set_online(user_id)
    else:
        server.statuses.set(user_id, "away", is_chosen=False)


def _ping(server, user_id, data):
    return {"node_id": "", "server_time": server.store.now(), "text": "pong", "version": server.release}


def _nothing(server, user_id, data):
    return None


ACTIONS = {
    "get_statuses": _get_statuses, "get_statuses_by_ids": _get_statuses_by_ids, "ping": _ping,
    "posted_notify_ack": _nothing, "presence": _nothing, "user_typing": _user_typing,
    "user_update_active_status": _user_update_active_status,
}
