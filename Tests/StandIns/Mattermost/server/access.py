"""Sessions, and what a user may do. The roles are those of a server whose permissions nobody has changed."""

import hashlib
import hmac
import secrets

from .errors import APIError, expired, forbidden
from .store import new_id

SESSION_MILLISECONDS = 30 * 24 * 3600 * 1000


def hash_password(password):
    salt = secrets.token_bytes(16)
    # One round: the passwords are those of tests.
    return f"{salt.hex()}:{hashlib.sha256(salt + password.encode()).hexdigest()}"


def is_password(password, stored):
    salt, digest = stored.split(":")
    return hmac.compare_digest(hashlib.sha256(bytes.fromhex(salt) + password.encode()).hexdigest(), digest)


class Access:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    # Sessions

    def open_session(self, user_id, device_id=""):
        now = self.store.now()
        session = {
            "id": new_id(), "token": new_id(), "create_at": now, "expires_at": now + SESSION_MILLISECONDS,
            "last_activity_at": now, "user_id": user_id, "device_id": device_id, "props": {"csrf": new_id()},
        }
        self.store.insert("sessions", session)
        return session

    def session(self, token):
        """The session of a token, also of a personal access token; nil if it has none or the account is inactive."""
        session = self.store.one("SELECT * FROM sessions WHERE token = ? AND expires_at > ?", token, self.store.now())
        if session is None:
            row = self.store.one("SELECT * FROM access_tokens WHERE token = ? AND is_active", token)
            if row:
                session = {"id": row["id"], "token": token, "user_id": row["user_id"], "props": {}}
        if session and self.store.value("SELECT delete_at FROM users WHERE id = ?", session["user_id"]) == 0:
            return session
        return None

    def token_of(self, request):
        """The token of a request and where it stands. A cookie goes first, as on the server."""
        if request.cookies.get("MMAUTHTOKEN"):
            return request.cookies["MMAUTHTOKEN"], "cookie"
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() in ("bearer", "token") and token:
            return token, "header"
        if request.query.get("access_token"):
            return request.query["access_token"], "query"
        return "", ""

    def session_of(self, request, is_required, is_trusted):
        token, place = self.token_of(request)
        session = self.session(token) if token else None
        if token and session is None and is_required:
            raise expired()
        if session and place == "query":
            raise APIError(401, "api.context.token_provided.app_error")
        if session and place == "cookie" and not is_trusted and request.method != "GET":
            is_own = request.headers.get("X-CSRF-Token") == session["props"].get("csrf")
            if not is_own and request.headers.get("X-Requested-With") != "XMLHttpRequest":
                raise expired()
        if session is None and is_required:
            raise expired()
        return session

    # Users, teams, channels

    def user(self, user_id):
        user = self.store.one("SELECT * FROM users WHERE id = ?", user_id)
        if user is None:
            raise APIError(404, "app.user.missing_account.const")
        return user

    def is_admin(self, user_id):
        roles = self.store.value("SELECT roles FROM users WHERE id = ?", user_id) or ""
        return "system_admin" in roles.split()

    def require_user(self, call, user_id):
        """Only the user and an administrator."""
        if user_id != call.user_id and not self.is_admin(call.user_id):
            raise forbidden()

    def team(self, team_id):
        team = self.store.one("SELECT * FROM teams WHERE id = ?", team_id)
        if team is None:
            raise APIError(404, "app.team.get.find.app_error")
        return team

    def team_member(self, team_id, user_id):
        return self.store.one(
            "SELECT * FROM team_members WHERE team_id = ? AND user_id = ? AND delete_at = 0", team_id, user_id)

    def is_in_team(self, team_id, user_id):
        return self.team_member(team_id, user_id) is not None

    def may_view_team(self, team_id, user_id):
        return self.is_in_team(team_id, user_id) or self.is_admin(user_id)

    def is_team_admin(self, team_id, user_id):
        member = self.team_member(team_id, user_id)
        return bool(member and member["scheme_admin"]) or self.is_admin(user_id)

    def require_team(self, call, team_id):
        if not self.may_view_team(team_id, call.user_id):
            raise forbidden()

    def channel(self, channel_id):
        channel = self.store.one("SELECT * FROM channels WHERE id = ?", channel_id)
        if channel is None:
            raise APIError(404, "app.channel.get.existing.app_error", channel_id=channel_id)
        return channel

    def member(self, channel_id, user_id):
        return self.store.one(
            "SELECT * FROM channel_members WHERE channel_id = ? AND user_id = ?", channel_id, user_id)

    def may_post(self, channel_id, user_id):
        """Posting, reacting, editing, deleting, changing header and members: members and administrators."""
        return self.member(channel_id, user_id) is not None or self.is_admin(user_id)

    def may_read(self, channel, user_id):
        """Members, administrators, and in an open channel all of the team."""
        if self.may_post(channel["id"], user_id):
            return True
        return channel["type"] == "O" and self.may_view_team(channel["team_id"], user_id)

    def require_read(self, call, channel_id):
        channel = self.channel(channel_id)
        if not self.may_read(channel, call.user_id):
            raise forbidden()
        return channel

    def require_post(self, call, channel_id):
        if not self.may_post(channel_id, call.user_id):
            raise forbidden()
