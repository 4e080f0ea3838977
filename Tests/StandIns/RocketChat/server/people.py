"""Accounts, tokens, permissions and presence."""

import base64
import hashlib
import hmac
import re
import secrets

from .values import MeteorError, parse_time, random_id, random_secret

# Who may do what, as a new workspace has it; only what this server asks.
PERMISSIONS = {
    "add-user-to-any-c-room": {"admin"},
    "add-user-to-joined-room": {"admin", "owner", "moderator"},
    "api-bypass-rate-limit": {"admin", "bot", "app"},
    "archive-room": {"admin", "owner"},
    "create-c": {"admin", "user", "bot", "app"},
    "create-d": {"admin", "user", "bot", "app"},
    "create-p": {"admin", "user", "bot", "app"},
    "create-personal-access-tokens": {"admin", "user"},
    "create-user": {"admin"},
    "delete-c": {"admin", "owner"},
    "delete-d": {"admin"},
    "delete-message": {"admin", "owner", "moderator"},
    "delete-own-message": {"admin", "user"},
    "delete-p": {"admin", "owner"},
    "delete-user": {"admin"},
    "edit-message": {"admin", "owner", "moderator"},
    "edit-other-user-info": {"admin"},
    "edit-privileged-setting": {"admin"},
    "edit-room": {"admin", "owner", "moderator"},
    "force-delete-message": {"admin", "owner"},
    "leave-c": {"admin", "user", "bot", "anonymous", "app"},
    "leave-p": {"admin", "user", "bot", "anonymous", "app"},
    "message-impersonate": {"bot", "app"},
    "pin-message": {"admin", "owner", "moderator"},
    "post-readonly": {"admin", "owner", "moderator"},
    "preview-c-room": {"admin", "user", "anonymous"},
    "remove-user": {"admin", "owner", "moderator"},
    "send-many-messages": {"admin", "bot", "app"},
    "set-leader": {"admin", "owner"},
    "set-moderator": {"admin", "owner"},
    "set-owner": {"admin", "owner"},
    "start-discussion": {"admin", "user", "guest", "app"},
    "unarchive-room": {"admin"},
    "view-c-room": {"admin", "user", "bot", "app", "anonymous"},
    "view-d-room": {"admin", "user", "bot", "app"},
    "view-full-other-user-info": {"admin"},
    "view-joined-room": {"guest", "bot", "app", "anonymous"},
    "view-privileged-setting": {"admin"},
    "view-room-administration": {"admin"},
}
STATUS_NUMBERS = {"offline": 0, "online": 1, "away": 2, "busy": 3}
# Ours: sessions and personal tokens of one account, so that a client in a loop does not grow its document.
MOST_TOKENS = 50
PBKDF2_ROUNDS = 1000
TOKEN_LIFETIME = 90 * 86400 * 1000


def digest_of(password):
    """The SHA-256 that clients of the realtime API send in the password's place."""
    if isinstance(password, dict):
        return str(password.get("digest", "")).lower()
    return hashlib.sha256(str(password).encode()).hexdigest()


def hash_token(token):
    return base64.b64encode(hashlib.sha256(token.encode()).digest()).decode()


class People:
    def __init__(self, world):
        self.world = world
        self.db = world.db

    # Accounts

    def create(self, username, password, email, name=None, roles=("user",), **extra):
        if not re.fullmatch(r"[0-9a-zA-Z._-]+", username):
            raise MeteorError(
                "error-invalid-username",
                f"{username} is not a valid username, use only letters, numbers, dots, hyphens and underscores")
        if self.named(username):
            raise MeteorError("error-field-unavailable", f"<strong>{username}</strong> is already in use :(",
                              {"field": "Username", "method": "createUser"})
        if self.by_email(email):
            raise MeteorError("error-field-unavailable", f"<strong>{email}</strong> is already in use :(",
                              {"field": "Email", "method": "createUser"})
        salt = secrets.token_bytes(16)
        hashed = hashlib.pbkdf2_hmac("sha256", digest_of(password).encode(), salt, PBKDF2_ROUNDS)
        user = {
            "_id": random_id(), "createdAt": self.world.clock.date(), "username": username,
            "emails": [{"address": email, "verified": False}], "type": "user", "status": "offline", "active": True,
            "roles": list(roles), "name": name or username, "settings": {}, "statusConnection": "offline",
            "statusDefault": "online", "utcOffset": 0,
            "services": {"password": {"pbkdf2": f"{salt.hex()}${hashed.hex()}"}, "resume": {"loginTokens": []}}}
        user |= {key: extra[key] for key in ("bio", "nickname", "statusText", "customFields") if extra.get(key)}
        return self.db.put("users", user)

    def get(self, identifier):
        return self.db.get("users", identifier) if isinstance(identifier, str) else None

    def named(self, username):
        return self.db.first("users", "username = ?", username) if isinstance(username, str) else None

    def by_email(self, email):
        return self.db.first("users", "json_extract(body, '$.emails[0].address') = ?", email)

    def found(self, criteria):
        """The account that `{username}`, `{email}` or `{id}` of a login names."""
        if not isinstance(criteria, dict):
            return None
        if "username" in criteria:
            return self.named(criteria["username"])
        if "email" in criteria:
            return self.by_email(criteria["email"])
        return self.get(criteria.get("id"))

    # Logging in

    def login(self, request):
        """What the method `login` answers, for a password or the token of an earlier login."""
        if not isinstance(request, dict):
            raise MeteorError(400, "Match failed")
        if "resume" in request:
            user, record = self.by_token(request["resume"])
            if not user:
                raise MeteorError(403, "You've been logged out by the server. Please log in again.")
            return user, self.login_result(user, request["resume"], record, "resume")
        if "password" in request:
            user = self.found(request.get("user"))
            if not user:
                raise MeteorError(403, "User not found")
            if not self.password_fits(user, request["password"]):
                raise MeteorError(403, "Incorrect password")
            if not user["active"]:
                raise MeteorError("error-user-is-not-activated", "User is not activated")
            token = random_secret()
            record = {"when": self.world.clock.date(), "hashedToken": hash_token(token)}
            self.add_token(user, record)
            return user, self.login_result(user, token, record, "password")
        raise MeteorError(400, "Unrecognized options for login request")

    def login_result(self, user, token, record, kind):
        result = {"id": user["_id"], "token": token, "type": kind}
        if record.get("type") != "personalAccessToken":
            result["tokenExpires"] = {"$date": record["when"]["$date"] + TOKEN_LIFETIME}
        return result

    def password_fits(self, user, password):
        salt, wanted = user["services"]["password"]["pbkdf2"].split("$")
        hashed = hashlib.pbkdf2_hmac("sha256", digest_of(password).encode(), bytes.fromhex(salt), PBKDF2_ROUNDS)
        return hmac.compare_digest(hashed.hex(), wanted)

    def by_token(self, token, identifier=None):
        if not isinstance(token, str):
            return None, None
        hashed = hash_token(token)
        where, values = "body LIKE ?", [f"%{hashed}%"]
        if identifier is not None:
            where, values = "_id = ? AND " + where, [identifier, *values]
        user = self.db.first("users", where, *values)
        for record in user["services"]["resume"]["loginTokens"] if user else []:
            if record["hashedToken"] == hashed:
                return user, record
        return None, None

    def add_token(self, user, record):
        tokens = user["services"]["resume"]["loginTokens"]
        tokens.append(record)
        del tokens[:-MOST_TOKENS]
        self.db.put("users", user)

    def logout(self, user, token):
        tokens = user["services"]["resume"]["loginTokens"]
        user["services"]["resume"]["loginTokens"] = [row for row in tokens if row["hashedToken"] != hash_token(token)]
        self.db.put("users", user)

    # Personal access tokens

    def personal_tokens(self, user):
        return [row for row in user["services"]["resume"]["loginTokens"] if row.get("type") == "personalAccessToken"]

    def generate_token(self, user, name, bypass):
        self.require(user, "create-personal-access-tokens", "not-authorized", "Not Authorized",
                     "personalAccessTokens:generateToken")
        if any(row["name"] == name for row in self.personal_tokens(user)):
            raise MeteorError("error-token-already-exists", "A token with this name already exists",
                              {"method": "personalAccessTokens:generateToken"})
        token = random_secret()
        self.add_token(user, {
            "type": "personalAccessToken", "hashedToken": hash_token(token), "createdAt": self.world.clock.date(),
            "when": self.world.clock.date(), "lastTokenPart": token[-6:], "name": name, "bypassTwoFactor": bypass})
        return token

    def remove_token(self, user, name, method="personalAccessTokens:removeToken"):
        self.require(user, "create-personal-access-tokens", "not-authorized", "Not Authorized", method)
        rows = [row for row in self.personal_tokens(user) if row["name"] == name]
        if not rows:
            raise MeteorError("error-token-does-not-exists", "Token does not exist", {"method": method})
        user["services"]["resume"]["loginTokens"].remove(rows[0])
        self.db.put("users", user)
        return rows[0]

    def regenerate_token(self, user, name):
        old = self.remove_token(user, name, "personalAccessTokens:regenerateToken")
        return self.generate_token(user, name, old["bypassTwoFactor"])

    # Permissions

    def may(self, user, permission, rid=None):
        roles = set(user["roles"])
        if rid:
            subscription = self.world.rooms.subscription(rid, user["_id"])
            roles |= set(subscription.get("roles", [])) if subscription else set()
        return bool(roles & PERMISSIONS[permission])

    def require(self, user, permission, error="error-not-allowed", reason="Not allowed", method=None, rid=None):
        if not self.may(user, permission, rid):
            raise MeteorError(error, reason, {"method": method} if method else None)

    # Presence

    def set_status(self, user, status=None, text=None):
        if status is not None and status not in STATUS_NUMBERS:
            raise MeteorError("error-invalid-status", "Valid status types include online, away, offline, and busy.",
                              {"method": "users.setStatus"})
        if status is not None:
            user["status"] = user["statusDefault"] = status
        if text is not None:
            user["statusText"] = text.strip()
        self.db.put("users", user)
        self.emit_status(user)

    def set_connected(self, identifier, connected):
        user = self.get(identifier)
        wanted = user["statusDefault"] if connected else "offline"
        if user["status"] == wanted:
            return
        user["status"], user["statusConnection"] = wanted, "online" if connected else "offline"
        self.db.put("users", user)
        self.emit_status(user)

    def emit_status(self, user):
        number, text = STATUS_NUMBERS[user["status"]], user.get("statusText", "")
        self.world.streams.emit("stream-notify-user", f"{user['_id']}/userData", {
            "type": "updated", "id": user["_id"], "diff": {"status": user["status"], "statusText": text},
            "unset": {}})
        self.world.streams.emit(
            "stream-notify-logged", "user-status",
            [user["_id"], user["username"], number, text, user["name"], user["roles"]])
        self.world.streams.emit("stream-user-presence", user["_id"], [user["username"], number, text])

    def changed_since(self, moment):
        since = parse_time(moment)
        return [user for user in self.db.find("users") if since is None or user["_updatedAt"]["$date"] > since]

    # Forms of an account

    @staticmethod
    def short(user):
        return {"_id": user["_id"], "username": user["username"], "name": user["name"]}

    @staticmethod
    def public(user):
        keys = ("_id", "type", "status", "active", "name", "utcOffset", "username", "statusText", "nickname", "bio")
        return {key: user[key] for key in keys if key in user}

    @staticmethod
    def full(user):
        return {key: value for key, value in user.items() if key != "services"}

    def me(self, user):
        keys = ("_id", "username", "emails", "name", "status", "statusConnection", "statusDefault", "statusText",
                "utcOffset", "active", "roles", "bio", "nickname", "customFields", "_updatedAt", "createdAt")
        form = {key: user[key] for key in keys if key in user}
        return form | {
            "settings": {"preferences": user["settings"].get("preferences", {})},
            "avatarUrl": f"{self.world.settings['Site_Url']}/avatar/{user['username']}",
            "email": user["emails"][0]["address"]}
