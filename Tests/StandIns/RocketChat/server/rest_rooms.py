"""REST: channels.*, groups.*, im.* and dm.*, rooms.*, and the download of files."""

import json
import urllib.parse

from aiohttp import web

from .rest import Call, forbidden, failure, route
from .rest_people import user_of
from .rooms import TEXT_SETTINGS
from .values import MeteorError, parse_time

NOUNS = {"c": "channel", "p": "group"}
FAMILIES = {"c": "channels", "p": "groups"}
DEFAULT_GROUP_COUNT = 20
# Ours: fields beside the file in an upload.
MOST_FIELDS = 16
MOST_FIELD_BYTES = 256 * 1024


def found_room(call, kind, parameters, archived=True):
    """The channel or group that `roomId` or `roomName` names; of groups only those that the user is in."""
    rooms, noun = call.world.rooms, NOUNS[kind]
    room = rooms.get(parameters.get("roomId")) if "roomId" in parameters else rooms.named(parameters.get("roomName"))
    if not parameters.get("roomId") and not parameters.get("roomName"):
        raise MeteorError("error-room-param-not-provided", 'The parameter "roomId" or "roomName" is required')
    if not room or room["t"] != kind or (
            kind == "p" and not rooms.subscription(room["_id"], call.user["_id"])):
        raise MeteorError("error-room-not-found",
                          f'The required "roomId" or "roomName" param provided does not match any {noun}')
    if not archived and room.get("archived"):
        raise MeteorError("error-room-archived", f"The {'private ' if kind == 'p' else ''}{noun}, {room['name']}, is "
                          "archived")
    return room


def found_direct(call, parameters):
    rooms, people = call.world.rooms, call.world.people
    name = parameters.get("roomId") or parameters.get("username")
    if not name:
        raise MeteorError("error-room-param-not-provided", 'Query param "roomId" or "username" is required')
    room = rooms.get(name)
    if not room and (other := people.named(name)):
        room = rooms.create_direct([call.user, other])
    if not room or room["t"] != "d" or not rooms.subscription(room["_id"], call.user["_id"]):
        raise MeteorError("error-room-not-found",
                          'The required "roomId" or "username" param provided does not match any direct message')
    return room


def history(call, room):
    offset, count = call.paging()
    # Channels and direct messages show thread replies only if asked to, groups unless asked not to.
    threads = call.flag("showThreadMessages")
    if room["t"] == "p":
        threads = call.query.get("showThreadMessages") != "false"
        count = count if "count" in call.query else DEFAULT_GROUP_COUNT
    result = call.world.messages.history(
        room["_id"], call.user, call.moment("latest"), call.moment("oldest"), call.flag("inclusive"), offset, count,
        call.flag("unreads"), threads)
    if result is None:
        raise forbidden()
    call.shown(result["messages"])
    return result


def all_messages(call, room):
    """The messages of a room without the filter of the history: threads, and hidden copies of edited ones."""
    where = "rid = ?" + (" AND json_extract(body, '$.pinned') = 1" if call.flag("pinned") else "")
    if any(call.query.get(name) for name in ("query", "sort", "fields")):
        return call.page("messages", call.shown(call.world.db.find("messages", where, room["_id"], order="ts DESC")))
    offset, count = call.paging()
    messages = call.world.db.find(
        "messages", where, room["_id"], order="ts DESC", limit=count or -1, offset=offset)
    return {"messages": call.shown(messages), "count": len(messages), "offset": offset,
            "total": call.world.db.count("messages", where, room["_id"])}


def members(call, room):
    people = call.world.people
    keys = ("_id", "username", "name", "status", "statusText", "utcOffset")
    wanted, statuses = (call.query.get("filter") or "").lower(), call.request.query.getall("status[]", [])
    users = [
        {key: user[key] for key in keys if key in user} for user in call.world.rooms.members(room)
        if wanted in (user["username"] + " " + user["name"]).lower() and (not statuses or user["status"] in statuses)]
    offset, count = call.paging()
    part = users[offset:offset + count] if count else users[offset:]
    return {"members": part, "count": len(part), "offset": offset, "total": len(users)}


def counters(call, room):
    subscription = call.world.rooms.subscription(room["_id"], call.user["_id"])
    latest = room.get("lm") or room["_updatedAt"]
    result = {"joined": bool(subscription), "members": None, "unreads": None, "unreadsFrom": None, "msgs": None,
              "latest": None, "userMentions": None}
    if subscription:
        result |= {
            "members": room["usersCount"], "unreads": subscription["unread"],
            "unreadsFrom": subscription.get("ls") or subscription["ts"], "msgs": room["msgs"], "latest": latest,
            "userMentions": subscription["userMentions"]}
    return result


def files(call, room):
    wanted = (call.query.get("name") or "").lower()
    found = [file for file in call.world.files.of_room(room["_id"]) if wanted in file["name"].lower()]
    return call.page("files", found, {"name": 1})


def visible(call, kind):
    rooms = [room for room in call.world.rooms.of_user(call.user) if room["t"] == kind]
    return [call.world.rooms.public(room) for room in rooms]


def register_family(kind):
    """The endpoints that channels and groups share."""
    family, noun = FAMILIES[kind], NOUNS[kind]

    def find(call, archived=None):
        """The room of the call; archived ones are found for reading only, unless the endpoint allows them."""
        return found_room(call, kind, call.parameters, call.request.method == "GET" if archived is None else archived)

    def answer(call, room):
        return {noun: call.world.rooms.public(call.world.rooms.get(room["_id"]))}

    def endpoint(method, name):
        return route(method, f"{family}.{name}")

    @endpoint("POST", "create")
    async def create(call):
        if not call.body.get("name"):
            raise failure(f'{"Param" if kind == "c" else "Body param"} "name" is required')
        names = call.body.get("members") or []
        extra = {key: call.body[key] for key in ("customFields",) if key in call.body}
        extra |= {key: call.body["extraData"][key] for key in ("topic", "description", "announcement", "broadcast")
                  if key in (call.body.get("extraData") or {})}
        room = call.world.rooms.create(
            kind, call.body["name"], call.user, names, call.body.get("readOnly", False), extra,
            "createChannel" if kind == "c" else "createPrivateGroup")
        return answer(call, room)

    @endpoint("GET", "info")
    async def info(call):
        return answer(call, find(call))

    @endpoint("GET", "history")
    async def history_of(call):
        return history(call, find(call))

    @endpoint("GET", "messages")
    async def messages_of(call):
        room = find(call)
        people, rooms = call.world.people, call.world.rooms
        if people.may(call.user, "view-joined-room") and not rooms.subscription(room["_id"], call.user["_id"]):
            raise forbidden()
        return all_messages(call, room)

    @endpoint("GET", "members")
    async def members_of(call):
        return members(call, find(call))

    @endpoint("GET", "counters")
    async def counters_of(call):
        return counters(call, find(call))

    @endpoint("GET", "files")
    async def files_of(call):
        return files(call, find(call))

    @endpoint("GET", "roles")
    async def roles(call):
        rows = call.world.rooms.subscriptions(find(call)["_id"])
        return {"roles": [{"rid": row["rid"], "u": row["u"], "roles": row["roles"], "_id": row["_id"]}
                          for row in rows if row.get("roles")]}

    @endpoint("GET", "moderators")
    async def moderators(call):
        rows = call.world.rooms.subscriptions(find(call)["_id"])
        return {"moderators": [row["u"] for row in rows if "moderator" in row.get("roles", [])]}

    @endpoint("GET", "online")
    async def online(call):
        room = call.world.rooms.get(call.query.get("_id")) or find(call)
        return {"online": [call.world.people.short(user) for user in call.world.rooms.members(room)
                           if user["status"] != "offline"]}

    @endpoint("POST", "leave")
    async def leave(call):
        room = find(call)
        call.world.rooms.leave(room, call.user)
        return answer(call, room) if kind == "c" else None

    @endpoint("POST", "invite")
    async def invite(call):
        room = find(call)
        names = call.body.get("userIds") or call.body.get("usernames")
        if names:
            users = [call.world.people.get(name) or call.world.people.named(name) for name in names]
        else:
            users = [user_of(call, call.body)]
        call.world.rooms.invite(room, call.user, [user for user in users if user])
        return answer(call, room)

    @endpoint("POST", "kick")
    async def kick(call):
        room = find(call)
        call.world.rooms.kick(room, call.user, user_of(call, call.body))
        return answer(call, room) if kind == "c" else None

    @endpoint("POST", "rename")
    async def rename(call):
        room, name = find(call), call.body.get("name")
        if not (name or "").strip():
            raise failure('The bodyParam "name" is required')
        if kind == "c" and room["name"] == name:
            raise failure("The channel name is the same as what it would be renamed to.")
        call.world.rooms.save(room, call.user, "roomName", name)
        return answer(call, room)

    def text_setting(name, field, setting):
        @endpoint("POST", name)
        async def save(call):
            if field not in call.body:
                raise failure(f'The bodyParam "{field}" is required')
            room = find(call)
            if kind == "c" and field != "announcement" and call.body[field] == room.get(TEXT_SETTINGS[setting][0]):
                raise failure(f"The channel {field} is the same as what it would be changed to.")
            call.world.rooms.save(room, call.user, setting, call.body[field])
            return {field: call.body[field] or ""}

    text_setting("setTopic", "topic", "roomTopic")
    text_setting("setAnnouncement", "announcement", "roomAnnouncement")
    text_setting("setDescription", "description", "roomDescription")
    text_setting("setPurpose", "purpose", "roomDescription")

    @endpoint("POST", "setReadOnly")
    async def set_read_only(call):
        room, wanted = find(call), call.body.get("readOnly")
        if wanted is None:
            raise failure('The bodyParam "readOnly" is required')
        if room["ro"] == wanted:
            word = "channel" if kind == "c" else "private group"
            raise failure(f"The {word} read only setting is the same as what it would be changed to.")
        call.world.rooms.save(room, call.user, "readOnly", wanted)
        return answer(call, room)

    @endpoint("POST", "setType")
    async def set_type(call):
        room = find(call)
        call.world.rooms.save(room, call.user, "roomType", call.need("type"))
        return answer(call, room)

    @endpoint("POST", "setCustomFields")
    async def set_custom_fields(call):
        room = find(call)
        call.world.rooms.save(room, call.user, "roomCustomFields", call.need("customFields"))
        return answer(call, room)

    @endpoint("POST", "archive")
    async def archive(call):
        call.world.rooms.archive(find(call), call.user, True)

    @endpoint("POST", "unarchive")
    async def unarchive(call):
        room = find(call, archived=True)
        if not room.get("archived"):
            raise failure(f"The {noun}, {room['name']}, is not archived")
        call.world.rooms.archive(room, call.user, False)

    def opening(name, opened):
        @endpoint("POST", name)
        async def change(call):
            room = find(call, archived=True)
            subscription = call.world.rooms.subscription(room["_id"], call.user["_id"])
            if not subscription:
                raise failure(f'The user/callee is not in the {noun} "{room["name"]}".')
            if subscription["open"] == opened:
                raise failure(f"The {noun}, {room['name']}, is already {'open' if opened else 'closed'} to the sender")
            call.world.rooms.set_open(room, call.user, opened)

    opening("open", True)
    opening("close", False)

    @endpoint("POST", "delete")
    async def delete(call):
        call.world.rooms.erase(find(call, archived=True), call.user)

    def role(name, has):
        @endpoint("POST", f"{'add' if has else 'remove'}{name.title()}")
        async def change(call):
            call.world.rooms.set_role(find(call), call.user, user_of(call, call.body), name, has)

    for name in ("owner", "moderator", "leader"):
        role(name, True)
        role(name, False)


register_family("c")
register_family("p")


@route("GET", "channels.list")
async def channels_list(call):
    rooms = [call.world.rooms.public(room) for room in call.world.db.find("rooms", "t = 'c'")]
    return call.page("channels", rooms, {"name": 1})


@route("GET", "channels.list.joined")
async def channels_list_joined(call):
    return call.page("channels", visible(call, "c"), {"name": 1})


@route("GET", "groups.list")
async def groups_list(call):
    return call.page("groups", visible(call, "p"), {"name": 1})


@route("GET", "groups.listAll")
async def groups_list_all(call):
    if not call.world.people.may(call.user, "view-room-administration"):
        raise forbidden()
    rooms = [call.world.rooms.public(room) for room in call.world.db.find("rooms", "t = 'p'")]
    return call.page("groups", rooms, {"name": 1})


@route("POST", "channels.join")
async def channels_join(call):
    room = found_room(call, "c", call.body, archived=False)
    call.world.rooms.join(room, call.user, call.body.get("joinCode"))
    return {"channel": call.world.rooms.public(call.world.rooms.get(room["_id"]))}


@route("POST", "channels.setJoinCode")
async def channels_set_join_code(call):
    room = found_room(call, "c", call.body)
    call.world.rooms.save(room, call.user, "joinCode", call.need("joinCode"))
    return {"channel": call.world.rooms.public(call.world.rooms.get(room["_id"]))}


@route("POST", "channels.setDefault")
async def channels_set_default(call):
    room = found_room(call, "c", call.body)
    call.world.people.require(call.user, "view-room-administration", "error-action-not-allowed")
    call.world.rooms.save(room, call.user, "default", str(call.need("default")).lower() in ("true", "1"))
    return {"channel": call.world.rooms.public(call.world.rooms.get(room["_id"]))}


@route("GET", "channels.getAllUserMentionsByChannel")
async def channels_mentions(call):
    return call.page("mentions", call.world.messages.mentioning(call.user, call.need("roomId")))


# Direct messages

def direct(method, name):
    return route(method, f"im.{name}", f"dm.{name}")


@direct("POST", "create")
async def im_create(call):
    names = call.body.get("username") or call.body.get("usernames")
    if not names:
        raise MeteorError("error-room-not-found", 'The required "username" or "usernames" param provided does not match '
                          "any direct message")
    people = call.world.people
    users = []
    for name in str(names).split(","):
        user = people.named(name.strip())
        if not user:
            raise MeteorError("error-invalid-user", "Invalid user", {"method": "createDirectMessage"})
        users.append(user)
    if not call.body.get("excludeSelf"):
        users.insert(0, call.user)
    users = list({user["_id"]: user for user in users}.values())
    people.require(call.user, "create-d", method="createDirectMessage")
    before = call.world.db.count("rooms")
    room = call.world.rooms.create_direct(users)
    return {"room": {"_id": room["_id"], "rid": room["_id"], "t": "d", "usernames": room["usernames"],
                     "inserted": call.world.db.count("rooms") > before}}


@direct("GET", "list")
async def im_list(call):
    return call.page("ims", visible(call, "d"), {"name": 1})


@direct("GET", "list.everyone")
async def im_list_everyone(call):
    if not call.world.people.may(call.user, "view-room-administration"):
        raise forbidden()
    rooms = [call.world.rooms.public(room) for room in call.world.db.find("rooms", "t = 'd'")]
    return call.page("ims", rooms, {"name": 1})


@direct("GET", "history")
async def im_history(call):
    return history(call, found_direct(call, call.query))


@direct("GET", "messages")
async def im_messages(call):
    return all_messages(call, found_direct(call, call.query))


@direct("GET", "members")
async def im_members(call):
    return members(call, found_direct(call, call.query))


@direct("GET", "files")
async def im_files(call):
    return files(call, found_direct(call, call.query))


@direct("GET", "counters")
async def im_counters(call):
    return counters(call, found_direct(call, call.query))


@direct("POST", "open")
async def im_open(call):
    room = found_direct(call, call.body)
    call.world.rooms.set_open(room, call.user, True)


@direct("POST", "close")
async def im_close(call):
    room = found_direct(call, call.body)
    if not call.world.rooms.subscription(room["_id"], call.user["_id"])["open"]:
        raise failure("The direct message room, is already closed to the sender")
    call.world.rooms.set_open(room, call.user, False)


@direct("POST", "setTopic")
async def im_set_topic(call):
    room = found_direct(call, call.body)
    call.world.rooms.save(room, call.user, "roomTopic", call.body.get("topic", ""))
    return {"topic": call.body.get("topic", "")}


@direct("POST", "delete")
async def im_delete(call):
    room = found_direct(call, call.body)
    call.world.rooms.erase(room, call.user)


# Rooms of any kind

def any_room(call):
    parameters = call.parameters
    if not parameters.get("roomId") and not parameters.get("roomName"):
        raise MeteorError("error-roomid-param-not-provided", 'The parameter "roomId" or "roomName" is required')
    rooms = call.world.rooms
    room = rooms.get(parameters.get("roomId")) if parameters.get("roomId") else rooms.named(parameters["roomName"])
    if not room:
        raise MeteorError("error-room-not-found",
                          'The required "roomId" or "roomName" param provided does not match any channel')
    return room


@route("GET", "rooms.info")
async def rooms_info(call):
    room = any_room(call)
    if not call.world.rooms.may_access(room, call.user):
        raise failure("not-allowed", "Not Allowed")
    result = {"room": call.world.rooms.public(room)}
    if room.get("prid") and (parent := call.world.rooms.get(room["prid"])):
        result["parent"] = {key: parent[key] for key in ("_id", "name", "fname", "t", "u") if key in parent}
    return result


@route("POST", "rooms.leave")
async def rooms_leave(call):
    call.world.rooms.leave(any_room(call), call.user)


@route("POST", "rooms.favorite")
async def rooms_favorite(call):
    if "favorite" not in call.body:
        raise failure("The 'favorite' param is required")
    room = any_room(call)
    subscription = call.world.rooms.subscription(room["_id"], call.user["_id"])
    if not subscription:
        raise MeteorError("error-invalid-subscription", "You must be part of a room to favorite it",
                          {"method": "toggleFavorite"})
    call.world.rooms.save_subscription(subscription | {"f": bool(call.body["favorite"])})


@route("POST", "rooms.saveRoomSettings")
async def rooms_save_room_settings(call):
    rid = call.need("rid")
    room = call.world.rooms.get(rid)
    if not room:
        raise MeteorError("error-invalid-room", "Invalid room", {"method": "saveRoomSettings"})
    for setting, value in call.body.items():
        if setting != "rid":
            call.world.rooms.save(call.world.rooms.get(rid), call.user, setting, value)
    return {"rid": rid}


@route("POST", "rooms.cleanHistory")
async def rooms_clean_history(call):
    room = any_room(call)
    latest, oldest = (parse_time(value) for value in call.need("latest", "oldest"))
    call.world.people.require(call.user, "edit-room", method="cleanRoomHistory", rid=room["_id"])
    inclusive = call.body.get("inclusive")
    rows = call.world.db.find(
        "messages", f"rid = ? AND ts {'<=' if inclusive else '<'} ? AND ts {'>=' if inclusive else '>'} ?",
        room["_id"], latest, oldest)
    for message in rows:
        for file in message.get("files") or []:
            call.world.files.remove(file["_id"])
        call.world.db.remove("messages", message)
    call.world.streams.emit("stream-notify-room", f"{room['_id']}/deleteMessageBulk", {
        "rid": room["_id"], "excludePinned": False, "ignoreDiscussion": False,
        "ts": {"$gt": {"$date": oldest}, "$lt": {"$date": latest}}, "users": []})
    return {"_id": room["_id"], "count": len(rows)}


@route("POST", "rooms.createDiscussion")
async def rooms_create_discussion(call):
    for name in ("prid", "t_name"):
        if not call.body.get(name):
            raise failure(f'Body parameter "{name}" is required.')
    parent = call.world.rooms.require_access(call.body["prid"], call.user, "createDiscussion")
    room = call.world.messages.discuss(
        call.user, parent, call.body["t_name"], call.body.get("pmid"), call.body.get("reply"),
        call.body.get("users") or [], call.body.get("topic"))
    return {"discussion": call.world.rooms.public(room)}


@route("GET", "rooms.getDiscussions")
async def rooms_get_discussions(call):
    room = any_room(call)
    rooms = call.world.rooms
    if not rooms.may_access(room, call.user):
        raise failure("not-allowed", "Not Allowed")
    found = call.world.db.find("rooms", "json_extract(body, '$.prid') = ?", room["_id"])
    return call.page("discussions", [rooms.public(row) for row in found], {"fname": 1})


# Files

async def uploaded(call, rid, temporary):
    """Stores the file of a multipart request; returns it and the fields beside it."""
    if not call.world.rooms.may_access_id(rid, call.user):
        raise forbidden()
    if call.request.content_type != "multipart/form-data":
        raise MeteorError("invalid-field")
    file, fields = None, {}
    async for part in await call.request.multipart():
        data = bytearray()
        limit = call.world.settings["FileUpload_MaxFileSize"] if part.filename is not None else MOST_FIELD_BYTES
        while chunk := await part.read_chunk():
            data += chunk
            if len(data) > limit:
                raise MeteorError("error-file-too-large" if part.filename is not None else "invalid-field")
        if part.filename is not None:
            if part.name != "file":
                raise MeteorError("invalid-field")
            kind = part.headers.get("Content-Type", "application/octet-stream")
            file = (urllib.parse.unquote(part.filename), kind.split(";")[0].strip(), bytes(data))
        elif len(fields) < MOST_FIELDS:
            fields[part.name] = data.decode("utf-8", "replace")
    if not file:
        raise MeteorError("error-no-file-uploaded", "[No file uploaded]")
    return call.world.files.store(call.user, rid, *file, temporary=temporary), fields


@route("POST", "rooms.upload")
async def rooms_upload(call):
    rid = call.rest[0] if call.rest else ""
    upload, fields = await uploaded(call, rid, temporary=False)
    if "customFields" in fields:
        fields["customFields"] = json.loads(fields["customFields"])
    return {"message": call.world.files.send(call.user, rid, upload, fields)}


@route("POST", "rooms.media")
async def rooms_media(call):
    upload, _ = await uploaded(call, call.rest[0] if call.rest else "", temporary=True)
    return {"file": {"_id": upload["_id"], "url": upload["path"]}}


@route("POST", "rooms.mediaConfirm")
async def rooms_media_confirm(call):
    rid, identifier = call.rest if len(call.rest) == 2 else ("", "")
    if not call.world.rooms.may_access_id(rid, call.user):
        raise forbidden()
    upload = call.world.files.get(identifier)
    if not upload or upload["rid"] != rid:
        raise MeteorError("invalid-file")
    return {"message": call.world.files.send(call.user, rid, upload, call.body)}


async def download(world, request):
    """A file, for people in its room. They show who they are by headers, by cookies or in the query."""
    upload = world.files.get(request.match_info["id"])
    if not upload:
        return web.Response(status=404)
    call = Call(world, request, {})
    identifier, token = (
        request.headers.get(header) or request.cookies.get(name) or request.query.get(name)
        for header, name in (("X-User-Id", "rc_uid"), ("X-Auth-Token", "rc_token")))
    if identifier and token:
        call.user, _ = world.people.by_token(token, identifier)
    if world.settings["FileUpload_ProtectFiles"] and not (
            call.user and world.rooms.subscription(upload["rid"], call.user["_id"])):
        return web.Response(status=403)
    name = urllib.parse.quote(upload["name"])
    disposition = "attachment" if "download" in request.query else "inline"
    return web.Response(
        body=world.db.get_chunks(upload["_id"]), content_type=upload["type"], headers={
            "Content-Disposition": f"{disposition}; filename*=UTF-8''{name}",
            "Content-Security-Policy": "default-src 'none'",
            "Cache-Control": "max-age=31536000"})


async def avatar(request):
    letter = request.match_info["name"][:1].upper()
    return web.Response(content_type="image/svg+xml", text=(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 200 200"><rect width="100%" height="100%"/>'
        f'<text x="50%" y="50%" fill="#fff">{letter if letter.isalnum() else "?"}</text></svg>'))
