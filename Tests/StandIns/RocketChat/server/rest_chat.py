"""REST: chat.*, and method.call, which carries calls of the realtime API."""

import json

from .methods import METHODS, Caller
from .rest import failure, route
from .values import MISTAKES, MeteorError, length, to_json


def found_message(call, name="messageId"):
    message = call.world.messages.get(call.need(name))
    if not message:
        raise MeteorError("error-message-not-found", 'The provided "messageId" does not match any existing message.')
    return message


@route("POST", "chat.postMessage")
async def post_message(call):
    limit = call.world.settings["Message_MaxAllowedSize"]
    attachments = call.body.get("attachments")
    texts = [call.body.get("text")]
    texts += [part.get("text") for part in attachments if isinstance(part, dict)] if isinstance(
        attachments, list) else []
    if any(isinstance(text, str) and length(text) > limit for text in texts):
        raise failure("error-message-size-exceeded")
    if not call.body.get("roomId") and not call.body.get("channel"):
        raise MeteorError("invalid-params", "must have required property 'roomId'\n must have required property "
                          "'channel'\n must match exactly one schema in oneOf")
    sent = call.world.messages.post(call.user, call.body)
    channel, message = sent[0]
    return {"ts": call.world.clock.milliseconds(), "channel": channel, "message": message}


@route("POST", "chat.sendMessage")
async def send_message(call):
    message = call.need("message")
    if not isinstance(message, dict):
        raise MeteorError("invalid-params", "must be object")
    if message.get("t") and message["t"] != "e2e":
        raise MeteorError(None, "Cannot send system messages using 'chat.sendMessage'")
    sent = call.world.messages.execute_send(call.user, message)
    if not sent:
        # The server fails on its way to an answer when the id is taken.
        raise failure("Cannot read properties of undefined (reading 'starred')")
    return {"message": sent}


@route("POST", "chat.update")
async def update(call):
    rid, identifier = call.need("roomId", "msgId")
    text = call.need("text")
    message = call.world.messages.get(identifier)
    if not message:
        raise failure(f'No message found with the id of "{identifier}".')
    if message["rid"] != rid:
        raise failure("The room id provided does not match where the message is from.")
    changes = {"_id": identifier, "msg": text, "rid": rid}
    if "customFields" in call.body:
        changes["customFields"] = call.body["customFields"]
    call.world.messages.update(call.user, changes)
    return {"message": call.shown([call.world.messages.get(identifier)])[0]}


@route("POST", "chat.delete")
async def delete(call):
    rid, identifier = call.need("roomId", "msgId")
    message = call.world.messages.get(identifier)
    if not message:
        raise failure(f'No message found with the id of "{identifier}".')
    if message["rid"] != rid:
        raise failure("The room id provided does not match where the message is from.")
    by = call.user
    if call.body.get("asUser") and message["u"]["_id"] != by["_id"]:
        if not call.world.people.may(by, "force-delete-message", rid):
            raise failure('Unauthorized. You must have the permission "force-delete-message" to delete other\'s message '
                          "as them.")
        by = call.world.people.get(message["u"]["_id"])
    call.world.messages.delete(by, identifier)
    return {"_id": identifier, "ts": str(call.world.clock.milliseconds()),
            "message": {key: message[key] for key in ("_id", "rid", "u")}}


@route("GET", "chat.getMessage")
async def get_message(call):
    message = call.world.messages.get(call.need("msgId"))
    if not message:
        raise failure()
    call.world.rooms.require_access(message["rid"], call.user, "getSingleMessage")
    return {"message": call.shown([message])[0]}


@route("GET", "chat.syncMessages")
async def sync_messages(call):
    rid = call.query.get("roomId")
    if not rid:
        raise MeteorError("error-param-required", 'The required "roomId" query param is missing')
    if "lastUpdate" not in call.query:
        raise MeteorError("error-param-required", 'The "type" or "lastUpdate" parameters must be provided')
    since = call.moment("lastUpdate")
    call.world.rooms.require_access(rid, call.user, "messages/get")
    result = call.world.messages.updates(rid, since)
    call.shown(result["updated"])
    return {"result": result}


@route("GET", "chat.search")
async def search(call):
    rid, text = call.query.get("roomId"), call.query.get("searchText")
    if not rid:
        raise MeteorError("error-roomId-param-not-provided", 'The required "roomId" query param is missing.')
    if not text:
        raise MeteorError("error-searchText-param-not-provided", 'The required "searchText" query param is missing.')
    offset, count = call.paging()
    found = call.world.messages.search(call.user, text, rid, count, offset)
    if found is None:
        raise failure()
    return {"messages": call.shown(found)}


@route("POST", "chat.react")
async def react(call):
    message = found_message(call)
    emoji = call.body.get("emoji") or call.body.get("reaction")
    if not emoji:
        raise MeteorError("error-emoji-param-not-provided", 'The required "emoji" param is missing.')
    call.world.messages.react(call.user, emoji, message["_id"], call.body.get("shouldReact"))


@route("POST", "chat.starMessage")
async def star_message(call):
    call.world.messages.star(call.user, found_message(call)["_id"], True)


@route("POST", "chat.unStarMessage")
async def unstar_message(call):
    call.world.messages.star(call.user, found_message(call)["_id"], False)


@route("POST", "chat.pinMessage")
async def pin_message(call):
    return {"message": call.world.messages.pin(call.user, found_message(call)["_id"])}


@route("POST", "chat.unPinMessage")
async def unpin_message(call):
    call.world.messages.unpin(call.user, found_message(call)["_id"])


@route("POST", "chat.followMessage")
async def follow_message(call):
    call.world.messages.follow(call.user, call.need("mid"), True)


@route("POST", "chat.unfollowMessage")
async def unfollow_message(call):
    call.world.messages.follow(call.user, call.need("mid"), False)


@route("POST", "chat.reportMessage")
async def report_message(call):
    for name in ("messageId", "description"):
        if not call.body.get(name):
            raise failure(f'The required "{name}" param is missing.')
    call.world.messages.report(call.user, call.body["messageId"], call.body["description"])


def listing(name, key, wanted):
    @route("GET", name)
    async def list_messages(call):
        rid = call.query.get("roomId") or call.need("rid")
        call.world.rooms.require_access(rid, call.user)
        messages = call.world.db.find(
            "messages", "rid = ? AND json_extract(body, '$._hidden') IS NOT 1", rid, order="ts DESC")
        return call.page(key, call.shown([message for message in messages if wanted(call, message)]))


listing("chat.getPinnedMessages", "messages",
        lambda call, message: message.get("pinned") and message.get("t") != "rm")
listing("chat.getStarredMessages", "messages",
        lambda call, message: {"_id": call.user["_id"]} in message.get("starred", []))
listing("chat.getMentionedMessages", "messages", lambda call, message: any(
    row.get("username") == call.user["username"] for row in message.get("mentions", [])))
listing("chat.getDiscussions", "messages", lambda call, message: "drid" in message and (
    call.query.get("text", "").lower() in message["msg"].lower()))
listing("chat.getThreadsList", "threads", lambda call, message: "tcount" in message and (
    call.query.get("text", "").lower() in message["msg"].lower()) and (
    call.query.get("type") != "following" or call.user["_id"] in message.get("replies", [])))


@route("GET", "chat.getThreadMessages")
async def get_thread_messages(call):
    thread = call.world.messages.get(call.need("tmid"))
    if not thread:
        raise MeteorError("error-invalid-message", "Invalid Message")
    call.world.rooms.require_access(thread["rid"], call.user)
    return call.page("messages", call.world.db.find("messages", "tmid = ?", thread["_id"], order="ts"))


@route("GET", "chat.getDeletedMessages")
async def get_deleted_messages(call):
    rid, since = call.need("roomId"), call.moment("since")
    rows = call.world.db.find("trash", "collection = 'messages' AND rid = ? AND deleted > ?", rid, since or 0)
    return call.page("messages", [{"_id": row["_id"]} for row in rows])


@route("GET", "chat.syncThreadsList")
async def sync_threads_list(call):
    rid, since = call.need("rid"), call.moment("updatedSince")
    call.world.rooms.require_access(rid, call.user)
    rows = call.world.db.find(
        "messages", "rid = ? AND updated > ? AND json_extract(body, '$.tcount') IS NOT NULL", rid, since or 0)
    removed = call.world.db.find(
        "trash", "rid = ? AND deleted > ? AND json_extract(body, '$.tcount') IS NOT NULL", rid, since or 0)
    return {"threads": {"update": rows, "remove": removed}}


@route("GET", "chat.syncThreadMessages")
async def sync_thread_messages(call):
    tmid, since = call.need("tmid"), call.moment("updatedSince")
    thread = call.world.messages.get(tmid)
    if not thread:
        raise MeteorError("error-invalid-message", "Invalid Message")
    call.world.rooms.require_access(thread["rid"], call.user)
    rows = call.world.db.find("messages", "tmid = ? AND updated > ?", tmid, since or 0)
    removed = call.world.db.find(
        "trash", "json_extract(body, '$.tmid') = ? AND deleted > ?", tmid, since or 0)
    return {"messages": {"update": rows, "remove": removed}}


def method_call(name, login):
    @route("POST", name, login=login, limited=False)
    async def run(call):
        """`message` is JSON text inside JSON, in the request and in the answer."""
        try:
            data = json.loads(call.need("message"))
        except MISTAKES:
            raise failure("Invalid method call") from None
        if not isinstance(data, dict) or not isinstance(data.get("params"), list):
            raise failure("Invalid method call")
        result = {"msg": "result", "id": data.get("id")}
        try:
            method = METHODS.get(data.get("method"))
            if not method:
                raise MeteorError(404, f"Method '{data.get('method')}' not found")
            value = await method(Caller(call.world, call.user, call.token), *data["params"])
            if value is not None:
                result["result"] = value
        except MeteorError as error:
            result["error"] = error.realtime_form()
        except MISTAKES:
            result["error"] = MeteorError(400, "Match failed").realtime_form()
        return {"message": to_json(result)}


method_call("method.call", True)
method_call("method.callAnon", False)
