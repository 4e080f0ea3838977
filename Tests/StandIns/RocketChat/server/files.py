"""Uploads: files, the messages that carry them, and the links under which they are downloaded."""

import os.path
import urllib.parse

from .values import MeteorError, length, object_id, random_id

FIELDS_OF_A_MESSAGE = ("avatar", "emoji", "alias", "groupable", "msg", "tmid", "customFields", "t", "content")
UPLOAD_LIFETIME = 86400 * 1000


class Files:
    def __init__(self, world):
        self.world = world
        self.db = world.db

    def get(self, identifier):
        return self.db.get("uploads", identifier)

    def store(self, user, rid, name, kind, data, temporary=False):
        if len(data) > self.world.settings["FileUpload_MaxFileSize"]:
            raise MeteorError("error-file-too-large", "File is too large")
        upload = {
            "_id": object_id(), "name": name, "size": len(data), "type": kind, "rid": rid, "userId": user["_id"],
            "store": "GridFS:Uploads", "complete": True, "uploading": False, "progress": 1,
            "extension": os.path.splitext(name)[1].lstrip("."), "uploadedAt": self.world.clock.date(),
            "typeGroup": kind.split("/")[0]}
        upload["path"] = f"/file-upload/{upload['_id']}/{urllib.parse.quote(name)}"
        if temporary:
            upload["expiresAt"] = {"$date": self.world.clock.milliseconds() + UPLOAD_LIFETIME}
        self.db.put_chunks(upload["_id"], data)
        return self.db.put("uploads", upload)

    def send(self, user, rid, upload, fields):
        """The message that shows an upload. `description` belongs to its attachment, the other fields to itself."""
        description = fields.get("description")
        if length(description or "") > self.world.settings["Message_MaxAllowedSize"]:
            raise MeteorError("error-message-size-exceeded")
        if description is not None:
            upload["description"] = description
        upload.pop("expiresAt", None)
        self.db.put("uploads", upload)
        file = {key: upload[key] for key in ("_id", "name", "type", "size", "typeGroup")}
        file["format"] = ""
        message = {key: fields[key] for key in FIELDS_OF_A_MESSAGE if key in fields} | {
            "_id": random_id(), "rid": rid, "file": file, "files": [file],
            "attachments": [self.attachment(upload)]}
        message.setdefault("msg", "")
        message.setdefault("groupable", False)
        return self.world.messages.execute_send(user, message)

    @staticmethod
    def attachment(upload):
        link = upload["path"]
        form = {
            "title": upload["name"], "type": "file", "title_link": link, "title_link_download": True,
            "fileId": upload["_id"]}
        if "description" in upload:
            form["description"] = upload["description"]
        for kind in ("image", "audio", "video"):
            if upload["type"].startswith(f"{kind}/"):
                return form | {f"{kind}_url": link, f"{kind}_type": upload["type"], f"{kind}_size": upload["size"]}
        return form | {"format": upload["extension"].upper(), "size": upload["size"]}

    def of_room(self, rid):
        files = []
        for upload in self.db.find("uploads", "rid = ? AND json_extract(body, '$.expiresAt') IS NULL", rid):
            user = self.world.people.get(upload["userId"])
            files.append(upload | {"user": self.world.people.short(user) if user else None})
        return sorted(files, key=lambda file: file["name"])

    def remove(self, identifier):
        upload = self.get(identifier)
        if upload:
            self.db.remove("uploads", upload)
            self.db.remove_chunks(identifier)
