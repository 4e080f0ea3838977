"""Uploaded files, their temporary addresses, and which messages refer to them."""

import re
import secrets
import time

from aiohttp import web

from . import version
from .errors import RequestError

# Ours, because the machine of a test may be busy; the server's are 60.
TOKEN_SECONDS = 600
TOKEN_LIMIT = 1_000


def path_name(name):
    """The name as it stands in the address."""
    name = re.sub(r"[^\w\s.-]", "", name).strip()
    name = re.sub(r"[-\s]+", "-", name)
    return name if name.strip(".") else "uploaded-file"


class Uploads:
    LIMIT_MIB = 25

    def __init__(self, server):
        self.server = server
        self.store = server.store
        self.tokens = {}

    def object(self, row):
        messages = self.store.all(
            "SELECT m.id, m.sent FROM messages m, attachment_messages a WHERE a.message = m.id AND a.attachment = ?"
            " ORDER BY m.id", row["id"])
        return {
            "id": row["id"], "name": row["name"], "path_id": row["path"], "size": row["size"],
            "create_time": int(row["created"]) * 1000,
            "messages": [{"id": each["id"], "date_sent": int(each["sent"]) * 1000} for each in messages]}

    def rows(self, condition, *values):
        return self.store.all(
            "SELECT id, owner, name, path, type, created, LENGTH(data) AS size FROM attachments"
            f" WHERE {condition} ORDER BY id", *values)

    def space_used(self):
        return self.store.value("SELECT COALESCE(SUM(LENGTH(data)), 0) FROM attachments")

    def add(self, call):
        if not call.files:
            raise RequestError("You must specify a file to upload")
        if len(call.files) != 1:
            raise RequestError("You may only upload one file at a time")
        name, kind, data = call.files[0]
        if len(data) > self.LIMIT_MIB << 20:
            raise RequestError(f"Uploaded file is larger than the allowed limit of {self.LIMIT_MIB} MiB")
        stored = path_name(name)
        path = f"{version.REALM_ID}/{secrets.token_hex(1)}/{secrets.token_urlsafe(18)}/{stored}"
        number = self.store.insert(
            "attachments", owner=call.user["id"], name=name, path=path, type=kind, created=time.time(), data=data)
        self.notify(call.user["id"], "add", number)
        return {"uri": "/user_uploads/" + path, "url": "/user_uploads/" + path, "filename": name}

    def notify(self, user, operation, number):
        row = self.rows("id = ?", number)[0]
        attachment = {"id": number} if operation == "remove" else self.object(row)
        self.server.queues.send([user], {
            "type": "attachment", "op": operation, "attachment": attachment, "upload_space_used": self.space_used()})

    def all(self, call):
        rows = self.rows("owner = ?", call.user["id"])
        return {"attachments": [self.object(row) for row in rows], "upload_space_used": self.space_used()}

    def remove(self, call):
        number = int(call.path["attachment"])
        rows = self.rows("id = ? AND owner = ?", number, call.user["id"])
        if not rows:
            raise RequestError("Invalid attachment")
        self.store.run("DELETE FROM attachments WHERE id = ?", number)
        self.store.run("DELETE FROM attachment_messages WHERE attachment = ?", number)
        self.server.queues.send([call.user["id"]], {
            "type": "attachment", "op": "remove", "attachment": {"id": number}, "upload_space_used": self.space_used()})
        return {}

    # MARK: References

    def may_read(self, user, row):
        if row["owner"] == user:
            return True
        for number in self.store.column("SELECT message FROM attachment_messages WHERE attachment = ?", row["id"]):
            try:
                self.server.messages.accessed(user, number)
            except RequestError:
                continue
            return True
        return False

    def refer(self, message, paths, user):
        """Notes that a message of this person refers to files that they may read."""
        for path in sorted(paths):
            for row in self.rows("path = ?", path):
                if self.may_read(user, row):
                    self.store.run(
                        "INSERT OR IGNORE INTO attachment_messages VALUES (?, ?)", row["id"], message)
                    self.notify(row["owner"], "update", row["id"])

    def refer_anew(self, message, paths, user):
        """After an edit: returns the person's files that no message refers to any more."""
        before = self.rows("id IN (SELECT attachment FROM attachment_messages WHERE message = ?)", message)
        dropped = [row for row in before if row["path"] not in paths]
        for row in dropped:
            self.store.run("DELETE FROM attachment_messages WHERE attachment = ? AND message = ?", row["id"], message)
            self.notify(row["owner"], "update", row["id"])
        self.refer(message, set(paths) - {row["path"] for row in before}, user)
        return [
            self.object(row) for row in dropped if row["owner"] == user and not self.store.one(
                "SELECT 1 FROM attachment_messages WHERE attachment = ?", row["id"])]

    # MARK: Reading

    def temporary(self, call):
        path = f"{call.path['realm']}/{call.path['name']}"
        rows = self.rows("path = ?", path)
        if not rows:
            return web.Response(status=404, text="<p>File not found.</p>", content_type="text/html")
        if not self.may_read(call.user["id"], rows[0]):
            return web.Response(
                status=403, text="<p>You are not authorized to view this file.</p>", content_type="text/html")
        now = time.monotonic()
        self.tokens = {token: each for token, each in self.tokens.items() if each[1] > now}
        if len(self.tokens) >= TOKEN_LIMIT:
            del self.tokens[next(iter(self.tokens))]
        token = secrets.token_hex(32)
        self.tokens[token] = (rows[0]["id"], now + TOKEN_SECONDS)
        return {"url": f"/user_uploads/temporary/{token}/{path.rpartition('/')[2]}"}

    async def download(self, request):
        number, until = self.tokens.get(request.match_info["token"], (None, 0))
        row = self.store.one("SELECT * FROM attachments WHERE id = ?", number)
        if row is None or until < time.monotonic():
            return web.Response(status=403, text="<p>Invalid token</p>", content_type="text/html")
        name = row["path"].rpartition("/")[2]
        plain = name.encode("ascii", "replace").decode()
        return web.Response(body=row["data"], headers={
            "Content-Type": row["type"], "Content-Disposition": f'attachment; filename="{plain}"',
            "Cache-Control": "private, immutable", "Content-Security-Policy": "default-src 'none'"})
