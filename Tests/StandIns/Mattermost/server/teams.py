"""Teams and their members."""

import re

from .errors import APIError, forbidden, invalid_body
from .hub import Event
from .store import is_id, new_id
from .wire import Routes, answer, encode, ok, typed

routes = Routes()

NAME = re.compile(r"[a-z][a-z0-9\-]{1,63}")
DEFAULT_CHANNELS = (("town-square", "Town Square"), ("off-topic", "Off-Topic"))


def team_json(team, shows_invitation):
    return {
        "id": team["id"], "create_at": team["create_at"], "update_at": team["update_at"],
        "delete_at": team["delete_at"], "display_name": team["display_name"], "name": team["name"],
        "description": team["description"], "email": team["email"] if shows_invitation else "", "type": team["type"],
        "company_name": "", "allowed_domains": "", "invite_id": team["invite_id"] if shows_invitation else "",
        "allow_open_invite": bool(team["allow_open_invite"]), "scheme_id": None, "group_constrained": None,
        "policy_id": None, "cloud_limits_archived": False,
    }


def team_member_json(member):
    return {
        "team_id": member["team_id"], "user_id": member["user_id"],
        "roles": "team_user team_admin" if member["scheme_admin"] else "team_user", "delete_at": member["delete_at"],
        "scheme_guest": False, "scheme_user": True, "scheme_admin": bool(member["scheme_admin"]), "explicit_roles": "",
    }


def shown(call, team):
    return team_json(team, call.access.is_in_team(team["id"], call.user_id) or call.access.is_admin(call.user_id))


class Teams:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def join(self, team, user, by=None, is_admin=False):
        """Adds a user to a team and its default channels; `by` adds them, or they join. Returns the member."""
        member = self.store.one(
            "SELECT * FROM team_members WHERE team_id = ? AND user_id = ?", team["id"], user["id"])
        if member and member["delete_at"] == 0:
            return member
        member = {"team_id": team["id"], "user_id": user["id"], "delete_at": 0, "scheme_admin": int(is_admin)}
        with self.store.transaction():
            self.store.insert("team_members", member, or_replace=True)
        for name, _ in DEFAULT_CHANNELS:
            channel = self.store.one("SELECT * FROM channels WHERE team_id = ? AND name = ?", team["id"], name)
            self.server.channels.save_member(channel, user["id"], is_admin)
            place = "team" if name == DEFAULT_CHANNELS[0][0] else "channel"
            if by is None or by["id"] == user["id"]:
                self.server.posts.system(
                    channel, user, f"system_join_{place}", f"{user['username']} joined the {place}.",
                    {"username": user["username"]})
            else:
                text = f"{by['username']} added {user['username']} to the {place}."
                self.server.posts.system(channel, by, f"system_add_to_{place}", text, {
                    "userId": by["id"], "username": by["username"], "addedUserId": user["id"],
                    "addedUsername": user["username"],
                })
            self.server.hub.publish(Event(
                "user_added", {"user_id": user["id"], "team_id": team["id"]}, channel_id=channel["id"]))
        self.server.hub.publish(Event(
            "added_to_team", {"team_id": team["id"], "user_id": user["id"]}, user_id=user["id"]))
        return member


@routes.on("POST", "/teams")
async def create_team(call):
    body = await call.body("team")
    name, kind = typed(body, "name", str, "", "team"), typed(body, "type", str, "", "team")
    display_name = typed(body, "display_name", str, "", "team")
    if not NAME.fullmatch(name):
        raise APIError(400, "model.team.is_valid.url.app_error")
    if kind not in ("O", "I") or not display_name:
        raise invalid_body("team")
    if call.store.one("SELECT id FROM teams WHERE name = ?", name):
        raise APIError(400, "app.team.save.existing.app_error")
    now = call.store.now()
    team = {
        "id": new_id(), "create_at": now, "update_at": now, "delete_at": 0, "display_name": display_name,
        "name": name, "description": typed(body, "description", str, "", "team"),
        "email": call.access.user(call.user_id)["email"], "type": kind, "invite_id": new_id(),
        "allow_open_invite": int(typed(body, "allow_open_invite", bool, False, "team")),
    }
    with call.store.transaction():
        call.store.insert("teams", team)
        for channel_name, channel_display_name in DEFAULT_CHANNELS:
            call.server.channels.save(team["id"], "O", channel_name, channel_display_name, creator_id=call.user_id)
    call.server.teams.join(team, call.access.user(call.user_id), is_admin=True)
    return answer(team_json(team, True), 201)


@routes.on("GET", "/teams")
async def list_teams(call):
    rows = call.store.all(
        "SELECT * FROM teams WHERE delete_at = 0 ORDER BY display_name LIMIT ? OFFSET ?", call.per_page,
        call.page * call.per_page)
    may_all = call.access.is_admin(call.user_id)
    return answer([shown(call, row) for row in rows if may_all or row["allow_open_invite"]])


@routes.on("GET", "/teams/{team_id}")
async def get_team(call):
    team = call.access.team(call.id("team_id"))
    if not (team["allow_open_invite"] and team["type"] == "O"):
        call.access.require_team(call, team["id"])
    return answer(shown(call, team))


@routes.on("GET", "/teams/name/{name}")
async def get_team_by_name(call):
    team = call.store.one("SELECT * FROM teams WHERE name = ?", call.text("name").lower())
    if team is None:
        raise APIError(404, "app.team.get_by_name.missing.app_error")
    if not (team["allow_open_invite"] and team["type"] == "O"):
        call.access.require_team(call, team["id"])
    return answer(shown(call, team))


@routes.on("GET", "/teams/name/{name}/exists")
async def team_exists(call):
    team = call.store.one("SELECT * FROM teams WHERE name = ?", call.text("name").lower())
    return answer({"exists": bool(team and call.access.may_view_team(team["id"], call.user_id))})


@routes.on("PUT", "/teams/{team_id}/patch")
async def patch_team(call):
    team = call.access.team(call.id("team_id"))
    if not call.access.is_team_admin(team["id"], call.user_id):
        raise forbidden()
    body = await call.body("team")
    changes = {"update_at": call.store.now()}
    for name in ("display_name", "description"):
        if body.get(name) is not None:
            changes[name] = typed(body, name, str, "", name)
    call.store.update("teams", {"id": team["id"]}, changes)
    team = call.access.team(team["id"])
    call.hub.publish(Event("update_team", {"team": encode(team_json(team, False))}, team_id=team["id"]))
    return answer(team_json(team, True))


@routes.on("GET", "/users/{user_id}/teams")
async def teams_of_user(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all(
        "SELECT * FROM teams WHERE id IN (SELECT team_id FROM team_members WHERE user_id = ? AND delete_at = 0)"
        " ORDER BY display_name", user_id)
    return answer([shown(call, row) for row in rows])


@routes.on("GET", "/users/{user_id}/teams/members")
async def team_members_of_user(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all("SELECT * FROM team_members WHERE user_id = ? AND delete_at = 0 ORDER BY rowid", user_id)
    return answer([team_member_json(row) for row in rows])


@routes.on("GET", "/teams/{team_id}/members")
async def list_members(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    rows = call.store.all(
        "SELECT * FROM team_members WHERE team_id = ? AND delete_at = 0 ORDER BY rowid LIMIT ? OFFSET ?", team_id,
        call.per_page, call.page * call.per_page)
    return answer([team_member_json(row) for row in rows])


@routes.on("GET", "/teams/{team_id}/members/{user_id}")
async def get_member(call):
    team_id, user_id = call.id("team_id"), call.id("user_id")
    call.access.require_team(call, team_id)
    member = call.access.team_member(team_id, user_id)
    if member is None:
        raise APIError(404, "app.team.get_member.missing.app_error")
    return answer(team_member_json(member))


@routes.on("POST", "/teams/{team_id}/members")
async def add_member(call):
    team = call.access.team(call.id("team_id"))
    body = await call.body("team_member")
    user_id = body.get("user_id")
    if not is_id(user_id):
        raise invalid_body("user_id")
    if body.get("team_id") != team["id"]:
        raise invalid_body("team_id")
    joins_openly = user_id == call.user_id and team["type"] == "O" and team["allow_open_invite"]
    if not joins_openly:
        call.access.require_team(call, team["id"])
    member = call.server.teams.join(team, call.access.user(user_id), call.access.user(call.user_id))
    return answer(team_member_json(member), 201)


@routes.on("DELETE", "/teams/{team_id}/members/{user_id}")
async def remove_member(call):
    team, user_id = call.access.team(call.id("team_id")), call.id("user_id")
    if user_id != call.user_id and not call.access.is_team_admin(team["id"], call.user_id):
        raise forbidden()
    if call.access.team_member(team["id"], user_id) is None:
        raise APIError(404, "app.team.get_member.missing.app_error")
    with call.store.transaction():
        call.store.run(
            "DELETE FROM channel_members WHERE user_id = ? AND channel_id IN"
            " (SELECT id FROM channels WHERE team_id = ?)", user_id, team["id"])
        call.store.run(
            "UPDATE team_members SET delete_at = ? WHERE team_id = ? AND user_id = ?", call.store.now(), team["id"],
            user_id)
    data = {"team_id": team["id"], "user_id": user_id}
    call.hub.publish(Event("leave_team", data, team_id=team["id"]))
    call.hub.publish(Event("leave_team", data, user_id=user_id))
    return ok()


@routes.on("GET", "/teams/{team_id}/stats")
async def stats(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    count = call.store.value("SELECT COUNT(*) FROM team_members WHERE team_id = ? AND delete_at = 0", team_id)
    return answer({"team_id": team_id, "total_member_count": count, "active_member_count": count})


def unread_of(call, user_id, team_id):
    row = call.store.one(
        "SELECT COALESCE(SUM(c.total_msg_count - m.msg_count), 0) AS messages,"
        " COALESCE(SUM(m.mention_count), 0) AS mentions,"
        " COALESCE(SUM(c.total_msg_count_root - m.msg_count_root), 0) AS root_messages,"
        " COALESCE(SUM(m.mention_count_root), 0) AS root_mentions"
        " FROM channels c JOIN channel_members m ON m.channel_id = c.id"
        " WHERE m.user_id = ? AND c.team_id = ? AND c.delete_at = 0", user_id, team_id)
    return {
        "team_id": team_id, "msg_count": row["messages"], "mention_count": row["mentions"],
        "mention_count_root": row["root_mentions"], "msg_count_root": row["root_messages"], "thread_count": 0,
        "thread_mention_count": 0, "thread_urgent_mention_count": 0,
    }


@routes.on("GET", "/users/{user_id}/teams/unread")
async def unread_of_all(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all(
        "SELECT team_id FROM team_members WHERE user_id = ? AND delete_at = 0 ORDER BY rowid", user_id)
    left_out = call.query.get("exclude_team")
    return answer([unread_of(call, user_id, row["team_id"]) for row in rows if row["team_id"] != left_out])


@routes.on("GET", "/users/{user_id}/teams/{team_id}/unread")
async def unread_of_team(call):
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    return answer(unread_of(call, user_id, team_id))
