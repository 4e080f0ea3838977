"""Accounts, login, sessions, profiles, statuses."""

import json
import re

from .access import hash_password, is_password
from .errors import APIError, forbidden, invalid_body
from .hub import Event, publish_typing
from .store import new_id
from .wire import Routes, answer, ok, typed

routes = Routes()

USERNAME = re.compile(r"[a-z][a-z0-9.\-_]{2,63}")
# The server's default.
PASSWORD_MINIMUM = 8
STATUS_TEXT_MAXIMUM = 100

DEFAULT_NOTIFY_PROPS = {
    "channel": "true", "comments": "never", "desktop": "mention", "desktop_sound": "true", "desktop_threads": "all",
    "email": "true", "email_threads": "all", "first_name": "false", "mention_keys": "", "push": "mention",
    "push_status": "online", "push_threads": "all",
}
TIMEZONE = {"automaticTimezone": "", "manualTimezone": "", "useAutomaticTimezone": "true"}


def user_json(user, is_own):
    """A user as others see them, or as they see themselves: with their settings."""
    body = {"id": user["id"]}
    for name in ("create_at", "update_at"):
        if user[name]:
            body[name] = user[name]
    body["delete_at"] = user["delete_at"]
    body["username"] = user["username"]
    if not is_own:
        body["auth_data"] = ""
    body["auth_service"] = ""
    for name in ("email", "nickname", "first_name", "last_name", "position", "roles"):
        body[name] = user[name]
    if user["props"]:
        body["props"] = dict(sorted(user["props"].items()))
    if is_own:
        body["notify_props"] = dict(sorted(user["notify_props"].items()))
        body["last_password_update"] = user["last_password_update"]
    if user["last_picture_update"]:
        body["last_picture_update"] = user["last_picture_update"]
    body["locale"] = user["locale"]
    body["timezone"] = TIMEZONE
    body["disable_welcome_email"] = False
    return body


def bare_user_json(user_id):
    """A participant of a thread of whom only the id is asked."""
    empty = {
        "id": user_id, "create_at": 0, "update_at": 0, "delete_at": 0, "username": "", "email": "", "nickname": "",
        "first_name": "", "last_name": "", "position": "", "roles": "", "props": {}, "locale": "",
        "last_picture_update": 0,
    }
    return user_json(empty, False) | {"timezone": None}


def others(call, rows):
    return [user_json(row, row["id"] == call.user_id) for row in rows]


def marks(values):
    return ",".join("?" * len(values))


# Accounts

@routes.on("POST", "/users", session=False)
async def create_user(call):
    """The first account is the administrator's. Others need an administrator or a team's invitation."""
    body = await call.body("user")
    invitation = call.query.get("iid")
    team = call.store.one("SELECT * FROM teams WHERE invite_id = ?", invitation) if invitation else None
    is_first = call.store.value("SELECT COUNT(*) FROM users") == 0
    if not (is_first or team or call.access.is_admin(call.user_id)):
        raise APIError(403, "api.user.create_user.no_open_server")
    username = typed(body, "username", str, "", "user").lower()
    email = typed(body, "email", str, "", "user").lower()
    password = typed(body, "password", str, "", "user")
    if not USERNAME.fullmatch(username):
        raise APIError(400, "model.user.is_valid.username.app_error")
    if len(password) < PASSWORD_MINIMUM:
        raise APIError(400, "model.user.is_valid.pwd_min_length.app_error")
    if "@" not in email:
        raise invalid_body("email")
    if call.store.one("SELECT id FROM users WHERE username = ?", username):
        raise APIError(400, "app.user.save.username_exists.app_error")
    if call.store.one("SELECT id FROM users WHERE email = ?", email):
        raise APIError(400, "app.user.save.email_exists.app_error")
    now = call.store.now()
    user = {
        "id": new_id(), "create_at": now, "update_at": now, "delete_at": 0, "username": username,
        "password": hash_password(password), "email": email, "nickname": typed(body, "nickname", str, "", "user"),
        "first_name": typed(body, "first_name", str, "", "user"),
        "last_name": typed(body, "last_name", str, "", "user"), "position": typed(body, "position", str, "", "user"),
        "roles": "system_admin system_user" if is_first else "system_user",
        "locale": typed(body, "locale", str, "en", "user"), "props": {},
        "notify_props": dict(DEFAULT_NOTIFY_PROPS), "last_password_update": now, "last_picture_update": 0,
    }
    with call.store.transaction():
        call.store.insert("users", user)
    call.hub.publish(Event("new_user", {"user_id": user["id"]}))
    if team:
        call.server.teams.join(team, user)
    return answer(user_json(user, True), 201)


@routes.on("POST", "/users/login", session=False)
async def login(call):
    body = await call.body("login")
    wrong = APIError(401, "api.user.login.invalid_credentials_email_username")
    login_id, password = typed(body, "login_id", str, "", "login"), typed(body, "password", str, "", "login")
    if not password:
        raise APIError(400, "api.user.login.blank_pwd.app_error")
    if id := typed(body, "id", str, "", "login"):
        user = call.store.one("SELECT * FROM users WHERE id = ?", id)
    else:
        user = call.store.one(
            "SELECT * FROM users WHERE username = ? OR email = ?", login_id.lower(), login_id.lower())
    if user is None or not is_password(password, user["password"]):
        raise wrong
    if user["delete_at"]:
        raise APIError(401, "api.user.login.inactive.app_error")
    session = call.access.open_session(user["id"], typed(body, "device_id", str, "", "login"))
    response = answer(user_json(user, True), headers={"Token": session["token"]})
    # Only browsers get cookies; the documentation does not say so.
    if call.request.headers.get("X-Requested-With") == "XMLHttpRequest":
        age = {"path": "/", "max_age": (session["expires_at"] - session["create_at"]) // 1000}
        response.set_cookie("MMAUTHTOKEN", session["token"], httponly=True, **age)
        response.set_cookie("MMUSERID", user["id"], **age)
        response.set_cookie("MMCSRF", session["props"]["csrf"], **age)
    return response


@routes.on("POST", "/users/logout", session=False)
async def logout(call):
    if call.session:
        call.store.run("DELETE FROM sessions WHERE token = ?", call.session["token"])
        await call.hub.close(token=call.session["token"])
    response = ok()
    response.del_cookie("MMAUTHTOKEN", path="/")
    return response


@routes.on("GET", "/users/{user_id}/sessions")
async def sessions(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    roles = call.access.user(user_id)["roles"]
    return answer([
        {
            "id": row["id"], "token": "", "create_at": row["create_at"], "expires_at": row["expires_at"],
            "last_activity_at": row["last_activity_at"], "user_id": user_id, "device_id": row["device_id"],
            "roles": roles, "is_oauth": False, "expired_notify": False, "props": row["props"], "team_members": [],
            "local": False,
        }
        for row in call.store.all("SELECT * FROM sessions WHERE user_id = ? ORDER BY create_at DESC", user_id)
    ])


@routes.on("POST", "/users/{user_id}/sessions/revoke")
async def revoke_session(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    body = await call.body("session_id")
    row = call.store.one("SELECT * FROM sessions WHERE id = ? AND user_id = ?", body.get("session_id"), user_id)
    if row is None:
        raise invalid_body("session_id")
    call.store.run("DELETE FROM sessions WHERE id = ?", row["id"])
    await call.hub.close(token=row["token"])
    return ok()


@routes.on("POST", "/users/{user_id}/tokens")
async def create_access_token(call):
    user_id = call.id("user_id")
    if not call.access.is_admin(call.user_id):
        raise forbidden()
    call.access.user(user_id)
    body = await call.body("user_access_token")
    description = typed(body, "description", str, "", "description")
    if not description:
        raise invalid_body("description")
    row = {"id": new_id(), "token": new_id(), "user_id": user_id, "description": description, "is_active": 1}
    call.store.insert("access_tokens", row)
    return answer(row | {"is_active": True})


# Reading

@routes.on("GET", "/users")
async def list_users(call):
    rows = "SELECT users.* FROM users"
    condition, values = "1", []
    if team_id := call.query.get("in_team"):
        call.access.require_team(call, team_id)
        condition = "id IN (SELECT user_id FROM team_members WHERE team_id = ? AND delete_at = 0)"
        values = [team_id]
    elif channel_id := call.query.get("in_channel"):
        call.access.require_read(call, channel_id)
        condition, values = "id IN (SELECT user_id FROM channel_members WHERE channel_id = ?)", [channel_id]
    found = call.store.all(
        f"{rows} WHERE {condition} ORDER BY username LIMIT ? OFFSET ?", *values, call.per_page,
        call.page * call.per_page)
    return answer(others(call, found))


@routes.on("GET", "/users/{user_id}")
async def get_user(call):
    return answer(others(call, [call.access.user(call.id("user_id"))])[0])


@routes.on("GET", "/users/username/{username}")
async def get_user_by_username(call):
    user = call.store.one("SELECT * FROM users WHERE username = ?", call.text("username").lower())
    if user is None:
        raise APIError(404, "app.user.get_by_username.app_error")
    return answer(others(call, [user])[0])


@routes.on("GET", "/users/email/{email}")
async def get_user_by_email(call):
    user = call.store.one("SELECT * FROM users WHERE email = ?", call.text("email").lower())
    if user is None:
        raise APIError(404, "app.user.missing_account.const")
    return answer(others(call, [user])[0])


@routes.on("POST", "/users/ids")
async def get_users_by_ids(call):
    ids = (await call.array("user_ids"))[:1000]
    rows = call.store.all(f"SELECT * FROM users WHERE id IN ({marks(ids)}) ORDER BY username", *ids)
    return answer(others(call, rows))


@routes.on("POST", "/users/usernames")
async def get_users_by_usernames(call):
    names = (await call.array("usernames"))[:1000]
    rows = call.store.all(f"SELECT * FROM users WHERE username IN ({marks(names)}) ORDER BY username", *names)
    return answer(others(call, rows))


def _matching(call, term):
    pattern = term.lower().lstrip("@").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
    return call.store.all(
        "SELECT * FROM users WHERE delete_at = 0 AND (username LIKE ?1 ESCAPE '\\' OR nickname LIKE ?1 ESCAPE '\\' OR"
        " first_name LIKE ?1 ESCAPE '\\' OR last_name LIKE ?1 ESCAPE '\\') ORDER BY username LIMIT 100", pattern)


@routes.on("POST", "/users/search")
async def search_users(call):
    body = await call.body("user_search")
    term = typed(body, "term", str, "", "term")
    if not term:
        raise invalid_body("term")
    rows = _matching(call, term)
    if team_id := typed(body, "team_id", str, "", "team_id"):
        call.access.require_team(call, team_id)
        rows = [row for row in rows if call.access.is_in_team(team_id, row["id"])]
    return answer(others(call, rows))


@routes.on("GET", "/users/autocomplete")
async def autocomplete_users(call):
    rows = _matching(call, call.query.get("name", ""))
    body = {"users": others(call, rows)}
    if channel_id := call.query.get("in_channel"):
        call.access.require_read(call, channel_id)
        inside = [row for row in rows if call.access.member(channel_id, row["id"])]
        body = {"users": others(call, inside), "out_of_channel": others(call, [r for r in rows if r not in inside])}
    return answer(body)


# Changing

@routes.on("PUT", "/users/{user_id}/patch")
async def patch_user(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    body = await call.body("user")
    user = call.access.user(user_id)
    changes = {"update_at": call.store.now()}
    for name in ("nickname", "first_name", "last_name", "position", "locale"):
        if body.get(name) is not None:
            changes[name] = typed(body, name, str, "", name)
    if body.get("notify_props") is not None:
        changes["notify_props"] = user["notify_props"] | typed(body, "notify_props", dict, {}, "notify_props")
    if body.get("props") is not None:
        changes["props"] = typed(body, "props", dict, {}, "props")
    call.store.update("users", {"id": user_id}, changes)
    publish_user(call.server, user_id)
    return answer(user_json(call.access.user(user_id), True))


def publish_user(server, user_id):
    """`user_updated`: to everyone as others see them, to the user with their settings. The user is no JSON string."""
    user = server.access.user(user_id)
    server.hub.publish(Event("user_updated", {"user": user_json(user, False)}, omit_users={user_id: True}))
    server.hub.publish(Event("user_updated", {"user": user_json(user, True)}, user_id=user_id))


@routes.on("POST", "/users/{user_id}/typing")
async def typing(call):
    user_id = call.id("user_id")
    body = await call.body("typing_request")
    call.access.require_user(call, user_id)
    channel_id = typed(body, "channel_id", str, "", "typing_request")
    if not call.access.may_post(channel_id, user_id):
        raise forbidden()
    publish_typing(call.server, user_id, channel_id, typed(body, "parent_id", str, "", "typing_request"))
    return ok()


# Statuses

class Statuses:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def of(self, user_id):
        row = self.store.one("SELECT * FROM statuses WHERE user_id = ?", user_id)
        if row:
            return row | {"manual": bool(row["manual"])}
        return {"user_id": user_id, "status": "offline", "manual": False, "last_activity_at": 0, "dnd_end_time": 0}

    def set(self, user_id, status, is_chosen, dnd_end_time=0):
        """What a user has chosen stays until they choose anew; online is what there is without a choice."""
        before = self.of(user_id)
        if before["manual"] and not is_chosen:
            return
        self.store.insert(
            "statuses",
            {
                "user_id": user_id, "status": status, "manual": int(is_chosen and status != "online"),
                "last_activity_at": self.store.now(), "dnd_end_time": dnd_end_time,
            },
            or_replace=True)
        if before["status"] != status:
            self.server.hub.publish(Event("status_change", {"status": status, "user_id": user_id}, user_id=user_id))

    def set_online(self, user_id):
        self.set(user_id, "online", is_chosen=False)

    def set_offline(self, user_id):
        self.set(user_id, "offline", is_chosen=False)


@routes.on("GET", "/users/{user_id}/status")
async def get_status(call):
    return answer(call.server.statuses.of(call.id("user_id")))


@routes.on("POST", "/users/status/ids")
async def get_statuses(call):
    return answer([call.server.statuses.of(id) for id in (await call.array("user_ids"))[:1000]])


@routes.on("PUT", "/users/{user_id}/status")
async def update_status(call):
    user_id = call.id("user_id")
    body = await call.body("status")
    if body.get("user_id") != user_id:
        raise invalid_body("user_id")
    call.access.require_user(call, user_id)
    status = body.get("status")
    if status not in ("online", "offline", "away", "dnd"):
        raise invalid_body("status")
    call.server.statuses.set(user_id, status, True, typed(body, "dnd_end_time", int, 0, "status"))
    return answer(call.server.statuses.of(user_id))


@routes.on("PUT", "/users/{user_id}/status/custom")
async def set_custom_status(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    body = await call.body("custom_status")
    text, emoji = typed(body, "text", str, "", "custom_status"), typed(body, "emoji", str, "", "custom_status")
    if not (text or emoji):
        raise invalid_body("custom_status")
    status = {
        "emoji": emoji or "speech_balloon", "text": text[:STATUS_TEXT_MAXIMUM],
        "duration": typed(body, "duration", str, "", "custom_status"),
        "expires_at": typed(body, "expires_at", str, "0001-01-01T00:00:00Z", "custom_status"),
    }
    _keep_custom_status(call.server, user_id, status)
    return ok()


def _keep_custom_status(server, user_id, status):
    """The status stands as JSON in a string, in the props of the user, with those before it."""
    user = server.access.user(user_id)
    props = dict(user["props"])
    recent = [entry for entry in json.loads(props.get("recentCustomStatuses", "[]")) if entry["text"] != status["text"]]
    props["customStatus"] = json.dumps(status, ensure_ascii=False, separators=(",", ":"))
    props["recentCustomStatuses"] = json.dumps([status, *recent][:5], ensure_ascii=False, separators=(",", ":"))
    server.store.update("users", {"id": user_id}, {"props": props, "update_at": server.store.now()})
    publish_user(server, user_id)


@routes.on("DELETE", "/users/{user_id}/status/custom")
async def clear_custom_status(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    props = dict(call.access.user(user_id)["props"])
    props["customStatus"] = ""
    call.store.update("users", {"id": user_id}, {"props": props, "update_at": call.store.now()})
    publish_user(call.server, user_id)
    return ok()
