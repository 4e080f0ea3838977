"""Accounts, profiles, presence and status."""

import datetime
import hashlib
import hmac
import os
import secrets
import time

from .emoji import emoji
from .errors import RequestError, invalid_api_key, not_logged_in

BOT_EMAIL = "notification-bot@zulip.com"
STATUS_LIMIT = 60
# Ours, because the machine of a test may be busy; the server's are 140.
ONLINE_SECONDS = 3600
OWNER, ADMINISTRATOR, MEMBER = 100, 200, 400


def hashed(password, salt):
    return hashlib.scrypt(password.encode(), salt=salt, n=2048, r=8, p=1)


def avatar(email):
    digest = hashlib.md5(email.lower().encode(), usedforsecurity=False).hexdigest()
    return f"https://secure.gravatar.com/avatar/{digest}?d=identicon&version=1"


class People:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    # MARK: Accounts

    def add(self, email, password, full_name, role=MEMBER, is_bot=False):
        """Adds an account unless there is one with this address."""
        if self.find(email) is not None:
            return
        salt = os.urandom(16)
        self.store.insert(
            "users", email=email, full_name=full_name, api_key=secrets.token_hex(16), salt=salt,
            password=hashed(password, salt), role=role, is_bot=is_bot, joined=time.time(),
            realm="zulipinternal" if is_bot else "")

    def bot(self):
        return self.find(BOT_EMAIL)

    def find(self, which):
        """A user by id or by address; None if there is none."""
        if isinstance(which, int):
            return self.store.one("SELECT * FROM users WHERE id = ?", which)
        return self.store.one("SELECT * FROM users WHERE email = ?", str(which))

    def by_mention(self, text):
        """Whom `@**Name**` or `@**Name|id**` means."""
        name, _, number = text.rpartition("|")
        if number.isdigit() and text != number:
            person = self.find(int(number))
            return person if person is not None and name in ("", person["full_name"]) else None
        return self.store.one("SELECT * FROM users WHERE folded(full_name) = ? ORDER BY id", text.casefold())

    def everyone(self):
        return self.store.all("SELECT * FROM users WHERE NOT is_bot ORDER BY id")

    def ids(self):
        return [person["id"] for person in self.everyone()]

    def authenticated(self, authorization):
        """The person that an `Authorization` header names."""
        if authorization is None:
            raise not_logged_in()
        email, key = authorization
        if not (len(key) == 32 and key.isalnum()):
            raise invalid_api_key("Malformed API key")
        person = self.find(email)
        if person is None or not hmac.compare_digest(person["api_key"].encode(), key.encode()):
            raise invalid_api_key()
        return person

    def fetch_api_key(self, call):
        email = call.parameters.text("username")
        password = call.parameters.text("password")
        person = self.find(email)
        if person is None or person["is_bot"] or not hmac.compare_digest(
                hashed(password, person["salt"]), person["password"]):
            raise RequestError("Your username or password is incorrect", "AUTHENTICATION_FAILED", 401)
        return {"api_key": person["api_key"], "email": person["email"], "user_id": person["id"]}

    # MARK: Profiles

    def profile(self, person, client_gravatar=True):
        joined = datetime.datetime.fromtimestamp(person["joined"], datetime.UTC).isoformat(timespec="minutes")
        return {
            "avatar_url": None if client_gravatar else avatar(person["email"]), "avatar_version": 1,
            "date_joined": joined, "delivery_email": person["email"], "email": person["email"],
            "full_name": person["full_name"], "is_active": True, "is_admin": person["role"] <= ADMINISTRATOR,
            "is_bot": bool(person["is_bot"]), "is_guest": False, "is_owner": person["role"] == OWNER,
            "bot_type": 1 if person["is_bot"] else None, "role": person["role"], "timezone": "",
            "user_id": person["id"],
        }

    def own(self, call):
        last = self.store.value("SELECT MAX(message) FROM user_messages WHERE user = ?", call.user["id"])
        # -1 stands for an account without messages.
        profile = self.profile(call.user, client_gravatar=False)
        del profile["bot_type"]
        return profile | {"max_message_id": -1 if last is None else last, "profile_data": {}}

    def all(self, call):
        gravatar = call.parameters.boolean("client_gravatar", True)
        call.parameters.boolean("include_custom_profile_fields", False)
        return {"members": [self.profile(person, gravatar) for person in self.everyone()]}

    def one(self, call):
        gravatar = call.parameters.boolean("client_gravatar", True)
        call.parameters.boolean("include_custom_profile_fields", False)
        return {"user": self.profile(self.named(call.path["who"]), gravatar)}

    def named(self, which):
        person = self.find(int(which) if which.isdigit() else which)
        if person is None:
            raise RequestError("No such user")
        return person

    # MARK: Presence

    def presence_of(self, person, now):
        """The legacy format, which answers use by default."""
        if person["idle"] is None:
            return None
        isActive = person["active"] is not None and now - person["active"] < ONLINE_SECONDS
        shared = {"status": "active" if isActive else "idle", "timestamp": int(person["idle"])}
        return {"aggregated": {"client": "website", **shared}, "website": {"client": "website", **shared, "pushable": False}}

    def presences(self, slim=False):
        now = time.time()
        people = [person for person in self.everyone() if person["idle"] is not None]
        if slim:
            return {
                str(person["id"]): {"active_timestamp": int(person["active"] or 0), "idle_timestamp": int(person["idle"])}
                for person in people}
        return {person["email"]: self.presence_of(person, now) for person in people}

    def update_presence(self, call):
        status = call.parameters.choice("status", ("active", "idle"))
        ping_only = call.parameters.boolean("ping_only", False)
        call.parameters.boolean("new_user_input", False)
        slim = call.parameters.boolean("slim_presence", False)
        call.parameters.integer("last_update_id", None)
        call.parameters.integer("history_limit_days", None)
        now = time.time()
        self.store.run("UPDATE users SET idle = ? WHERE id = ?", now, call.user["id"])
        if status == "active":
            self.store.run("UPDATE users SET active = ? WHERE id = ?", now, call.user["id"])
        person = self.find(call.user["id"])
        self.server.queues.send(self.ids(), {
            "type": "presence", "user_id": person["id"], "email": person["email"], "server_timestamp": now,
            "presence": {"website": self.presence_of(person, now)["website"]}})
        if ping_only:
            return {}
        return {"presences": self.presences(slim), "server_timestamp": now}

    def realm_presence(self, call):
        return {"presences": self.presences(), "server_timestamp": time.time()}

    def presence(self, call):
        presence = self.presence_of(self.named(call.path["who"]), time.time())
        if presence is None:
            raise RequestError(f"No presence data for {call.path['who']}")
        return {"presence": {
            client: {key: value for key, value in members.items() if key in ("status", "timestamp")}
            for client, members in presence.items()}}

    # MARK: Status

    @staticmethod
    def status_of(person):
        return {
            **({"status_text": person["status_text"]} if person["status_text"] else {}),
            **({"emoji_name": person["emoji_name"], "emoji_code": person["emoji_code"],
                "reaction_type": person["emoji_type"]} if person["emoji_name"] else {}),
        }

    def status(self, call):
        return {"status": self.status_of(self.named(call.path["who"]))}

    def update_status(self, call):
        text = call.parameters.text("status_text", None, limit=STATUS_LIMIT, strip=True)
        away = call.parameters.boolean("away", None)
        name = call.parameters.text("emoji_name", None)
        code = call.parameters.text("emoji_code", None)
        kind = call.parameters.text("reaction_type", None)
        if text is None and away is None and name is None:
            raise RequestError("Client did not pass any new values.")
        event = {"type": "user_status", "user_id": call.user["id"]}
        if away is not None:
            event["away"] = away
        if text is not None:
            event["status_text"] = text
            self.store.run("UPDATE users SET status_text = ? WHERE id = ?", text, call.user["id"])
        if name is not None:
            chosen = emoji(name, code, kind) if name else ("", "", "unicode_emoji")
            event |= {"emoji_name": chosen[0], "emoji_code": chosen[1], "reaction_type": chosen[2]}
            self.store.run(
                "UPDATE users SET emoji_name = ?, emoji_code = ?, emoji_type = ? WHERE id = ?", *chosen, call.user["id"])
        self.server.queues.send(self.ids(), event)
        return {}
