"""Channels: open, private, direct and group; their members, headers, unread counters."""

import hashlib
import re

from .errors import APIError, forbidden, invalid_body, unreadable
from .hub import Event
from .store import is_id, new_id
from .users import marks
from .wire import Routes, answer, encode, ok, typed

routes = Routes()

NAME = re.compile(r"[a-z0-9][a-z0-9_\-]{0,63}")
DISPLAY_NAME_MAXIMUM, HEADER_MAXIMUM, PURPOSE_MAXIMUM = 64, 1024, 250
GROUP_MINIMUM, GROUP_MAXIMUM = 3, 8
DEFAULT_CHANNEL = "town-square"

DEFAULT_NOTIFY_PROPS = {
    "channel_auto_follow_threads": "off", "desktop": "default", "email": "default",
    "ignore_channel_mentions": "default", "mark_unread": "all", "push": "default",
}
NOTIFY_PROPS = {
    *DEFAULT_NOTIFY_PROPS, "desktop_sound", "desktop_notification_sound", "desktop_threads", "push_threads"
}


def channel_json(channel):
    return {
        "id": channel["id"], "create_at": channel["create_at"], "update_at": channel["update_at"],
        "delete_at": channel["delete_at"], "team_id": channel["team_id"], "type": channel["type"],
        "display_name": channel["display_name"], "name": channel["name"], "header": channel["header"],
        "purpose": channel["purpose"], "last_post_at": channel["last_post_at"],
        "total_msg_count": channel["total_msg_count"], "extra_update_at": 0, "creator_id": channel["creator_id"],
        "scheme_id": None, "props": None, "group_constrained": None, "autotranslation": False, "shared": None,
        "total_msg_count_root": channel["total_msg_count_root"], "policy_id": None,
        "last_root_post_at": channel["last_root_post_at"], "banner_info": None, "policy_enforced": False,
        "policy_is_active": False, "default_category_name": "",
    }


def member_json(member, viewer_id):
    """Another member's times are hidden."""
    is_own = member["user_id"] == viewer_id
    return {
        "channel_id": member["channel_id"], "user_id": member["user_id"],
        "roles": "channel_user channel_admin" if member["scheme_admin"] else "channel_user",
        "last_viewed_at": member["last_viewed_at"] if is_own else -1, "msg_count": member["msg_count"],
        "mention_count": member["mention_count"], "mention_count_root": member["mention_count_root"],
        "urgent_mention_count": 0, "msg_count_root": member["msg_count_root"],
        "notify_props": dict(sorted(member["notify_props"].items())),
        "last_update_at": member["last_update_at"] if is_own else -1, "scheme_guest": False, "scheme_user": True,
        "scheme_admin": bool(member["scheme_admin"]), "explicit_roles": "", "autotranslation_disabled": False,
    }


class Channels:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def save(self, team_id, kind, name, display_name, creator_id="", header="", purpose=""):
        self.check(name, display_name, header, purpose)
        now = self.store.now()
        channel = {
            "id": new_id(), "create_at": now, "update_at": now, "delete_at": 0, "team_id": team_id, "type": kind,
            "display_name": display_name, "name": name, "header": header, "purpose": purpose, "last_post_at": 0,
            "total_msg_count": 0, "creator_id": creator_id, "total_msg_count_root": 0, "last_root_post_at": 0,
        }
        self.store.insert("channels", channel)
        return channel

    @staticmethod
    def check(name, display_name, header, purpose):
        if len(display_name) > DISPLAY_NAME_MAXIMUM:
            raise APIError(400, "model.channel.is_valid.display_name.app_error")
        if not NAME.fullmatch(name):
            raise APIError(400, "model.channel.is_valid.name.app_error")
        if len(header) > HEADER_MAXIMUM:
            raise APIError(400, "model.channel.is_valid.header.app_error")
        if len(purpose) > PURPOSE_MAXIMUM:
            raise APIError(400, "model.channel.is_valid.purpose.app_error")

    def save_member(self, channel, user_id, is_admin=False):
        """New members have read what stands there; of direct and group channels, nothing."""
        is_read = channel["type"] in "OP"
        self.store.insert("channel_members", {
            "channel_id": channel["id"], "user_id": user_id, "last_viewed_at": 0,
            "msg_count": channel["total_msg_count"] if is_read else 0, "mention_count": 0, "mention_count_root": 0,
            "msg_count_root": channel["total_msg_count_root"] if is_read else 0,
            "notify_props": dict(DEFAULT_NOTIFY_PROPS), "last_update_at": self.store.now(),
            "scheme_admin": int(is_admin),
        })

    def member_ids(self, channel_id):
        return [row["user_id"] for row in self.store.all(
            "SELECT user_id FROM channel_members WHERE channel_id = ? ORDER BY rowid", channel_id)]

    def mark_viewed(self, user_id, channel_ids):
        """Marks channels as read. Returns the time of the last post of each, and tells the user's own connections."""
        times, unread = {}, []
        for channel_id in channel_ids:
            channel = self.store.one("SELECT * FROM channels WHERE id = ?", channel_id)
            member = self.server.access.member(channel_id, user_id)
            if channel is None or member is None:
                continue
            times[channel_id] = max(channel["last_post_at"], member["last_viewed_at"])
            if channel["total_msg_count"] > member["msg_count"] or member["mention_count"]:
                unread.append(channel_id)
            self.store.update("channel_members", {"channel_id": channel_id, "user_id": user_id}, {
                "msg_count": channel["total_msg_count"], "msg_count_root": channel["total_msg_count_root"],
                "mention_count": 0, "mention_count_root": 0, "last_viewed_at": times[channel_id],
                "last_update_at": times[channel_id],
            })
        if unread:
            self.server.hub.publish(Event(
                "multiple_channels_viewed", {"channel_times": dict(sorted(times.items()))}, user_id=user_id))
        return dict(sorted(times.items()))

    def change(self, channel, changes, user, announces=True):
        """Changes name, header or purpose, tells the members and posts what has changed, old text and new."""
        new = channel | changes
        self.check(new["name"], new["display_name"], new["header"], new["purpose"])
        taken = self.store.one(
            "SELECT id FROM channels WHERE team_id = ? AND name = ?", new["team_id"], new["name"])
        if taken and taken["id"] != channel["id"]:
            raise APIError(400, "store.sql_channel.save_channel.exists.app_error")
        new["update_at"] = self.store.now()
        self.store.update("channels", {"id": channel["id"]}, {
            name: new[name] for name in ("name", "display_name", "header", "purpose", "update_at")})
        self.server.hub.publish(Event(
            "channel_updated", {"channel": encode(channel_json(new))}, channel_id=channel["id"]))
        if announces:
            self.announce(channel, new, user)
        return self.server.access.channel(channel["id"])

    def announce(self, old, new, user):
        for name, key, kind, word in (
            ("display_name", "displayname", "system_displayname_change", "display name"),
            ("header", "header", "system_header_change", "header"),
            ("purpose", "purpose", "system_purpose_change", "purpose"),
        ):
            if old[name] == new[name]:
                continue
            if not old[name]:
                text = f"{user['username']} set the channel {word} to: {new[name]}"
            elif not new[name]:
                text = f"{user['username']} removed the channel {word} (was: {old[name]})"
            else:
                text = f"{user['username']} changed the channel {word} from: {old[name]} to: {new[name]}"
            self.server.posts.system(
                new, user, kind, text,
                {"username": user["username"], f"old_{key}": old[name], f"new_{key}": new[name]})

    def direct(self, user_id, other_id):
        """The direct channel of two users, made if there is none."""
        name = "__".join(sorted((user_id, other_id)))
        channel = self.store.one("SELECT * FROM channels WHERE type = 'D' AND name = ?", name)
        if channel:
            return channel
        with self.store.transaction():
            channel = self.save("", "D", name, "", creator_id=user_id)
            for id in dict.fromkeys((user_id, other_id)):
                self.save_member(channel, id)
        self.server.hub.publish(Event(
            "direct_added", {"creator_id": user_id, "teammate_id": other_id}, channel_id=channel["id"]))
        return channel


# Making and reading

@routes.on("POST", "/channels")
async def create_channel(call):
    body = await call.body("channel")
    team_id, kind = typed(body, "team_id", str, "", "channel"), typed(body, "type", str, "", "channel")
    display_name, name = typed(body, "display_name", str, "", "channel"), typed(body, "name", str, "", "channel")
    if not team_id:
        raise invalid_body("team_id")
    if not display_name:
        raise invalid_body("display_name")
    if kind not in ("O", "P"):
        raise APIError(400, "model.channel.is_valid.type.app_error")
    if not call.access.may_view_team(team_id, call.user_id):
        raise forbidden()
    if call.store.one("SELECT id FROM channels WHERE team_id = ? AND name = ?", team_id, name):
        raise APIError(400, "store.sql_channel.save_channel.exists.app_error")
    with call.store.transaction():
        channel = call.server.channels.save(
            team_id, kind, name, display_name, call.user_id, typed(body, "header", str, "", "channel"),
            typed(body, "purpose", str, "", "channel"))
        call.server.channels.save_member(channel, call.user_id, is_admin=True)
    user = call.access.user(call.user_id)
    call.server.posts.system(
        channel, user, "system_join_channel", f"{user['username']} joined the channel.",
        {"username": user["username"]})
    call.hub.publish(Event(
        "channel_created", {"channel_id": channel["id"], "team_id": team_id}, user_id=call.user_id))
    return answer(channel_json(channel), 201)


@routes.on("POST", "/channels/direct")
async def create_direct(call):
    body = await call.json(unreadable())
    if not isinstance(body, list):
        raise unreadable()
    ids = body * 2 if body == [call.user_id] else body
    if len(ids) != 2:
        raise invalid_body("user_ids")
    if not all(is_id(id) for id in ids):
        raise invalid_body("user_id")
    if call.user_id not in ids and not call.access.is_admin(call.user_id):
        raise forbidden()
    for id in ids:
        if call.store.one("SELECT id FROM users WHERE id = ?", id) is None:
            raise APIError(400, "api.channel.create_direct_channel.invalid_user.app_error")
    return answer(channel_json(call.server.channels.direct(*ids)), 201)


@routes.on("POST", "/channels/group")
async def create_group(call):
    ids = await call.array("user_ids")
    if not all(is_id(id) for id in ids):
        raise invalid_body("user_id")
    ids = list(dict.fromkeys([*ids, call.user_id]))
    if not GROUP_MINIMUM <= len(ids) <= GROUP_MAXIMUM:
        raise APIError(400, "api.channel.create_group.bad_size.app_error")
    users = call.store.all(f"SELECT * FROM users WHERE id IN ({marks(ids)}) ORDER BY username", *ids)
    if len(users) != len(ids):
        raise APIError(400, "api.channel.create_group.bad_user.app_error")
    name = hashlib.sha1("".join(sorted(ids)).encode()).hexdigest()
    channel = call.store.one("SELECT * FROM channels WHERE type = 'G' AND name = ?", name)
    if channel is None:
        display_name = ", ".join(user["username"] for user in users)[:DISPLAY_NAME_MAXIMUM]
        with call.store.transaction():
            channel = call.server.channels.save("", "G", name, display_name, creator_id=call.user_id)
            for id in ids:
                call.server.channels.save_member(channel, id)
        for id in ids:
            call.hub.publish(Event(
                "group_added", {"teammate_ids": encode(ids)}, channel_id=channel["id"], user_id=id))
    return answer(channel_json(channel), 201)


@routes.on("GET", "/channels/{channel_id}")
async def get_channel(call):
    return answer(channel_json(call.access.require_read(call, call.id("channel_id"))))


async def _by_name(call, team):
    if team is None:
        raise APIError(404, "app.team.get_by_name.missing.app_error")
    channel = call.store.one(
        "SELECT * FROM channels WHERE team_id = ? AND name = ?", team["id"], call.text("channel_name").lower())
    if channel is None or (channel["delete_at"] and not call.flag("include_deleted")):
        raise APIError(404, "app.channel.get_by_name.missing.app_error")
    # Who may not read it does not learn that it exists.
    if not call.access.may_read(channel, call.user_id):
        raise APIError(404, "app.channel.get_by_name.missing.app_error")
    return answer(channel_json(channel))


@routes.on("GET", "/teams/{team_id}/channels/name/{channel_name}")
async def get_by_name(call):
    return await _by_name(call, call.access.team(call.id("team_id")))


@routes.on("GET", "/teams/name/{name}/channels/name/{channel_name}")
async def get_by_team_name(call):
    return await _by_name(call, call.store.one("SELECT * FROM teams WHERE name = ?", call.text("name").lower()))


def _listed(call, condition, *values):
    rows = call.store.all(
        f"SELECT * FROM channels WHERE {condition} ORDER BY display_name LIMIT ? OFFSET ?", *values, call.per_page,
        call.page * call.per_page)
    return answer([channel_json(row) for row in rows])


@routes.on("GET", "/teams/{team_id}/channels")
async def public_channels(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    return _listed(call, "team_id = ? AND type = 'O' AND delete_at = 0", team_id)


@routes.on("GET", "/teams/{team_id}/channels/deleted")
async def deleted_channels(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    return _listed(
        call, "team_id = ? AND delete_at > 0 AND (type = 'O' OR id IN"
        " (SELECT channel_id FROM channel_members WHERE user_id = ?))", team_id, call.user_id)


@routes.on("POST", "/teams/{team_id}/channels/ids")
async def channels_by_ids(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    ids = (await call.array("channel_ids"))[:1000]
    rows = call.store.all(
        f"SELECT * FROM channels WHERE team_id = ? AND type = 'O' AND delete_at = 0 AND id IN ({marks(ids)})"
        " ORDER BY display_name", team_id, *ids)
    return answer([channel_json(row) for row in rows])


def _matching(call, team_id, term):
    call.access.require_team(call, team_id)
    pattern = "%" + term.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    rows = call.store.all(
        "SELECT * FROM channels WHERE team_id = ?1 AND delete_at = 0 AND (name LIKE ?2 ESCAPE '\\' OR display_name"
        " LIKE ?2 ESCAPE '\\' OR purpose LIKE ?2 ESCAPE '\\') AND (type = 'O' OR id IN"
        " (SELECT channel_id FROM channel_members WHERE user_id = ?3)) ORDER BY display_name LIMIT 100", team_id,
        pattern, call.user_id)
    return answer([channel_json(row) for row in rows])


@routes.on("POST", "/teams/{team_id}/channels/search")
async def search_channels(call):
    body = await call.body("channel_search")
    return _matching(call, call.id("team_id"), typed(body, "term", str, "", "channel_search"))


@routes.on("GET", "/teams/{team_id}/channels/autocomplete")
async def autocomplete_channels(call):
    return _matching(call, call.id("team_id"), call.query.get("name", ""))


@routes.on("GET", "/users/{user_id}/teams/{team_id}/channels")
async def channels_of_user(call):
    """Also the direct and group channels, which are in no team."""
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    rows = call.store.all(
        "SELECT * FROM channels WHERE id IN (SELECT channel_id FROM channel_members WHERE user_id = ?)"
        " AND team_id IN (?, '') AND (delete_at = 0 OR ?) ORDER BY display_name, create_at", user_id, team_id,
        call.flag("include_deleted"))
    return answer([channel_json(row) for row in rows])


@routes.on("GET", "/users/{user_id}/channels")
async def all_channels_of_user(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all(
        "SELECT * FROM channels WHERE id IN (SELECT channel_id FROM channel_members WHERE user_id = ?)"
        " AND delete_at = 0 ORDER BY display_name, create_at", user_id)
    return answer([channel_json(row) for row in rows])


@routes.on("GET", "/channels/{channel_id}/stats")
async def stats(call):
    channel = call.access.require_read(call, call.id("channel_id"))
    pinned = call.store.value(
        "SELECT COUNT(*) FROM posts WHERE channel_id = ? AND is_pinned AND delete_at = 0", channel["id"])
    files = call.store.value(
        "SELECT COUNT(*) FROM files WHERE channel_id = ? AND post_id != '' AND delete_at = 0", channel["id"])
    return answer({
        "channel_id": channel["id"], "member_count": len(call.server.channels.member_ids(channel["id"])),
        "guest_count": 0, "pinnedpost_count": pinned, "files_count": files,
    })


# Changing

def _may_change(call, channel):
    if channel["type"] in "DG":
        if call.access.member(channel["id"], call.user_id) is None:
            raise APIError(403, "api.channel.patch_update_channel.forbidden.app_error")
    else:
        call.access.require_post(call, channel["id"])


@routes.on("PUT", "/channels/{channel_id}/patch")
async def patch_channel(call):
    body = await call.body("channel")
    channel = call.access.channel(call.id("channel_id"))
    names = ("display_name", "name", "header", "purpose")
    changes = {name: typed(body, name, str, "", name) for name in names if body.get(name) is not None}
    if not changes:
        raise APIError(400, "api.channel.patch_update_channel.no_changes.app_error")
    _may_change(call, channel)
    if channel["type"] in "DG" and any(
        changes.get(name, channel[name]) != channel[name] for name in ("name", "display_name", "purpose")
    ):
        raise APIError(
            400, "api.channel.patch_update_channel.update_direct_or_group_messages_not_allowed.app_error")
    if channel["name"] == DEFAULT_CHANNEL and changes.get("name", channel["name"]) != channel["name"]:
        raise APIError(400, "api.channel.update_channel.tried.app_error")
    return answer(channel_json(call.server.channels.change(channel, changes, call.access.user(call.user_id))))


@routes.on("PUT", "/channels/{channel_id}")
async def update_channel(call):
    """The whole channel: a header or purpose that is left out is emptied. Only a new display name is posted."""
    body = await call.body("channel")
    if body.get("id") != call.id("channel_id"):
        raise invalid_body("channel_id")
    channel = call.access.channel(body["id"])
    _may_change(call, channel)
    name, display_name = typed(body, "name", str, "", "name"), typed(body, "display_name", str, "", "display_name")
    header, purpose = typed(body, "header", str, "", "header"), typed(body, "purpose", str, "", "purpose")
    if channel["type"] in "DG" and (
        name not in ("", channel["name"]) or display_name not in ("", channel["display_name"])
        or purpose != channel["purpose"]
    ):
        raise APIError(400, "api.channel.update_channel.update_direct_or_group_messages_not_allowed.app_error")
    if channel["delete_at"]:
        raise APIError(400, "api.channel.update_channel.deleted.app_error")
    if typed(body, "type", str, "", "type") not in ("", channel["type"]):
        raise APIError(400, "api.channel.update_channel.typechange.app_error")
    if channel["name"] == DEFAULT_CHANNEL and name not in ("", channel["name"]):
        raise APIError(400, "api.channel.update_channel.tried.app_error")
    changes = {
        "name": name or channel["name"], "display_name": display_name or channel["display_name"], "header": header,
        "purpose": purpose,
    }
    user = call.access.user(call.user_id)
    new = call.server.channels.change(channel, changes, user, announces=False)
    if display_name != channel["display_name"]:
        call.server.channels.announce(channel, channel | {"display_name": display_name}, user)
    return answer(channel_json(new))


@routes.on("DELETE", "/channels/{channel_id}")
async def delete_channel(call):
    channel = call.access.channel(call.id("channel_id"))
    if channel["type"] in "DG":
        raise APIError(400, "api.channel.delete_channel.type.invalid")
    call.access.require_post(call, channel["id"])
    if channel["delete_at"]:
        raise APIError(400, "api.channel.delete_channel.deleted.app_error")
    if channel["name"] == DEFAULT_CHANNEL:
        raise APIError(400, "api.channel.delete_channel.cannot.app_error")
    user = call.access.user(call.user_id)
    call.server.posts.system(
        channel, user, "system_channel_deleted", f"{user['username']} archived the channel.",
        {"username": user["username"]})
    now = call.store.now()
    call.store.update("channels", {"id": channel["id"]}, {"delete_at": now, "update_at": now})
    scope = {"team_id": channel["team_id"]} if channel["type"] == "O" else {"channel_id": channel["id"]}
    call.hub.publish(Event("channel_deleted", {"channel_id": channel["id"], "delete_at": now}, **scope))
    return ok()


@routes.on("POST", "/channels/{channel_id}/restore")
async def restore_channel(call):
    channel = call.access.channel(call.id("channel_id"))
    if not call.access.is_team_admin(channel["team_id"], call.user_id):
        raise forbidden()
    call.store.update("channels", {"id": channel["id"]}, {"delete_at": 0, "update_at": call.store.now()})
    scope = {"team_id": channel["team_id"]} if channel["type"] == "O" else {"channel_id": channel["id"]}
    call.hub.publish(Event("channel_restored", {"channel_id": channel["id"]}, **scope))
    channel = call.access.channel(channel["id"])
    user = call.access.user(call.user_id)
    call.server.posts.system(
        channel, user, "system_channel_restored", f"{user['username']} restored the channel.",
        {"username": user["username"]})
    return answer(channel_json(channel))


@routes.on("PUT", "/channels/{channel_id}/privacy")
async def update_privacy(call):
    body = await call.body("privacy")
    if body.get("privacy") not in ("O", "P"):
        raise invalid_body("privacy")
    channel = call.access.channel(call.id("channel_id"))
    if channel["type"] in "DG" or not call.access.is_team_admin(channel["team_id"], call.user_id):
        raise forbidden()
    if channel["name"] == DEFAULT_CHANNEL and body["privacy"] == "P":
        raise APIError(400, "api.channel.update_channel_privacy.default_channel_error")
    now = call.store.now()
    call.store.update("channels", {"id": channel["id"]}, {"type": body["privacy"], "update_at": now})
    channel = call.access.channel(channel["id"])
    call.hub.publish(Event("channel_updated", {"channel": encode(channel_json(channel))}, channel_id=channel["id"]))
    user = call.access.user(call.user_id)
    word = "open" if channel["type"] == "O" else "private"
    call.server.posts.system(
        channel, user, "system_change_chan_privacy", f"The channel is {word} now.", {"username": user["username"]})
    call.hub.publish(Event("channel_converted", {"channel_id": channel["id"]}, team_id=channel["team_id"]))
    return answer(channel_json(call.access.channel(channel["id"])))


# Members

@routes.on("GET", "/channels/{channel_id}/members")
async def list_members(call):
    channel = call.access.require_read(call, call.id("channel_id"))
    rows = call.store.all(
        "SELECT * FROM channel_members WHERE channel_id = ? ORDER BY rowid LIMIT ? OFFSET ?", channel["id"],
        call.per_page, call.page * call.per_page)
    return answer([member_json(row, call.user_id) for row in rows])


@routes.on("POST", "/channels/{channel_id}/members/ids")
async def members_by_ids(call):
    channel = call.access.require_read(call, call.id("channel_id"))
    ids = (await call.array("user_ids"))[:1000]
    rows = call.store.all(
        f"SELECT * FROM channel_members WHERE channel_id = ? AND user_id IN ({marks(ids)}) ORDER BY rowid",
        channel["id"], *ids)
    return answer([member_json(row, call.user_id) for row in rows])


@routes.on("GET", "/channels/{channel_id}/members/{user_id}")
async def get_member(call):
    channel, user_id = call.access.require_read(call, call.id("channel_id")), call.id("user_id")
    member = call.access.member(channel["id"], user_id)
    if member is None:
        raise APIError(404, "app.channel.get_member.missing.app_error")
    return answer(member_json(member, call.user_id))


@routes.on("POST", "/channels/{channel_id}/members")
async def add_member(call):
    body = await call.body("user_id or user_ids")
    ids = body.get("user_ids")
    if not isinstance(ids, list):
        ids = [body.get("user_id")]
    if not ids or not all(is_id(id) for id in ids):
        raise invalid_body("user_id or user_ids")
    channel = call.access.channel(call.id("channel_id"))
    if channel["type"] in "DG":
        raise APIError(400, "api.channel.add_user_to_channel.type.app_error")
    joins = ids == [call.user_id] and channel["type"] == "O"
    if joins:
        call.access.require_team(call, channel["team_id"])
    else:
        call.access.require_post(call, channel["id"])
    added = [_add(call, channel, id) for id in ids]
    members = [member_json(member, call.user_id) for member in added]
    return answer(members[0] if "user_id" in body and len(members) == 1 else members, 201)


def _add(call, channel, user_id):
    if member := call.access.member(channel["id"], user_id):
        return member
    user = call.access.user(user_id)
    if user["delete_at"]:
        raise APIError(403, "app.channel.add_member.deleted_user.app_error")
    join(call.server, channel, user, call.access.user(call.user_id))
    return call.access.member(channel["id"], user_id)


def join(server, channel, user, by):
    """Adds a user of the team to a channel; `by` adds them, or they join themselves."""
    if not server.access.is_in_team(channel["team_id"], user["id"]):
        raise APIError(404, "app.team.get_member.missing.app_error")
    server.channels.save_member(channel, user["id"])
    data = {"user_id": user["id"], "team_id": channel["team_id"]}
    server.hub.publish(Event("user_added", data, channel_id=channel["id"], omit_users={user["id"]: True}))
    server.hub.publish(Event("user_added", data, channel_id=channel["id"], user_id=user["id"]))
    if by["id"] == user["id"]:
        server.posts.system(
            channel, user, "system_join_channel", f"{user['username']} joined the channel.",
            {"username": user["username"]})
    else:
        server.posts.system(
            channel, by, "system_add_to_channel", f"{by['username']} added {user['username']} to the channel.", {
                "userId": by["id"], "username": by["username"], "addedUserId": user["id"],
                "addedUsername": user["username"],
            })


def leave(server, channel, user, by):
    if channel["name"] == DEFAULT_CHANNEL:
        raise APIError(400, "api.channel.remove.default.app_error")
    if server.access.member(channel["id"], user["id"]) is None:
        raise APIError(404, "app.channel.get_member.missing.app_error")
    server.store.run(
        "DELETE FROM channel_members WHERE channel_id = ? AND user_id = ?", channel["id"], user["id"])
    server.hub.publish(Event(
        "user_removed", {"user_id": user["id"], "remover_id": by["id"]}, channel_id=channel["id"]))
    server.hub.publish(Event(
        "user_removed", {"channel_id": channel["id"], "remover_id": by["id"]}, user_id=user["id"]))
    if by["id"] == user["id"]:
        server.posts.system(
            channel, user, "system_leave_channel", f"{user['username']} left the channel.",
            {"username": user["username"]})
    else:
        server.posts.system(
            channel, by, "system_remove_from_channel", f"{user['username']} was removed from the channel.",
            {"removedUserId": user["id"], "removedUsername": user["username"]})


@routes.on("DELETE", "/channels/{channel_id}/members/{user_id}")
async def remove_member(call):
    channel, user = call.access.channel(call.id("channel_id")), call.access.user(call.id("user_id"))
    if channel["type"] in "DG":
        raise APIError(400, "api.channel.remove_channel_member.type.app_error")
    if user["id"] != call.user_id:
        call.access.require_post(call, channel["id"])
    leave(call.server, channel, user, call.access.user(call.user_id))
    return ok()


@routes.on("PUT", "/channels/{channel_id}/members/{user_id}/notify_props")
async def update_notify_props(call):
    channel_id, user_id = call.id("channel_id"), call.id("user_id")
    body = await call.body("notify_props")
    call.access.require_user(call, user_id)
    member = call.access.member(channel_id, user_id)
    if member is None:
        raise APIError(404, "app.channel.get_member.missing.app_error")
    props = member["notify_props"] | {
        name: value for name, value in body.items() if name in NOTIFY_PROPS and isinstance(value, str)}
    call.store.update(
        "channel_members", {"channel_id": channel_id, "user_id": user_id},
        {"notify_props": props, "last_update_at": call.store.now()})
    member = call.access.member(channel_id, user_id)
    call.hub.publish(Event(
        "channel_member_updated", {"channelMember": encode(member_json(member, user_id))}, user_id=user_id))
    return ok()


@routes.on("GET", "/users/{user_id}/teams/{team_id}/channels/members")
async def members_of_user(call):
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    rows = call.store.all(
        "SELECT m.* FROM channel_members m JOIN channels c ON c.id = m.channel_id WHERE m.user_id = ?"
        " AND c.team_id IN (?, '') AND c.delete_at = 0 ORDER BY m.rowid", user_id, team_id)
    return answer([member_json(row, call.user_id) for row in rows])


# What is read

@routes.on("POST", "/channels/members/{user_id}/view")
async def view_channel(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    body = await call.body("channel_view")
    ids = []
    for name in ("channel_id", "prev_channel_id"):
        id = typed(body, name, str, "", f"channel_view.{name}")
        if id and not is_id(id):
            raise invalid_body(f"channel_view.{name}")
        if id:
            ids.append(id)
    return answer({"status": "OK", "last_viewed_at_times": call.server.channels.mark_viewed(user_id, ids)})


@routes.on("POST", "/channels/members/{user_id}/mark_read")
async def mark_read(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    ids = await call.array("channel_ids")
    return answer({"status": "OK", "last_viewed_at_times": call.server.channels.mark_viewed(user_id, ids)})


@routes.on("GET", "/users/{user_id}/channels/{channel_id}/unread")
async def unread(call):
    user_id, channel_id = call.id("user_id"), call.id("channel_id")
    call.access.require_user(call, user_id)
    if not call.access.may_post(channel_id, call.user_id):
        raise forbidden()
    channel, member = call.access.channel(channel_id), call.access.member(channel_id, user_id)
    if member is None or channel["delete_at"]:
        raise APIError(404, "app.channel.get_unread.app_error")
    only_mentions = member["notify_props"].get("mark_unread") == "mention"
    return answer({
        "team_id": channel["team_id"], "channel_id": channel_id,
        "msg_count": 0 if only_mentions else channel["total_msg_count"] - member["msg_count"],
        "mention_count": member["mention_count"], "mention_count_root": member["mention_count_root"],
        "urgent_mention_count": 0,
        "msg_count_root": 0 if only_mentions else channel["total_msg_count_root"] - member["msg_count_root"],
    })
