"""Methods of the realtime API. Over a WebSocket and over method.call they are the same."""

from .values import MeteorError, check_string, is_date, parse_time

METHODS = {}


class Caller:
    """Who calls a method; `session` is nil over method.call."""

    def __init__(self, world, user, token=None, session=None):
        self.world, self.user, self.token, self.session = world, user, token, session

    def require_user(self, method):
        if not self.user:
            raise MeteorError("error-invalid-user", "Invalid user", {"method": method})
        return self.user


def method(name, login=True):
    def register(function):
        async def run(caller, *parameters):
            if login:
                caller.require_user(name)
            return await function(caller, *parameters)
        METHODS[name] = run
        return function
    return register


def moment(value):
    return parse_time(value) if is_date(value) else None


@method("login", login=False)
async def login(caller, request):
    user, result = caller.world.people.login(request)
    if caller.session:
        caller.session.logged_in(user, result["token"])
    return result


@method("logout")
async def logout(caller):
    if caller.token:
        caller.world.people.logout(caller.user, caller.token)
    if caller.session:
        caller.session.logged_out()


# Messages

@method("sendMessage")
async def send_message(caller, message, preview_urls=None, *rest):
    """Errors but `error-not-allowed` are not answered: the server drops them, and the result is empty."""
    if not isinstance(message, dict):
        raise MeteorError(400, "Match failed")
    if message.get("t") and message["t"] != "e2e":
        raise MeteorError(500, "Internal server error")
    try:
        return caller.world.messages.execute_send(caller.user, message)
    except MeteorError as error:
        if error.error == "error-not-allowed" or error.message == "error-not-allowed":
            raise MeteorError("error-not-allowed", None, {"method": "sendMessage"}) from None
    return None


@method("updateMessage")
async def update_message(caller, message, preview_urls=None):
    if not isinstance(message, dict) or not isinstance(message.get("_id"), str):
        raise MeteorError(400, "Match failed")
    caller.world.messages.update(caller.user, message)


@method("deleteMessage")
async def delete_message(caller, message):
    caller.world.messages.delete(caller.user, message.get("_id"))


@method("setReaction")
async def set_reaction(caller, reaction, identifier, should=None):
    caller.world.messages.react(caller.user, check_string(reaction), identifier, should)


@method("starMessage")
async def star_message(caller, message):
    return caller.world.messages.star(caller.user, message["_id"], bool(message.get("starred")))


@method("pinMessage")
async def pin_message(caller, message, *rest):
    return caller.world.messages.pin(caller.user, message["_id"])


@method("unpinMessage")
async def unpin_message(caller, message):
    return caller.world.messages.unpin(caller.user, message["_id"])


@method("reportMessage")
async def report_message(caller, identifier, description):
    return caller.world.messages.report(caller.user, identifier, check_string(description))


@method("followMessage")
async def follow_message(caller, message):
    caller.world.messages.follow(caller.user, message["mid"], True)


@method("getSingleMessage")
async def get_single_message(caller, identifier):
    message = caller.world.messages.get(check_string(identifier))
    if message:
        caller.world.rooms.require_access(message["rid"], caller.user, "getSingleMessage")
    return message


@method("getMessages")
async def get_messages(caller, identifiers):
    messages = [caller.world.messages.get(identifier) for identifier in identifiers]
    for message in messages:
        if message:
            caller.world.rooms.require_access(message["rid"], caller.user, "getSingleMessage")
    return [message for message in messages if message]


@method("loadHistory")
async def load_history(caller, rid, end=None, limit=20, last_seen=None, threads=True):
    return caller.world.messages.load_history(
        check_string(rid), caller.user, moment(end), int(limit or 20), moment(last_seen), threads is not False)


@method("loadMissedMessages")
async def load_missed_messages(caller, rid, since):
    caller.world.rooms.require_access(rid, caller.user, "loadMissedMessages")
    return caller.world.db.find(
        "messages", "rid = ? AND ts > ? AND json_extract(body, '$._hidden') IS NOT 1", rid, moment(since) or 0,
        order="ts DESC")


@method("loadNextMessages")
async def load_next_messages(caller, rid, start=None, limit=20):
    caller.world.rooms.require_access(rid, caller.user, "loadNextMessages")
    return {"messages": caller.world.db.find(
        "messages", "rid = ? AND ts > ? AND json_extract(body, '$._hidden') IS NOT 1", rid, moment(start) or 0,
        order="ts", limit=int(limit))}


@method("loadSurroundingMessages")
async def load_surrounding_messages(caller, message, limit=50, *rest):
    found = caller.world.messages.get(message["_id"])
    if not found:
        return False
    caller.world.rooms.require_access(found["rid"], caller.user, "loadSurroundingMessages")
    visible, half = "json_extract(body, '$._hidden') IS NOT 1", int(limit) // 2
    before = caller.world.db.find(
        "messages", f"rid = ? AND ts < ? AND {visible}", found["rid"], found["ts"]["$date"], order="ts DESC",
        limit=half)
    after = caller.world.db.find(
        "messages", f"rid = ? AND ts > ? AND {visible}", found["rid"], found["ts"]["$date"], order="ts", limit=half)
    return {"messages": [*before, found, *after], "moreBefore": len(before) == half, "moreAfter": len(after) == half}


@method("messages/get")
async def messages_get(caller, rid, options=None):
    options = options or {}
    caller.world.rooms.require_access(check_string(rid), caller.user, "messages/get")
    since = moment(options.get("lastUpdate"))
    if since is not None:
        return caller.world.messages.updates(rid, since)
    return caller.world.messages.history(
        rid, caller.user, moment(options.get("latestDate")), moment(options.get("oldestDate")),
        bool(options.get("inclusive")), 0, int(options.get("count") or 20), bool(options.get("unreads")))


@method("getChannelHistory")
async def get_channel_history(caller, options):
    result = caller.world.messages.history(
        options["rid"], caller.user, moment(options.get("latest")), moment(options.get("oldest")),
        bool(options.get("inclusive")), int(options.get("offset") or 0), int(options.get("count") or 20),
        bool(options.get("unreads")), options.get("showThreadMessages", True))
    return False if result is None else result


@method("getThreadsList")
async def get_threads_list(caller, options):
    caller.world.rooms.require_access(options["rid"], caller.user, "getThreadsList")
    return caller.world.db.find(
        "messages", "rid = ? AND json_extract(body, '$.tcount') IS NOT NULL", options["rid"], order="ts DESC",
        limit=int(options.get("limit") or 50), offset=int(options.get("skip") or 0))


@method("getThreadMessages")
async def get_thread_messages(caller, options):
    thread = caller.world.messages.get(options["tmid"])
    if not thread:
        return []
    caller.world.rooms.require_access(thread["rid"], caller.user, "getThreadMessages")
    return [thread, *caller.world.db.find(
        "messages", "tmid = ?", thread["_id"], order="ts", limit=int(options.get("limit") or -1))]


@method("messageSearch")
async def message_search(caller, text, rid=None, limit=20, offset=0):
    found = caller.world.messages.search(
        caller.user, check_string(text), rid, int(limit or 20), int(offset or 0))
    return False if found is None else {"message": {"docs": found}}


@method("rocketchatSearch.search")
async def search(caller, text, context=None, payload=None):
    context, payload = context or {}, payload or {}
    rid = None if payload.get("searchAll") else context.get("rid")
    found = caller.world.messages.search(caller.user, check_string(text), rid, int(payload.get("limit") or 20))
    return {} if found is None else {"message": {"docs": found}}


@method("slashCommand")
async def slash_command(caller, command):
    message = command.get("msg") or {}
    caller.world.rooms.require_access(message.get("rid"), caller.user, "slashCommand")
    caller.world.commands.run(
        caller.user, check_string(command.get("cmd")), command.get("params") or "", message["rid"],
        message.get("tmid"), message.get("_id"))


@method("createDiscussion")
async def create_discussion(caller, options):
    parent = caller.world.rooms.require_access(options.get("prid"), caller.user, "createDiscussion")
    return caller.world.messages.discuss(
        caller.user, parent, options["t_name"], options.get("pmid"), options.get("reply"), options.get("users") or [])


# Rooms

@method("rooms/get")
async def rooms_get(caller, since=None):
    return caller.world.rooms.rooms_since(caller.user, moment(since))


@method("subscriptions/get")
async def subscriptions_get(caller, since=None):
    return caller.world.rooms.subscriptions_since(caller.user, moment(since))


@method("getRoomById")
async def get_room_by_id(caller, rid):
    room = caller.world.rooms.get(check_string(rid))
    if not room:
        raise MeteorError("error-not-allowed", "Not allowed", {"method": "getRoomById"})
    return caller.world.rooms.public(caller.world.rooms.require_access(rid, caller.user, "getRoomById"))


@method("getRoomNameById")
async def get_room_name_by_id(caller, rid):
    return caller.world.rooms.require_access(rid, caller.user, "getRoomNameById").get("name")


@method("getRoomRoles")
async def get_room_roles(caller, rid):
    caller.world.rooms.require_access(rid, caller.user, "getRoomRoles")
    return [{"_id": row["_id"], "rid": rid, "u": row["u"], "roles": row["roles"]}
            for row in caller.world.rooms.subscriptions(rid) if row.get("roles")]


@method("getUsersOfRoom")
async def get_users_of_room(caller, rid, *rest):
    room = caller.world.rooms.require_access(rid, caller.user, "getUsersOfRoom")
    members = caller.world.rooms.members(room)
    return {"total": len(members), "records": [caller.world.people.short(user) for user in members]}


@method("createChannel")
async def create_channel(caller, name, usernames=(), read_only=False, custom_fields=None, extra=None):
    room = caller.world.rooms.create("c", name, caller.user, usernames, read_only, extra)
    return caller.world.rooms.public(room) | {"rid": room["_id"]}


@method("createPrivateGroup")
async def create_private_group(caller, name, usernames=(), read_only=False, custom_fields=None, extra=None):
    room = caller.world.rooms.create("p", name, caller.user, usernames, read_only, extra, "createPrivateGroup")
    return caller.world.rooms.public(room) | {"rid": room["_id"]}


@method("createDirectMessage")
async def create_direct_message(caller, *usernames):
    users = [caller.world.people.named(name) for name in usernames]
    if not all(users):
        raise MeteorError("error-invalid-user", "Invalid user", {"method": "createDirectMessage"})
    room = caller.world.rooms.create_direct([caller.user, *users])
    return {"t": "d", "rid": room["_id"], "_id": room["_id"], "usernames": room["usernames"],
            "inserted": room["msgs"] == 0}


@method("joinRoom")
async def join_room(caller, rid, code=None):
    room = caller.world.rooms.get(check_string(rid))
    if not room:
        raise MeteorError("error-invalid-room", "Invalid room", {"method": "joinRoom"})
    caller.world.rooms.join(room, caller.user, code)
    return True


@method("leaveRoom")
async def leave_room(caller, rid):
    caller.world.rooms.leave(caller.world.rooms.require_access(rid, caller.user, "leaveRoom"), caller.user)


@method("openRoom")
async def open_room(caller, rid):
    caller.world.rooms.set_open(caller.world.rooms.require_access(rid, caller.user, "openRoom"), caller.user, True)
    return 1


@method("hideRoom")
async def hide_room(caller, rid):
    caller.world.rooms.set_open(caller.world.rooms.require_access(rid, caller.user, "hideRoom"), caller.user, False)
    return 1


@method("eraseRoom")
async def erase_room(caller, rid):
    caller.world.rooms.erase(caller.world.rooms.require_access(rid, caller.user, "eraseRoom"), caller.user)
    return True


@method("addUsersToRoom")
async def add_users_to_room(caller, options):
    users = [caller.world.people.named(name) for name in options["users"]]
    room = caller.world.rooms.require_access(options["rid"], caller.user, "addUsersToRoom")
    caller.world.rooms.invite(room, caller.user, [user for user in users if user])
    return True


@method("removeUserFromRoom")
async def remove_user_from_room(caller, options):
    room = caller.world.rooms.require_access(options["rid"], caller.user, "removeUserFromRoom")
    user = caller.world.people.named(options["username"])
    if not user:
        raise MeteorError("error-user-not-in-room", "User is not in this room", {"method": "removeUserFromRoom"})
    caller.world.rooms.kick(room, caller.user, user)
    return True


@method("saveRoomSettings")
async def save_room_settings(caller, rid, settings, value=None):
    for setting, wanted in (settings if isinstance(settings, dict) else {settings: value}).items():
        room = caller.world.rooms.require_access(rid, caller.user, "saveRoomSettings")
        caller.world.rooms.save(room, caller.user, setting, wanted)
    return {"result": True, "rid": rid}


@method("readMessages")
async def read_messages(caller, rid, *rest):
    caller.world.rooms.read(check_string(rid), caller.user)


@method("unreadMessages")
async def unread_messages(caller, first=None, rid=None):
    caller.world.rooms.unread(caller.user, rid, first)


@method("toggleFavorite")
async def toggle_favorite(caller, rid, favorite=None):
    subscription = caller.world.rooms.subscription(rid, caller.user["_id"])
    if not subscription:
        raise MeteorError("error-invalid-subscription", "You must be part of a room to favorite it",
                          {"method": "toggleFavorite"})
    caller.world.rooms.save_subscription(subscription | {"f": bool(favorite)})
    return 1


@method("spotlight", login=False)
async def spotlight(caller, text, *rest):
    return caller.world.rooms.spotlight(caller.require_user("spotlight"), check_string(text))


# People and settings

@method("setUserStatus")
async def set_user_status(caller, status=None, text=None):
    caller.world.people.set_status(caller.user, status or None, text)


@method("UserPresence:setDefaultStatus")
async def set_default_status(caller, status):
    caller.world.people.set_status(caller.user, status)


@method("UserPresence:online")
async def user_online(caller):
    return None


@method("UserPresence:away")
async def user_away(caller):
    return None


@method("getUserRoles")
async def get_user_roles(caller):
    return [{"_id": user["_id"], "username": user["username"], "roles": user["roles"]}
            for user in caller.world.db.find("users", order="username") if set(user["roles"]) - {"user"}]


@method("public-settings/get", login=False)
async def public_settings(caller, since=None):
    rows = caller.world.db.find("settings", "json_extract(body, '$.public') = 1", order="_id")
    rows = [{"_id": row["_id"], "value": row["value"]} for row in rows
            if moment(since) is None or row["_updatedAt"]["$date"] > moment(since)]
    return rows if moment(since) is None else {"update": rows, "remove": []}


# Streams that clients may write to

@method("stream-notify-room", login=False)
async def stream_notify_room(caller, event, username, activity=None, extra=None):
    rid, _, kind = check_string(event).partition("/")
    if kind not in ("typing", "user-activity") or not caller.user or caller.user["username"] != username:
        return
    streams, session = caller.world.streams, caller.session
    typing = "user-typing" in activity if isinstance(activity, list) else bool(activity)
    if kind == "user-activity":
        streams.emit("stream-notify-room", f"{rid}/typing", username, typing, origin=session)
        streams.emit("stream-notify-room", event, username, activity, extra or {}, origin=session)
    else:
        streams.emit(
            "stream-notify-room", f"{rid}/user-activity", username, ["user-typing"] if typing else [], extra or {},
            origin=session)
        streams.emit("stream-notify-room", event, username, typing, origin=session)


@method("stream-notify-room-users", login=False)
async def stream_notify_room_users(caller, event, *arguments):
    rid, _, kind = check_string(event).partition("/")
    if caller.user and caller.world.rooms.subscription(rid, caller.user["_id"]):
        for row in caller.world.rooms.subscriptions(rid):
            if row["u"]["_id"] != caller.user["_id"]:
                caller.world.streams.emit("stream-notify-user", f"{row['u']['_id']}/{kind}", *arguments)
