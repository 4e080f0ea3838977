"""Rooms and who is in them."""

import json
import re

from .values import MeteorError, object_id, parse_time, random_id

HIDDEN_ROOM_FIELDS = ("joinCode", "members", "importIds", "e2e")
TEXT_SETTINGS = {
    "roomTopic": ("topic", "room_changed_topic"),
    "roomAnnouncement": ("announcement", "room_changed_announcement"),
    "roomDescription": ("description", "room_changed_description"),
}


class Rooms:
    def __init__(self, world):
        self.world = world
        self.db = world.db

    # Finding

    def get(self, rid):
        return self.db.get("rooms", rid) if isinstance(rid, str) else None

    def named(self, name):
        return self.db.first("rooms", "name = ?", name) if isinstance(name, str) else None

    def subscription(self, rid, user_id):
        return self.db.first("subscriptions", "rid = ? AND uid = ?", rid, user_id)

    def subscriptions(self, rid):
        return self.db.find("subscriptions", "rid = ?", rid)

    def of_user(self, user):
        return self.db.find(
            "rooms", "_id IN (SELECT rid FROM subscriptions WHERE uid = ?)", user["_id"])

    def may_access(self, room, user):
        if not room:
            return False
        if self.subscription(room["_id"], user["_id"]):
            return True
        return room["t"] == "c" and self.world.people.may(user, "view-c-room")

    def may_access_id(self, rid, user):
        return self.may_access(self.get(rid), user)

    def require_access(self, rid, user, method=None):
        room = self.get(rid)
        if not self.may_access(room, user):
            raise MeteorError("error-not-allowed", "Not allowed", {"method": method} if method else None)
        return room

    def sendable(self, rid, user):
        """The room, if a user may send to it."""
        room = self.get(rid)
        if not room:
            raise MeteorError(None, "error-invalid-room")
        if not self.may_access(room, user):
            raise MeteorError(None, "error-not-allowed")
        if room.get("ro") and not self.world.people.may(user, "post-readonly", rid):
            raise MeteorError(None, "You can't send messages because the room is readonly.")
        if user["username"] in room.get("muted", []):
            raise MeteorError(None, "You_have_been_muted")
        return room

    def public(self, room):
        return {key: value for key, value in room.items() if key not in HIDDEN_ROOM_FIELDS}

    # Making

    def create(self, kind, name, owner, members=(), read_only=False, extra=None, method="createChannel"):
        self.world.people.require(owner, f"create-{kind}", method=method)
        if not isinstance(name, str) or not name.strip():
            raise MeteorError("error-invalid-name", "Invalid name", {"function": "RocketChat.createRoom"})
        discussion = bool(extra and extra.get("prid"))
        if not discussion:
            self.check_name(name.strip())
        now = self.world.clock.date()
        room = {
            "_id": object_id(), "fname": name, "name": name if not discussion else random_id(), "t": kind, "msgs": 0,
            "usersCount": 0, "u": self.world.people.short(owner), "ts": now, "ro": bool(read_only),
            "default": False, "sysMes": True} | (extra or {})
        self.db.put("rooms", room)
        usernames = list(dict.fromkeys([*members, owner["username"]]))
        for user in self.world.people.db.find(
                "users", f"username IN ({', '.join('?' * len(usernames))})", *usernames):
            mine = {"roles": ["owner"], "ls": now} if user["_id"] == owner["_id"] else {}
            self.subscribe(room, user, **mine)
        return self.get(room["_id"])

    def check_name(self, name, room=None):
        if not re.fullmatch(r"[0-9a-zA-Z._-]+", name):
            raise MeteorError("error-invalid-room-name", f"{name} is not a valid room name.",
                              {"function": "RocketChat.getValidRoomName", "channel_name": name})
        if (found := self.named(name)) and found["_id"] != (room or {}).get("_id"):
            raise MeteorError("error-duplicate-channel-name", f"A channel with name '{name}' exists",
                              {"function": "RocketChat.getValidRoomName", "channel_name": name})

    def create_direct(self, users):
        """The conversation of some people; there is one for the same people."""
        users = list({user["_id"]: user for user in users}.values())
        identifiers = sorted(user["_id"] for user in users)
        room = self.db.first(
            "rooms", "t = 'd' AND json_extract(body, '$.uids') = json(?)",
            json.dumps(identifiers, separators=(",", ":")))
        if not room:
            ordered = sorted(users, key=lambda user: user["name"].lower())
            room = self.db.put("rooms", {
                "_id": "".join(identifiers) if len(identifiers) == 2 else object_id(), "t": "d", "msgs": 0,
                "ts": self.world.clock.date(), "uids": identifiers,
                "usernames": [user["username"] for user in ordered], "usersCount": len(identifiers)})
            for user in users:
                others = [other for other in ordered if other is not user] or [user]
                self.subscribe(
                    room, user, counted=True, _id=random_id(), open=user is users[0] or len(users) > 2,
                    name=", ".join(other["username"] for other in others),
                    fname=", ".join(other["name"] for other in others))
        return room

    def subscribe(self, room, user, counted=False, **extra):
        now = self.world.clock.date()
        subscription = {
            "_id": object_id(), "open": True, "alert": False, "unread": 0, "userMentions": 0, "groupMentions": 0,
            "ts": now, "rid": room["_id"], "name": room.get("name"), "fname": room.get("fname"), "t": room["t"],
            "u": self.world.people.short(user)}
        if room.get("prid"):
            subscription["prid"] = room["prid"]
        self.db.put("subscriptions", subscription | extra)
        if not counted:
            room = self.get(room["_id"])
            room["usersCount"] += 1
            self.db.put("rooms", room)
        self.emit_subscription("inserted", self.subscription(room["_id"], user["_id"]))
        self.emit_room("inserted", room, only=user["_id"])

    # Events

    def emit_room(self, action, room, only=None):
        """`rooms-changed` to those who are in it, as the streamer of the server does."""
        for row in self.subscriptions(room["_id"]):
            identifier = row["u"]["_id"]
            if only is None or identifier == only:
                self.world.streams.emit(
                    "stream-notify-user", f"{identifier}/rooms-changed", action, self.public(room))
        if only is None:
            self.world.streams.emit("stream-room-data", room["_id"], self.public(room))

    def emit_subscription(self, action, subscription):
        identifier = subscription["u"]["_id"]
        self.world.streams.emit("stream-notify-user", f"{identifier}/subscriptions-changed", action, subscription)

    def save_subscription(self, subscription):
        self.db.put("subscriptions", subscription)
        self.emit_subscription("updated", subscription)

    # Members

    def members(self, room):
        rows = self.subscriptions(room["_id"])
        users = [self.world.people.get(row["u"]["_id"]) for row in rows]
        return sorted((user for user in users if user), key=lambda user: user["username"])

    def join(self, room, user, code=None):
        if room["t"] != "c":
            raise MeteorError("error-not-allowed", "Not allowed", {"method": "joinRoom"})
        if room.get("joinCode") and code != room["joinCode"]:
            raise MeteorError("error-code-invalid", "Invalid Room Password", {"method": "joinRoom"})
        self.add(room, user)

    def add(self, room, user, inviter=None):
        if self.subscription(room["_id"], user["_id"]):
            return
        self.subscribe(room, user, alert=True, unread=1, userMentions=1)
        if inviter:
            self.world.messages.system("au", room, user["username"], inviter)
        else:
            self.world.messages.system("ut" if room.get("prid") else "uj", room, user["username"], user)

    def invite(self, room, inviter, users):
        if room["t"] == "d":
            raise MeteorError("error-cant-invite-for-direct-room", "Can't invite user to direct rooms",
                              {"method": "addUsersToRoom"})
        people = self.world.people
        inside = self.subscription(room["_id"], inviter["_id"])
        allowed = (inside and people.may(inviter, "add-user-to-joined-room", room["_id"])) or (
            room["t"] == "c" and people.may(inviter, "add-user-to-any-c-room"))
        if not allowed:
            raise MeteorError("error-not-allowed", "Not allowed", {"method": "addUsersToRoom"})
        for user in users:
            self.add(room, user, inviter)

    def kick(self, room, by, user):
        self.world.people.require(by, "remove-user", method="removeUserFromRoom", rid=room["_id"])
        if not self.subscription(room["_id"], user["_id"]):
            raise MeteorError("error-user-not-in-room", "User is not in this room", {"method": "removeUserFromRoom"})
        self.check_last_owner(room, user, "removeUserFromRoom")
        self.unsubscribe(room, user)
        self.world.messages.system("ru", room, user["username"], by)

    def leave(self, room, user):
        if room["t"] == "d":
            raise MeteorError("error-not-allowed", "Not allowed", {"method": "leaveRoom"})
        if not self.subscription(room["_id"], user["_id"]):
            raise MeteorError("error-user-not-in-room", "You are not in this room", {"method": "leaveRoom"})
        self.check_last_owner(room, user, "leaveRoom")
        self.world.messages.system("ul", room, user["username"], user)
        self.unsubscribe(room, user)

    def check_last_owner(self, room, user, method):
        owners = [row for row in self.subscriptions(room["_id"]) if "owner" in row.get("roles", [])]
        if len(owners) == 1 and owners[0]["u"]["_id"] == user["_id"]:
            raise MeteorError("error-you-are-last-owner",
                              "You are the last owner. Please set new owner before leaving the room.",
                              {"method": method})

    def unsubscribe(self, room, user):
        subscription = self.subscription(room["_id"], user["_id"])
        self.db.remove("subscriptions", subscription)
        room = self.get(room["_id"])
        room["usersCount"] -= 1
        self.db.put("rooms", room)
        self.emit_subscription("removed", {key: subscription[key] for key in ("_id", "u", "rid", "t")})
        self.world.end_room_stream(room["_id"], user["_id"])

    def set_role(self, room, by, user, role, has):
        self.world.people.require(by, f"set-{role}", method=f"addRoom{role.title()}", rid=room["_id"])
        subscription = self.subscription(room["_id"], user["_id"])
        if not subscription:
            raise MeteorError("error-user-not-in-room", "User is not in this room",
                              {"method": f"addRoom{role.title()}"})
        roles = subscription.get("roles", [])
        if (role in roles) == has:
            state = "already" if has else "not"
            raise MeteorError(f"error-user-{state}-{role}", f"User is {state} {'an' if role == 'owner' else 'a'} {role}",
                              {"method": f"addRoom{role.title()}"})
        if role == "owner" and not has:
            self.check_last_owner(room, user, "removeRoomOwner")
        subscription["roles"] = [*roles, role] if has else [part for part in roles if part != role]
        self.save_subscription(subscription)
        self.world.messages.system(
            "subscription-role-added" if has else "subscription-role-removed", room, user["username"], by, role=role)

    # Settings of a room

    def save(self, room, user, setting, value):
        """One setting of `saveRoomSettings`."""
        rid = room["_id"]
        if not self.world.people.may(user, "edit-room", rid) and room["t"] != "d":
            raise MeteorError("error-action-not-allowed", "Editing room is not allowed",
                              {"method": "saveRoomSettings", "action": "Editing_room"})
        if setting in TEXT_SETTINGS:
            field, kind = TEXT_SETTINGS[setting]
            if (value or "") == room.get(field, ""):
                return
            room[field] = value or ""
            self.db.put("rooms", room)
            self.emit_room("updated", room)
            self.world.messages.system(kind, room, room[field], user)
        elif setting == "roomName":
            if value == room.get("fname"):
                return
            self.check_name(value, room)
            room["name"] = room["fname"] = value
            self.db.put("rooms", room)
            for row in self.subscriptions(rid):
                self.save_subscription(row | {"name": value, "fname": value})
            self.emit_room("updated", room)
            self.world.messages.system("r", room, value, user)
        elif setting == "readOnly":
            room["ro"] = bool(value)
            self.db.put("rooms", room)
            self.emit_room("updated", room)
            self.world.messages.system("room-set-read-only" if value else "room-removed-read-only", room, "", user)
        elif setting == "roomType":
            room["t"] = value
            self.db.put("rooms", room)
            for row in self.subscriptions(rid):
                self.save_subscription(row | {"t": value})
            self.world.messages.system(
                "room_changed_privacy", room, "Private" if value == "p" else "Channel", user)
        elif setting in ("joinCode", "default", "roomCustomFields", "systemMessages"):
            room[{"roomCustomFields": "customFields", "systemMessages": "sysMes"}.get(setting, setting)] = value
            self.db.put("rooms", room)
            self.emit_room("updated", room)
        else:
            raise MeteorError("error-invalid-settings", "Invalid settings provided", {"method": "saveRoomSettings"})

    def archive(self, room, user, archived):
        self.world.people.require(
            user, "archive-room" if archived else "unarchive-room", "error-not-authorized", "Not authorized",
            "archiveRoom" if archived else "unarchiveRoom", room["_id"])
        room["archived"] = archived
        self.db.put("rooms", room)
        for row in self.subscriptions(room["_id"]):
            self.save_subscription(row | {"archived": archived, "open": not archived})
        self.world.messages.system("room-archived" if archived else "room-unarchived", room, "", user)

    def erase(self, room, user):
        self.world.people.require(user, f"delete-{room['t']}", method="eraseRoom", rid=room["_id"])
        rid = room["_id"]
        for row in self.subscriptions(rid):
            self.db.remove("subscriptions", row)
            self.emit_subscription("removed", {key: row[key] for key in ("_id", "u", "rid", "t")})
            self.world.end_room_stream(rid, row["u"]["_id"])
        for message in self.db.find("messages", "rid = ?", rid):
            self.db.remove("messages", message)
        for upload in self.db.find("uploads", "rid = ?", rid):
            self.world.files.remove(upload["_id"])
        self.db.remove("rooms", room)

    def set_open(self, room, user, opened):
        subscription = self.subscription(room["_id"], user["_id"])
        if not subscription:
            raise MeteorError("error-invalid-room", "Invalid room", {"method": "openRoom" if opened else "hideRoom"})
        self.save_subscription(subscription | {"open": opened})

    # Reading

    def read(self, rid, user):
        subscription = self.subscription(rid, user["_id"])
        if not subscription:
            raise MeteorError("error-invalid-subscription", "Invalid subscription", {"method": "readMessages"})
        self.save_subscription(subscription | {
            "open": True, "alert": False, "unread": 0, "userMentions": 0, "groupMentions": 0, "tunread": [],
            "ls": self.world.clock.date()})

    def unread(self, user, rid=None, first_unread=None):
        if rid:
            newest = self.db.first(
                "messages", "rid = ? AND json_extract(body, '$.t') IS NULL", rid, order="ts DESC")
            if not newest:
                raise MeteorError("error-no-message-for-unread", "There are no messages to mark unread",
                                  {"method": "unreadMessages", "action": "Unread_messages"})
            moment = newest["ts"]
        else:
            message = self.db.get("messages", (first_unread or {}).get("_id"))
            if not message:
                raise MeteorError("error-action-not-allowed", "Not allowed",
                                  {"method": "unreadMessages", "action": "Unread_messages"})
            rid, moment = message["rid"], message["ts"]
        subscription = self.subscription(rid, user["_id"])
        if not subscription:
            raise MeteorError("error-invalid-subscription", "Invalid subscription", {"method": "unreadMessages"})
        self.save_subscription(subscription | {
            "open": True, "alert": True, "ls": {"$date": moment["$date"] - 1},
            "unread": max(1, subscription["unread"])})

    # Changes since a time

    def rooms_since(self, user, moment):
        since = parse_time(moment) if moment else None
        rooms = [self.public(room) for room in self.of_user(user)]
        if since is None:
            return rooms
        removed = self.db.find(
            "trash", "collection = 'rooms' AND deleted > ?", since)
        mine = [row for row in removed if user["_id"] in row.get("uids", [user["_id"]])]
        return {
            "update": [room for room in rooms if room["_updatedAt"]["$date"] > since],
            "remove": [{"_id": row["_id"], "_deletedAt": row["_deletedAt"]} for row in mine]}

    def subscriptions_since(self, user, moment):
        since = parse_time(moment) if moment else None
        rows = self.db.find("subscriptions", "uid = ?", user["_id"])
        if since is None:
            return rows
        removed = self.db.find("trash", "collection = 'subscriptions' AND deleted > ?", since)
        return {
            "update": [row for row in rows if row["_updatedAt"]["$date"] > since],
            "remove": [{"_id": row["_id"], "_deletedAt": row["_deletedAt"]}
                       for row in removed if row["u"]["_id"] == user["_id"]]}

    def spotlight(self, user, text):
        wanted = text.lstrip("#@").lower()
        rooms, users = [], []
        if not text.startswith("@"):
            rooms = [
                {key: room.get(key) for key in ("_id", "name", "fname", "t", "lastMessage") if room.get(key)}
                for room in self.db.find("rooms", "t IN ('c', 'p')", order="name")
                if wanted in (room["name"] + (room["fname"] or "")).lower() and self.may_access(room, user)][:5]
        if not text.startswith("#"):
            users = [
                self.world.people.short(other) | {"status": other["status"], "statusText": other.get("statusText", "")}
                for other in self.db.find("users", order="username")
                if wanted in (other["username"] + " " + other["name"]).lower()][:5]
        return {"users": users, "rooms": rooms}

