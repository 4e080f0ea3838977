"""Messages: sending, editing, deleting, reactions, threads, pins, stars, history and search."""

import json
import re
import urllib.parse

from . import markup
from .values import MeteorError, length, parse_time, random_id

EDITABLE = ("tshow", "alias", "attachments", "avatar", "emoji", "msg", "customFields", "content")
SENDABLE = (
    "_id", "rid", "msg", "tmid", "tshow", "ts", "t", "alias", "avatar", "emoji", "attachments", "bot", "content",
    "customFields", "groupable", "parseUrls", "blocks", "file", "files")
CHECKED_STRINGS = ("_id", "msg", "text", "alias", "emoji", "tmid", "avatar")
CUSTOM_TYPES = {"string": str, "boolean": bool, "object": dict, "array": list}
TRANSLATIONS = {
    "error-invalid-room": "Invalid room", "error-not-allowed": "Not allowed",
    "You_have_been_muted": "You have been muted and cannot speak in this room"}
TIMESTAMP_TOLERANCE = 60_000
TIMESTAMP_WINDOW = 10_000
VISIBLE = "json_extract(body, '$._hidden') IS NOT 1"
OUTSIDE_THREADS = "(tmid IS NULL OR json_extract(body, '$.tshow') = 1)"


class Messages:
    def __init__(self, world):
        self.world = world
        self.db = world.db

    def get(self, identifier):
        return self.db.get("messages", identifier) if isinstance(identifier, str) else None

    # Sending

    def execute_send(self, user, message, method="sendMessage"):
        """What the method sendMessage and chat.sendMessage do."""
        settings = self.world.settings
        message = {key: value for key, value in message.items() if key in SENDABLE and value is not None}
        if message.get("tshow") and not message.get("tmid"):
            raise MeteorError("invalid-params", "tshow provided but missing tmid", {"method": method})
        self.check_fields(message)
        now = self.world.clock.date()
        if "ts" in message:
            stated = parse_time(message["ts"])
            difference = abs(stated - now["$date"]) if stated is not None else TIMESTAMP_TOLERANCE + 1
            if difference > TIMESTAMP_TOLERANCE:
                raise MeteorError("error-message-ts-out-of-sync", "Message timestamp is out of sync", {
                    "method": method, "message_ts": message["ts"], "server_ts": now["$date"]})
            now = {"$date": stated} if difference <= TIMESTAMP_WINDOW else now
        message["ts"] = now
        if length(message.get("msg", "")) > settings["Message_MaxAllowedSize"]:
            raise MeteorError("error-message-size-exceeded", "Message size exceeds Message_MaxAllowedSize",
                              {"method": method})
        if message.get("tmid"):
            parent = self.get(message["tmid"])
            if parent:
                message["tmid"] = parent.get("tmid") or message["tmid"]
                message["rid"] = parent["rid"]
        if not message.get("rid"):
            raise MeteorError(None, "The 'rid' property on the message object is missing.")
        try:
            room = self.world.rooms.sendable(message["rid"], user)
            return self.send(user, message, room)
        except MeteorError as error:
            text = str(error.error or error.message)
            self.ephemeral(user, message["rid"], TRANSLATIONS.get(text, text))
            raise

    def check_fields(self, message):
        for key in CHECKED_STRINGS:
            if message.get(key) is not None and not isinstance(message[key], str):
                raise MeteorError(400, "Match failed")

    def send(self, user, message, room, notify=True):
        """Validates, stores and announces a message. It does not check Message_MaxAllowedSize."""
        self.check_fields(message)
        if (message.get("alias") or message.get("avatar")) and not self.world.people.may(
                user, "message-impersonate", room["_id"]):
            raise MeteorError(None, "Not enough permission")
        for attachment in message.get("attachments") or []:
            self.check_attachment(attachment)
        self.check_custom_fields(message)
        message.setdefault("ts", self.world.clock.date())
        message["u"], message["rid"] = self.world.people.short(user), room["_id"]
        if not isinstance(message.get("msg"), str):
            message["msg"] = ""
        if message.get("tshow") is not True:
            message.pop("tshow", None)
        if message.get("_id") and self.get(message["_id"]):
            return None
        message.setdefault("_id", random_id())
        self.prepare(message, user)
        self.db.put("messages", message)
        self.after_save(message, user)
        return self.get(message["_id"])

    def check_attachment(self, attachment):
        if not isinstance(attachment, dict):
            raise MeteorError(400, "Match failed")
        for key in ("color", "text", "author_name", "title"):
            if attachment.get(key) is not None and not isinstance(attachment[key], str):
                raise MeteorError(400, "Match failed")
        for field in attachment.get("fields") or []:
            if not field.get("title") or not field.get("value"):
                raise MeteorError(None, "Invalid attachment field, title and value is required")

    def check_custom_fields(self, message):
        if not message.get("customFields"):
            return
        settings = self.world.settings
        if not settings["Message_CustomFields_Enabled"]:
            raise MeteorError(None, "Custom fields not enabled")
        schema = json.loads(settings["Message_CustomFields"])
        fields, known = message["customFields"], schema.get("properties", {})
        if not isinstance(fields, dict) or any(name not in fields for name in schema.get("required", [])) or any(
                name not in known or type(value) is not CUSTOM_TYPES.get(known[name].get("type"))
                for name, value in fields.items()):
            raise MeteorError(None, "Invalid custom fields")

    def prepare(self, message, user):
        """What the server derives from the text: `urls`, `mentions`, `channels`, quotes, `md`."""
        text = message["msg"]
        message["urls"] = [] if message.get("parseUrls") is False else [
            {"url": url, "meta": {}} for url in markup.urls(text)]
        names = markup.mentioned_users(text)
        for attachment in message.get("attachments") or []:
            names += markup.mentioned_users(attachment.get("description") or "")
        everybody = [{"_id": name, "username": name} for name in names if name in ("all", "here")]
        users = [self.world.people.named(name) for name in dict.fromkeys(names)]
        message["mentions"] = everybody + [
            self.world.people.short(found) | {"type": "user"} for found in users if found]
        rooms = [self.world.rooms.named(name) for name in markup.mentioned_channels(text)]
        message["channels"] = [
            {key: room[key] for key in ("_id", "name", "fname")} for room in rooms if room and room["t"] == "c"]
        self.quote(message, user)
        if text:
            message["md"] = markup.parse(text)
        else:
            message.pop("md", None)
        for attachment in message.get("attachments") or []:
            if attachment.get("description"):
                attachment["descriptionMd"] = markup.parse(attachment["description"])

    def quote(self, message, user):
        """A link to a message becomes an attachment with that message's text."""
        for url in message["urls"]:
            if self.world.settings["Site_Url"] not in url["url"]:
                continue
            identifiers = urllib.parse.parse_qs(urllib.parse.urlsplit(url["url"]).query).get("msg")
            quoted = self.get(identifiers[0]) if identifiers else None
            if not quoted or not self.world.rooms.may_access_id(quoted["rid"], user):
                continue
            attachments = [
                part for part in message.get("attachments") or [] if part.get("message_link") != url["url"]]
            message["attachments"] = [*attachments, {
                "text": quoted["msg"], "md": quoted.get("md"), "message_link": url["url"],
                "author_name": quoted.get("alias") or quoted["u"]["username"],
                "author_icon": f"/avatar/{quoted['u']['username']}", "ts": quoted["ts"],
                "attachments": quoted.get("attachments") or []}]
            url["ignoreParse"] = True

    def after_save(self, message, user):
        self.announce(message)
        if message.get("tmid"):
            self.reply(message, user)
        room = self.world.rooms.get(message["rid"])
        self.count(room, message)
        self.world.rooms.emit_room("updated", room)
        self.mark_unread(room, message, user)
        self.notify(room, message, user)
        if room.get("prid"):
            self.count_discussion(room)

    def count(self, room, message):
        room["msgs"] += 1
        if not message.get("tmid") or message.get("tshow"):
            room["lm"] = message["ts"]
            if self.world.settings["Store_Last_Message"]:
                room["lastMessage"] = message
        self.db.put("rooms", room)

    def announce(self, message):
        """`stream-room-messages`: to the room's subscribers, and to those of `__my_messages__`."""
        streams, rooms = self.world.streams, self.world.rooms
        streams.emit("stream-room-messages", message["rid"], message)
        room = rooms.get(message["rid"])
        for session in streams.sessions("stream-room-messages", "__my_messages__"):
            user = session.user
            if room and user and rooms.may_access(room, user):
                session.send_changed("stream-room-messages", "__my_messages__", [message, {
                    "roomParticipant": bool(rooms.subscription(room["_id"], user["_id"])), "roomType": room["t"],
                    "roomName": room.get("name")}])

    def reply(self, message, user):
        parent = self.get(message["tmid"])
        if not parent:
            return
        followers = parent.get("replies", [])
        parent["replies"] = list(dict.fromkeys([*(followers or [parent["u"]["_id"]]), user["_id"]]))
        parent["tcount"] = parent.get("tcount", 0) + 1
        parent["tlm"] = message["ts"]
        self.save_and_announce(parent)
        for identifier in parent["replies"]:
            subscription = self.world.rooms.subscription(message["rid"], identifier)
            if subscription and identifier != user["_id"]:
                unread = dict.fromkeys([*subscription.get("tunread", []), parent["_id"]])
                self.world.rooms.save_subscription(subscription | {"tunread": list(unread)})

    def mark_unread(self, room, message, user):
        mentioned = {row["_id"] for row in message["mentions"]}
        everybody = bool(mentioned & {"all", "here"})
        for row in self.world.rooms.subscriptions(room["_id"]):
            if row["u"]["_id"] == user["_id"] or (message.get("tmid") and not message.get("tshow")):
                continue
            row["alert"] = row["open"] = True
            personally = row["u"]["_id"] in mentioned
            if not message.get("tmid") and (room["t"] == "d" or personally or everybody):
                row["unread"] += 1
                row["userMentions"] += personally
                row["groupMentions"] += everybody and not personally
            self.world.rooms.save_subscription(row)

    def notify(self, room, message, user):
        """`notification` to members who are mentioned, who follow the thread, or whom a direct message is for."""
        mentioned = {row["_id"] for row in message["mentions"]}
        text = message["msg"] or next(
            (part.get("description") or part.get("title") or part.get("text")
             for part in message.get("attachments") or []), "")
        parent = self.get(message.get("tmid"))
        for row in self.world.rooms.subscriptions(room["_id"]):
            identifier = row["u"]["_id"]
            follows = parent and identifier in parent.get("replies", [])
            direct = room["t"] == "d" and not message.get("tmid")
            if identifier == user["_id"] or not (
                    direct or follows or identifier in mentioned or mentioned & {"all", "here"}):
                continue
            several = room["t"] != "d" or len(room["uids"]) > 2
            payload = {
                "_id": message["_id"], "rid": message["rid"], "sender": self.world.people.short(user),
                "type": room["t"], "message": {"msg": message["msg"]}}
            if message.get("tmid"):
                payload["tmid"] = message["tmid"]
            payload["name"] = row["name"]
            title = user["username"]
            if several:
                title = row["name"] if room["t"] == "d" else f"#{row['name']}"
            self.world.streams.emit("stream-notify-user", f"{identifier}/notification", {
                "title": title, "text": f"{user['username']}: {text}" if several else text, "payload": payload})

    def ephemeral(self, user, rid, text, **extra):
        """A message that one person sees and nobody keeps."""
        now = self.world.clock.date()
        self.world.streams.emit("stream-notify-user", f"{user['_id']}/message", {
            "groupable": False, "u": {"_id": "rocket.cat", "username": "rocket.cat"}, "private": True,
            "_id": random_id(), "rid": rid, "ts": now, "_updatedAt": now, "msg": text, "md": markup.parse(text),
            **extra})

    def system(self, kind, room, text, user, **extra):
        message = {
            "t": kind, "rid": room["_id"], "ts": self.world.clock.date(), "msg": text,
            "u": self.world.people.short(user), "groupable": False, **extra}
        self.db.put("messages", message)
        self.announce(message)
        room = self.world.rooms.get(room["_id"])
        room["msgs"] += 1
        self.db.put("rooms", room)
        return message

    def post(self, user, body):
        """What chat.postMessage does: one message to each channel that the body names."""
        channels = body.get("channel") or body.get("roomId") or ""
        sent = []
        for channel in dict.fromkeys(channels if isinstance(channels, list) else [channels]):
            room = self.target(user, channel)
            attachments = body.get("attachments")
            attachments = [dict(part) for part in attachments] if isinstance(attachments, list) else []
            for attachment in attachments:
                if attachment.get("msg"):
                    attachment["text"] = attachment.pop("msg").strip()
            message = {
                "alias": body.get("username") or body.get("alias"),
                "msg": (body.get("text") or body.get("msg") or "").strip(), "attachments": attachments,
                "parseUrls": body.get("parseUrls", "attachments" not in body), "bot": body.get("bot"),
                "groupable": body.get("groupable", False), "tmid": body.get("tmid"),
                "customFields": body.get("customFields")}
            avatar = body.get("icon_url") or body.get("avatar")
            message["avatar" if avatar else "emoji"] = avatar or body.get("icon_emoji") or body.get("emoji")
            room = self.world.rooms.sendable(room["_id"], user)
            message = self.send(user, {key: value for key, value in message.items() if value is not None}, room)
            sent.append((channel, message))
        return sent

    def target(self, user, channel):
        people, rooms = self.world.people, self.world.rooms
        if channel.startswith("@"):
            other = people.named(channel[1:]) or people.get(channel[1:])
            if not other:
                raise MeteorError("invalid-channel")
            return rooms.create_direct([user, other])
        name = channel.removeprefix("#")
        room = rooms.get(name) or rooms.named(name)
        if not room and not channel.startswith("#") and (other := people.get(name)):
            return rooms.create_direct([user, other])
        if not room:
            raise MeteorError("invalid-channel")
        if room["t"] == "c" and not rooms.subscription(room["_id"], user["_id"]):
            rooms.join(room, user)
        return room

    # Changing

    def save_and_announce(self, message):
        self.db.put("messages", message)
        room = self.world.rooms.get(message["rid"])
        if room and (room.get("lastMessage") or {}).get("_id") == message["_id"]:
            room["lastMessage"] = message
            self.db.put("rooms", room)
        self.announce(message)

    def keep_history(self, message, user):
        """The hidden copy that Message_KeepHistory keeps of a message before a change; `parent` is its id."""
        copy = {key: value for key, value in message.items() if key != "_id"} | {
            "_hidden": True, "parent": message["_id"], "editedAt": self.world.clock.date(),
            "editedBy": {"_id": user["_id"], "username": user["username"]}}
        self.db.put("messages", copy)

    def update(self, user, changes):
        """What the method updateMessage and chat.update do."""
        method = {"method": "updateMessage"}
        original = self.get(changes.get("_id"))
        if not original:
            return
        for key, value in changes.items():
            # JavaScript compares objects by identity, so that a whole message sent back is refused.
            if key not in EDITABLE and (isinstance(value, (dict, list)) or value != original.get(key)):
                raise MeteorError("error-invalid-update-key", f"Cannot update the message {key}", method)
        first = (original.get("attachments") or [{}])[0]
        # A message with custom fields counts as changed, because the server does not compare them.
        if (first.get("description") or original["msg"]) == changes.get("msg") and not changes.get("customFields"):
            return
        people = self.world.people
        mine = original["u"]["_id"] == user["_id"]
        if not people.may(user, "edit-message", original["rid"]) and not (
                mine and self.world.settings["Message_AllowEditing"]):
            raise MeteorError("error-action-not-allowed", "Message editing not allowed",
                              method | {"action": "Message_editing"})
        text = changes.get("msg")
        self.world.rooms.sendable(original["rid"], user)
        self.check_custom_fields(changes)
        if self.world.settings["Message_KeepHistory"]:
            self.keep_history(original, user)
        message = original | {key: value for key, value in changes.items() if key in EDITABLE}
        if first.get("description") is not None and isinstance(text, str):
            message["attachments"] = [first | {"description": text}, *original["attachments"][1:]]
            message["msg"] = original["msg"]
        message["editedAt"] = self.world.clock.date()
        message["editedBy"] = {"_id": user["_id"], "username": user["username"]}
        self.prepare(message, user)
        self.save_and_announce(message)
        room = self.world.rooms.get(message["rid"])
        if (room.get("lastMessage") or {}).get("_id") == message["_id"]:
            self.world.rooms.emit_room("updated", room)

    def delete(self, user, identifier):
        message = self.get(identifier)
        if not message or not self.may_delete(user, message):
            raise MeteorError("error-action-not-allowed", "Not allowed")
        settings = self.world.settings
        thread = message.get("tcount", 0) > 0
        keep, show = settings["Message_KeepHistory"] or thread, settings["Message_ShowDeletedStatus"] or thread
        if message.get("tmid") and (parent := self.get(message["tmid"])):
            parent["tcount"] = parent.get("tcount", 1) - 1
            if parent["tcount"] <= 0:
                for key in ("tcount", "tlm", "replies"):
                    parent.pop(key, None)
            self.save_and_announce(parent)
        files = message.get("files") or ([message["file"]] if message.get("file") else [])
        if keep and show:
            self.keep_history(message, user)
        elif keep:
            message["_hidden"] = True
            self.db.put("messages", message)
        elif not show:
            self.db.remove("messages", message)
        if not keep:
            for file in files:
                self.world.files.remove(file["_id"])
        if show:
            for key in ("md", "blocks", "tshow", "file", "files"):
                message.pop(key, None)
            message |= {
                "msg": "", "t": "rm", "urls": [], "mentions": [], "attachments": [], "reactions": [],
                "editedAt": self.world.clock.date(),
                "editedBy": {"_id": user["_id"], "username": user["username"]}}
            self.save_and_announce(message)
        else:
            self.world.streams.emit(
                "stream-notify-room", f"{message['rid']}/deleteMessage", {"_id": message["_id"]})
        room = self.world.rooms.get(message["rid"])
        if (room.get("lastMessage") or {}).get("_id") == message["_id"]:
            newest = self.db.first(
                "messages", f"rid = ? AND {VISIBLE} AND json_extract(body, '$.t') IS NULL AND {OUTSIDE_THREADS}",
                room["_id"], order="ts DESC")
            if newest:
                room["lastMessage"] = newest
            else:
                del room["lastMessage"]
        room["msgs"] -= 1
        self.db.put("rooms", room)
        self.world.rooms.emit_room("updated", room)

    def may_delete(self, user, message):
        people, rid = self.world.people, message["rid"]
        if not self.world.rooms.may_access_id(rid, user):
            return False
        if people.may(user, "force-delete-message", rid) or people.may(user, "delete-message", rid):
            return True
        mine = message["u"]["_id"] == user["_id"]
        return mine and self.world.settings["Message_AllowDeleting"] and people.may(user, "delete-own-message")

    def react(self, user, reaction, identifier, should=None):
        method = {"method": "setReaction"}
        name = str(reaction).replace(":", "")
        if name not in markup.EMOJI:
            raise MeteorError("error-not-allowed", "Invalid emoji provided.", method)
        message = self.get(identifier)
        if not message:
            raise MeteorError("error-not-allowed", "Not allowed", method)
        if not self.world.rooms.may_access_id(message["rid"], user):
            raise MeteorError("not-authorized", "Not Authorized", method)
        reactions = message.get("reactions") or {}
        usernames = reactions.get(f":{name}:", {}).get("usernames", [])
        reacted = user["username"] in usernames
        if should is None:
            should = not reacted
        if should == reacted:
            return
        if should:
            reactions[f":{name}:"] = {"usernames": [*usernames, user["username"]]}
        else:
            usernames.remove(user["username"])
            if not usernames:
                del reactions[f":{name}:"]
        message["reactions"] = reactions
        if not reactions:
            del message["reactions"]
        self.save_and_announce(message)

    def star(self, user, identifier, starred):
        message = self.get(identifier)
        if not message:
            raise MeteorError("error-message-not-found",
                              'The provided "messageId" does not match any existing message.')
        if not self.world.rooms.may_access_id(message["rid"], user):
            raise MeteorError("not-authorized", "Not Authorized", {"method": "starMessage"})
        rows = [row for row in message.get("starred", []) if row["_id"] != user["_id"]]
        message["starred"] = [*rows, {"_id": user["_id"]}] if starred else rows
        self.save_and_announce(message)
        return True

    def pin(self, user, identifier):
        message = self.get(identifier)
        if not message:
            raise MeteorError("error-invalid-message", "Message you are pinning was not found",
                              {"method": "pinMessage", "action": "Message_pinning"})
        self.may_pin(user, message, "pinMessage")
        if message.get("pinned"):
            return message
        message["pinned"], message["pinnedAt"] = True, self.world.clock.date()
        message["pinnedBy"] = {"_id": user["_id"], "username": user["username"]}
        self.save_and_announce(message)
        return self.system("message_pinned", {"_id": message["rid"]}, "", user, attachments=[{
            "text": message["msg"], "author_name": message["u"]["username"],
            "author_icon": f"/avatar/{message['u']['username']}", "ts": message["ts"],
            "attachments": message.get("attachments") or []}])

    def unpin(self, user, identifier):
        message = self.get(identifier)
        if not message or not self.world.rooms.subscription(message["rid"], user["_id"]):
            raise MeteorError("error-invalid-message", "Message you are unpinning was not found",
                              {"method": "unpinMessage", "action": "Message_pinning"})
        self.may_pin(user, message, "unpinMessage")
        message["pinned"] = False
        message["pinnedBy"] = {"_id": user["_id"], "username": user["username"]}
        self.save_and_announce(message)
        return True

    def may_pin(self, user, message, method):
        self.world.people.require(
            user, "pin-message", "not-authorized", "Not Authorized", method, message["rid"])
        if not self.world.rooms.may_access_id(message["rid"], user):
            raise MeteorError("not-authorized", "Not Authorized", {"method": method})

    def follow(self, user, identifier, follows):
        message = self.get(identifier)
        if not message:
            raise MeteorError("error-invalid-message", "Invalid message",
                              {"method": "followMessage" if follows else "unfollowMessage"})
        self.world.rooms.require_access(message["rid"], user)
        root = self.get(message.get("tmid")) or message
        rows = [row for row in root.get("replies", []) if row != user["_id"]]
        root["replies"] = [*rows, user["_id"]] if follows else rows
        self.save_and_announce(root)

    def report(self, user, identifier, description):
        message = self.get(identifier)
        if not message:
            raise MeteorError("error-invalid-message_id", "Invalid message id", {"method": "reportMessage"})
        self.world.rooms.require_access(message["rid"], user, "reportMessage")
        self.db.put("reports", {
            "message": message, "description": description, "ts": self.world.clock.date(), "userId": user["_id"],
            "reportedBy": self.world.people.short(user)})
        return True

    # Reading

    def history(self, rid, user, latest=None, oldest=None, inclusive=False, offset=0, count=20, unreads=False,
                threads=True):
        """What channels.history and its kin answer; nil if the user may not read the room."""
        room = self.world.rooms.get(rid)
        if not self.world.rooms.may_access(room, user):
            return None
        latest = latest if latest is not None else self.world.clock.milliseconds()
        where = [f"rid = ? AND {VISIBLE}", f"ts {'<=' if inclusive else '<'} ?"]
        values = [rid, latest]
        if oldest is not None:
            where.append(f"ts {'>=' if inclusive else '>'} ?")
            values.append(oldest)
        if not threads:
            where.append(OUTSIDE_THREADS)
        messages = self.db.find(
            "messages", " AND ".join(where), *values, order="ts DESC", limit=count or -1, offset=offset)
        result = {"messages": messages}
        if unreads:
            result |= self.unread_part(rid, oldest, messages, threads)
        return result

    def unread_part(self, rid, since, messages, threads):
        if since is None or not messages or messages[-1]["ts"]["$date"] <= since:
            return {"unreadNotLoaded": 0}
        where = f"rid = ? AND {VISIBLE} AND ts > ? AND ts < ?" + ("" if threads else f" AND {OUTSIDE_THREADS}")
        where = (where, rid, since, messages[-1]["ts"]["$date"])
        first = self.db.first("messages", *where, order="ts")
        return {"unreadNotLoaded": self.db.count("messages", *where)} | ({"firstUnread": first} if first else {})

    def load_history(self, rid, user, end=None, limit=20, last_seen=None, threads=True):
        room = self.world.rooms.get(rid)
        if not self.world.rooms.may_access(room, user):
            return False
        result = self.history(rid, user, latest=end, count=limit, threads=threads)
        return result | self.unread_part(rid, last_seen, result["messages"], threads)

    def updates(self, rid, since):
        """What changed in a room since a time: chat.syncMessages and messages/get."""
        deleted = self.db.find(
            "trash", "collection = 'messages' AND rid = ? AND deleted > ?", rid, since, order="deleted DESC")
        return {
            "updated": self.db.find("messages", f"rid = ? AND updated > ? AND {VISIBLE}", rid, since, order="ts DESC"),
            "deleted": [{"_id": row["_id"], "_deletedAt": row["_deletedAt"]} for row in deleted]}

    def search(self, user, text, rid=None, limit=20, offset=0):
        """Any word of the text, or what /a regular expression/ fits; `from:NAME` narrows it. Nil without access."""
        if rid and not self.world.rooms.may_access_id(rid, user):
            return None
        if not rid and not self.world.settings["Search.defaultProvider.GlobalSearchEnabled"]:
            return []
        rids = [rid] if rid else [room["_id"] for room in self.world.rooms.of_user(user)]
        author = re.search(r"from:([0-9a-zA-Z._-]+)", text)
        if author:
            text = text.replace(author.group(), "").strip()
        pattern = re.fullmatch(r"/(.+)/([imsx]*)", text)
        try:
            expression = re.compile(pattern[1], re.IGNORECASE) if pattern else None
        except re.error:
            return []
        words = set(re.findall(r"\w+", text.lower()))
        found = []
        for message in self.db.each(
                "messages", f"rid IN ({', '.join('?' * len(rids))}) AND {VISIBLE} AND "
                "coalesce(json_extract(body, '$.t'), '') != 'rm'", *rids, order="ts DESC"):
            name = user["username"] if author and author[1] == "me" else author and author[1]
            if author and message["u"]["username"] != name:
                continue
            present = re.findall(r"\w+", message["msg"].lower())
            if expression and expression.search(message["msg"]):
                found.append(message)
            elif not expression and words & set(present):
                found.append(message | {"score": round(0.5 + 0.5 / len(present), 6)})
            elif not text and author:
                found.append(message)
        return found[offset:offset + limit] if limit else found[offset:]

    def mentioning(self, user, rid):
        return [
            message for message in self.db.find("messages", f"rid = ? AND {VISIBLE}", rid, order="ts DESC")
            if any(row.get("username") == user["username"] for row in message.get("mentions", []))]

    def for_user(self, message, user):
        """The form for one person: others' stars are not shown."""
        if "starred" in message:
            message["starred"] = [row for row in message["starred"] if row["_id"] == user["_id"]]
        return message

    # Discussions

    def count_discussion(self, room):
        """The message that announced a discussion counts its messages."""
        origin = self.db.first(
            "messages", "rid = ? AND json_extract(body, '$.drid') = ?", room["prid"], room["_id"])
        if origin:
            self.save_and_announce(origin | {"dcount": room["msgs"], "dlm": room["lm"]})

    def discuss(self, user, parent_room, name, parent_id=None, reply=None, usernames=(), topic=None):
        self.world.people.require(
            user, "start-discussion", "error-action-not-allowed", "You are not allowed to create a discussion",
            "createDiscussion")
        method = {"method": "DiscussionCreation"}
        origin = self.get(parent_id)
        if parent_id and not origin:
            raise MeteorError("error-invalid-message", "Invalid message", method)
        if origin and origin["rid"] != parent_room["_id"]:
            raise MeteorError("error-invalid-arguments", "Root message room ID does not match parent room ID ", method)
        if parent_room.get("prid"):
            raise MeteorError("error-nested-discussion", "Cannot create nested discussions", method)
        extra = {"prid": parent_room["_id"], "fname": name, "topic": topic or parent_room.get("name")}
        if origin:
            extra["description"] = origin["msg"]
            usernames = [origin["u"]["username"], *usernames]
        room = self.world.rooms.create(
            "c" if parent_room["t"] == "c" else "p", name, user, usernames, extra=extra)
        path = {"c": "channel", "p": "group", "d": "direct"}[parent_room["t"]]
        quotes = {"attachments": [{
            "text": origin["msg"], "authorName": origin["u"]["username"],
            "authorIcon": f"/avatar/{origin['u']['username']}", "ts": origin["ts"],
            "message_link": f"/{path}/{parent_room.get('name', parent_room['_id'])}?msg={origin['_id']}",
            "attachments": origin.get("attachments") or []}]} if origin else {}
        if quotes:
            self.announce(self.db.put("messages", {
                "rid": room["_id"], "msg": "", "u": self.world.people.short(user), "ts": self.world.clock.date(),
                **quotes}))
        self.system("discussion-created", parent_room, name, user, drid=room["_id"], **quotes)
        if reply:
            self.send(user, {"msg": reply}, self.world.rooms.get(room["_id"]))
        return self.world.rooms.get(room["_id"]) | {"rid": room["_id"]}
