"""What messengers send: contents, files, history, groups, published keys, and frames beside the texts of an app."""

import hashlib
import json
import os
import re
from urllib.parse import quote, unquote_to_bytes

from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV, ChaCha20Poly1305

from basics import Reader, number, prefixed, require, sha256, verify
from envelope import (
    CONTROL, TAGS_ONLY, TEXT, DeviceList, base64_text, from_base64, make_body, read_body,
)
from ratchet import Bundle

CHUNK = 65_536


# Contents

UNSEEN = ("delete", "react", "received", "read", "signal", "file", "history")


def make_content(text, tags):
    """A text that people see is of kind 0. Without a text and an act, the tag of a group announces a version."""
    names = [tag.split("=", 1)[0] for tag in tags]
    is_seen = text and not any("+pawl/" + name in names for name in UNSEEN)
    return make_body(TEXT if is_seen else TAGS_ONLY, ";".join(tags).encode(), text, 0)


def read_content(body):
    kind, tags, text = read_body(body)
    require(kind != CONTROL, "a control message")
    return [int(kind == TEXT), text] + sorted(tag for tag in tags.split(b";") if tag.startswith(b"+pawl/"))


def signal_parts(identifier, kind, text):
    pieces = [text[at:at + 1400] for at in range(0, len(text), 1400)]
    return [f"{identifier} {index} {len(pieces)} {kind}\n{piece}" for index, piece in enumerate(pieces)]


def join_signal(parts):
    """The kind and the text."""
    heads, pieces = zip(*(part.split("\n", 1) for part in parts))
    heads = [head.split(" ") for head in heads]
    require(all(head[0] == heads[0][0] and head[3] == heads[0][3] for head in heads), "parts of several signals")
    require([head[1:3] for head in heads] == [[str(i), str(len(parts))] for i in range(len(parts))], "order")
    return heads[0][3], "".join(pieces)


# Files

def file_nonce(index, last):
    return bytes(7) + number(index, 4) + bytes([last])


def seal_file(data, key):
    """The sealed chunks of a file."""
    pieces = [data[at:at + CHUNK] for at in range(0, len(data), CHUNK)] or [b""]
    return [
        ChaCha20Poly1305(key).encrypt(file_nonce(index, index == len(pieces) - 1), piece, None)
        for index, piece in enumerate(pieces)
    ]


def open_file(size, digest, key, blobs):
    chunks = [blob[at:at + CHUNK + 16] for blob in blobs for at in range(0, len(blob), CHUNK + 16)]
    require(sha256(b"".join(chunks)) == digest, "digest of the file")
    data = b"".join(
        ChaCha20Poly1305(key).decrypt(file_nonce(index, index == len(chunks) - 1), chunk, None)
        for index, chunk in enumerate(chunks))
    require(len(data) == size, "size of the file")
    return data


def parts(chunks):
    """Two chunks each."""
    return [b"".join(chunks[at:at + 2]) for at in range(0, len(chunks), 2)]


def make_file_reference(size, digest, key, name, kind, blobs):
    out = b"\x01" + number(size, 8) + digest + key + prefixed(name) + prefixed(kind) + number(len(blobs), 2)
    return base64_text(out + b"".join(prefixed(blob, 1) for blob in blobs))


def read_file_reference(text):
    reader = Reader(from_base64(text))
    require(reader.number(1) == 1, "version of the file reference")
    size, digest, key = reader.number(8), reader.bytes(32), reader.bytes(32)
    name, kind = reader.prefixed(), reader.prefixed()
    blobs = [reader.prefixed(1) for _ in range(reader.number(2))]
    reader.end()
    return size, digest, key, name, kind, blobs


# History

def make_place(stage, before, offset, mark, count, name):
    return (
        bytes([stage]) + number(before, 8) + number(offset, 4) + number(mark, 8) + number(count, 4) + prefixed(name))


def read_place(reader):
    start = reader.at
    stage = reader.number(1)
    require(stage <= 2, "stage")
    reader.bytes(8 + 4 + 8 + 4)
    reader.prefixed()
    return reader.data[start:reader.at]


def make_history_question(place):
    return base64_text(b"\x01" + place)


def make_history_part(place, following, items):
    out = b"\x02" + place + (b"\x01" + following if following else b"\x00")
    for kind, at, offset, total, data in items:
        out += bytes([kind]) + number(at, 8) + number(offset, 4) + number(total, 4) + prefixed(data)
    return base64_text(out)


def read_history(text):
    """The form; a question's place; a part's place, next place, and items."""
    reader = Reader(from_base64(text))
    form = reader.number(1)
    place = read_place(reader)
    if form == 1:
        reader.end()
        return form, place, b"", []
    require(form == 2, "form")
    has_next = reader.number(1)
    require(has_next in (0, 1), "has next")
    following = read_place(reader) if has_next else b""
    items = []
    while reader.remaining:
        kind = reader.number(1)
        require(kind <= 2, "kind of the item")
        items.append((kind, reader.number(8), reader.number(4), reader.number(4), reader.prefixed()))
    return form, place, following, items


# Groups

class GroupVersion:
    def __init__(self, reader):
        start = reader.at
        self.name, self.own = reader.prefixed(), reader.prefixed()
        self.members = [(reader.number(1), reader.prefixed()) for _ in range(reader.number(1))]
        require(all(role <= 2 for role, _ in self.members), "role")
        names = [name for _, name in self.members]
        require(names == sorted(set(names)), "order of the members")
        self.random = reader.bytes(8)
        self.signer, self.device = reader.prefixed(), reader.number(8)
        self.unsigned = reader.data[start:reader.at]
        self.signature = reader.bytes(64)

    @property
    def data(self):
        return self.unsigned + self.signature


def make_group_version(identity, before, name, own, members, signer, device):
    out = prefixed(name) + prefixed(own) + bytes([len(members)])
    for role, account in members:
        out += bytes([role]) + prefixed(account)
    out += os.urandom(8) + prefixed(signer) + number(device, 8)
    return out + identity.sign("pawl group version", before + out)


def read_group(data, keys):
    """The versions of an opened blob and their digests; `keys` has the identity of each device."""
    reader = Reader(data)
    require(reader.number(1) == 1, "version of the group's form")
    before, versions, digests = bytes(32), [], []
    for _ in range(reader.number(1)):
        version = GroupVersion(reader)
        require(version.device in keys, "signer is not known")
        verify(keys[version.device], version.signature, "pawl group version", before + version.unsigned)
        before = sha256(before + version.data)
        versions.append(version)
        digests.append(before)
    reader.end()
    require(versions, "no versions")
    return versions, digests


def seal_group(key, data):
    nonce = os.urandom(12)
    return nonce + AESGCMSIV(key).encrypt(nonce, data, b"pawl group blob")


def open_group(key, sealed):
    return AESGCMSIV(key).decrypt(sealed[:12], sealed[12:], b"pawl group blob")


def make_group_tag(group, digest, key, blob):
    return base64_text(group + digest + key + prefixed(blob, 1))


def read_group_tag(text):
    reader = Reader(from_base64(text))
    group, digest, key, blob = reader.bytes(16), reader.bytes(32), reader.bytes(32), reader.prefixed(1)
    reader.end()
    return group, digest, key, blob


# Published keys

def signed_entry(root, account, device, bundle):
    return root + prefixed(account) + number(device, 8) + bundle


def key_entry(identity, device, bundle, account, root):
    signature = identity.sign("pawl device keys", signed_entry(root, account, device, bundle))
    return number(device, 8) + prefixed(bundle) + signature


def make_published_keys(device_list, entries):
    return b"\x01" + prefixed(device_list) + bytes([len(entries)]) + b"".join(entries)


def read_entry(reader, account, root, identity=None):
    device, bundle, signature = reader.number(8), reader.prefixed(), reader.bytes(64)
    require(identity is None or identity(device) == bundle[2:34], "bundle is another device's")
    verify(Bundle(bundle).identity, signature, "pawl device keys", signed_entry(root, account, device, bundle))
    return device, bundle


def read_published_keys(data, account):
    reader = Reader(data)
    require(reader.number(1) == 1, "form")
    text = reader.prefixed()
    devices = DeviceList.read(text)
    keys = dict(devices.devices)
    entries = [read_entry(reader, account, devices.root, keys.get) for _ in range(reader.number(1))]
    reader.end()
    return text, entries


def make_addition(root, entry):
    return b"\x02" + root + entry


def read_addition(data, account):
    reader = Reader(data)
    require(reader.number(1) == 2, "form")
    root = reader.bytes(32)
    device, bundle = read_entry(reader, account, root)
    reader.end()
    return root, device, bundle


# Beside the texts of an existing app

def make_frame(kind, device, message_id, content):
    places = number(device, 8) + number(message_id, 8) if kind == 1 else b""
    return b"pawl\x01" + bytes([kind]) + places + content


def read_frame(frame):
    reader = Reader(frame)
    require(reader.bytes(4) == b"pawl" and reader.number(1) == 1, "frame")
    kind = reader.number(1)
    require(1 <= kind <= 3, "kind of the frame")
    if kind == 1:
        return kind, reader.number(8), reader.number(8), reader.rest()
    return kind, 0, 0, reader.rest()


# Safety numbers

def fingerprint(identity, account):
    digest = hashlib.sha512(number(1, 2) + identity + account + identity).digest()
    for _ in range(5199):
        digest = hashlib.sha512(digest + identity).digest()
    return digest[:32]


def safety_number(own, other):
    digits = [
        "".join(f"{int.from_bytes(print_[5 * i:5 * i + 5], 'big') % 100_000:05}" for i in range(6))
        for print_ in (own, other)
    ]
    both = "".join(sorted(digits))
    return " ".join(both[at:at + 5] for at in range(0, 60, 5))


# Contact cards

UNRESERVED = "-._~"


def card_sum(name, key):
    return sha256(b"pawl contact card" + prefixed(name) + key)[:6]


def url_base64(data):
    return base64_text(data).replace("+", "-").replace("/", "_")


def make_card(name, key):
    text = quote(name, safe=UNRESERVED)
    return f"pawl:contact?name={text}&key={url_base64(key)}&sum={url_base64(card_sum(name, key))}"


def read_card(uri):
    match = re.fullmatch(r"pawl:contact\?name=([^&]+)&key=([A-Za-z0-9_-]{43})&sum=([A-Za-z0-9_-]{8})", uri)
    require(match, "contact card")
    name = unquote_to_bytes(match.group(1))
    key = from_base64(match.group(2).replace("-", "+").replace("_", "/"))
    require(make_card(name, key) == uri, "sum of the contact card")
    return name, key


def make_card_file(name, key, keys):
    out = b"PAWLCARD\x01" + prefixed(name) + key + prefixed(keys)
    return out + sha256(out)


def read_card_file(data):
    reader = Reader(data)
    require(reader.bytes(8) == b"PAWLCARD" and reader.number(1) == 1, "contact card")
    name, key, keys = reader.prefixed(), reader.bytes(32), reader.prefixed()
    content = data[:reader.at]
    require(reader.bytes(32) == sha256(content), "digest of the contact card")
    reader.end()
    return name, key, keys


# Calls

PAYLOADS = {
    "sdpOffer": ("call", "sdp"), "sdpAnswer": ("call", "sdp"), "iceCandidate": ("candidate",),
    "ciphertext": ("call", "connectionId", "ciphertext"), "groupControl": ("control",), "answered": ("caller",),
    "end": ("endState",),
}
HEAD = ("callId", "call", "from", "to", "stream", "seq")


def make_call_signal(kind, fields):
    """Each field is the JSON of a member: those of the head, then those of the payload as NAME=JSON."""
    signal = {"v": 1, "type": kind, **{name: json.loads(field) for name, field in zip(HEAD, fields)}}
    pairs = [field.split("=", 1) for field in fields[len(HEAD):]]
    signal["payload"] = {name: json.loads(field) for name, field in pairs}
    return json.dumps(signal)


def read_call_signal(text):
    signal = json.loads(text)
    require(signal["v"] == 1 and signal["type"] in PAYLOADS, "signal of a call")
    payload = signal["payload"]
    require(all(name in payload for name in PAYLOADS[signal["type"]]), "member of the payload")
    if "call" in payload:
        call = payload["call"]
        members = ("id", "sharedCommunicationId", "sender", "recipients", "createdAt", "supportsVideo")
        require(all(member in call for member in members), "member of the call")
        for person in [call["sender"], *call["recipients"]]:
            require(set(person) == {"secretName", "nickname", "deviceId"}, "member of a person")
    head = [json.dumps(signal[name]) for name in HEAD]
    return [signal["type"], *head, *(f"{name}={json.dumps(payload[name])}" for name in sorted(payload))]
