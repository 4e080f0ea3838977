"""Envelopes of every kind, what is inside them, and their text forms."""

import base64
import binascii
import os
import re

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from basics import Reader, number, open_sealed, prefixed, require, seal, sha256, verify, verify_plain
from braid import Chain

DIRECT, SEVERAL, ROOM, INTRODUCTION = 1, 2, 3, 4
TEXT, TAGS_ONLY, CONTROL = 0, 1, 2
STORED = 3
HEADER_LENGTH = 17


# Associated data

class Place:
    """Where an envelope goes, which is bound and not sent."""

    def __init__(self, protection, protocol, network, sender, recipient, recipient_device):
        self.protection, self.protocol, self.network = protection, protocol, network
        self.sender, self.recipient, self.recipient_device = sender, recipient, recipient_device

    def associated(self, header, recipient_device=None):
        device = self.recipient_device if recipient_device is None else recipient_device
        fields = [self.protocol, self.network, self.sender, header[1:9]]
        fields += [self.recipient, number(device, 8), header[9:17]]
        return b"pawl-ad1" + bytes([self.protection]) + b"".join(map(prefixed, fields))


def header(kind, sender_device, message_id):
    return bytes([0x10 | kind]) + number(sender_device, 8) + number(message_id, 8)


def contents(envelope, kind):
    """The header and what follows it."""
    reader = Reader(envelope)
    head = reader.bytes(HEADER_LENGTH)
    require(head[0] >> 4 == 1, "version of the envelope")
    require(head[0] & 0x0F == kind, "kind of the envelope")
    return head, reader.rest()


# Kind 1

def seal_direct(session, place, sender_device, message_id, body):
    head = header(DIRECT, sender_device, message_id)
    return head + session.encrypt(body, place.associated(head))


def open_direct(session, place, envelope):
    head, message = contents(envelope, DIRECT)
    return session.decrypt(message, place.associated(head))


# Kind 2

def seal_several(sessions, place, sender_device, message_id, body):
    """`sessions` are pairs of the recipient's device and the session with it."""
    head = header(SEVERAL, sender_device, message_id)
    key = os.urandom(32)
    sealed = seal(key, body, place.associated(head, 0))
    out = head + bytes([len(sessions)])
    for device, session in sessions:
        out += number(device, 8) + prefixed(session.encrypt(key, place.associated(head, device) + sha256(sealed)))
    return out + sealed


def parts_of_several(envelope):
    head, rest = contents(envelope, SEVERAL)
    reader = Reader(rest)
    messages = {}
    for _ in range(reader.number(1)):
        device = reader.number(8)
        messages[device] = reader.prefixed()
    require(messages, "no devices")
    return head, messages, reader.rest()


def open_several(session, place, envelope):
    head, messages, sealed = parts_of_several(envelope)
    require(place.recipient_device in messages, "not for this device")
    associated = place.associated(head) + sha256(sealed)
    key = session.decrypt(messages[place.recipient_device], associated)
    require(len(key) == 32, "length of the content key")
    return open_sealed(key, sealed, place.associated(head, 0))


def padded(plaintext):
    """The body of an envelope that a backend keeps."""
    require(len(plaintext) <= 65_536, "too long")
    body = bytes([STORED]) + number(len(plaintext), 4) + plaintext
    step = 256 if len(body) < 8192 else 512 if len(body) < 16384 else 1024 if len(body) < 32768 else 2048
    return body + bytes(-len(body) % step)


def unpadded(body):
    reader = Reader(body)
    require(reader.number(1) == STORED, "kind of the body")
    plaintext = reader.prefixed(4)
    require(not any(reader.rest()), "padding")
    return plaintext


# Kind 3

class SenderKey:
    """One person's key of a room: the sender's with a signing key, a reader's without."""

    def __init__(self, key_id, iteration, chain_key, public, signing=None):
        self.key_id, self.public, self.signing = key_id, public, signing
        self.chain = Chain(chain_key)
        self.chain.number = iteration

    @classmethod
    def make(cls):
        signing = Ed25519PrivateKey.generate()
        key_id = int.from_bytes(os.urandom(4), "big")
        return cls(key_id, 0, os.urandom(32), signing.public_key().public_bytes_raw(), signing)

    @classmethod
    def read(cls, distribution):
        reader = Reader(distribution)
        require(reader.number(1) == 1, "version of the distribution")
        out = cls(reader.number(4), reader.number(4), reader.bytes(32), reader.bytes(32))
        reader.end()
        return out

    @property
    def distribution(self):
        return b"\x01" + number(self.key_id, 4) + number(self.chain.number, 4) + self.chain.key + self.public

    @staticmethod
    def key_and_nonce(message_key):
        both = HKDF(SHA256(), 44, bytes(32), b"DoubleRatchet/1 sender key").derive(message_key)
        return both[:32], both[32:]

    @staticmethod
    def signed(associated, before):
        return b"DoubleRatchet/1 sender key message\0" + number(len(associated), 8) + associated + before

    def encrypt(self, plaintext, associated):
        out = b"\x01" + number(self.key_id, 4) + number(self.chain.number, 4)
        key, nonce = self.key_and_nonce(self.chain.step())
        out += seal(key, plaintext, self.public + out + associated, nonce)
        return out + self.signing.sign(self.signed(associated, out))

    def decrypt(self, message, associated):
        require(len(message) >= 9 + 16 + 64, "truncated")
        verify_plain(self.public, message[-64:], self.signed(associated, message[:-64]))
        reader = Reader(message[:-64])
        require(reader.number(1) == 1, "version of the message")
        require(reader.number(4) == self.key_id, "key is not known")
        iteration = reader.number(4)
        key, nonce = self.key_and_nonce(self.chain.take(iteration))
        return open_sealed(key, reader.rest(), self.public + message[:9] + associated, nonce)


def seal_room(key, place, sender_device, message_id, body):
    head = header(ROOM, sender_device, message_id)
    return head + key.encrypt(body, place.associated(head))


def open_room(key, place, envelope):
    head, message = contents(envelope, ROOM)
    return key.decrypt(message, place.associated(head))


# Device lists and kind 4

class DeviceList:
    """Versions, each with its devices (id, identity), its signer and its signature."""

    def __init__(self, versions):
        self.versions = versions

    @staticmethod
    def signed(index, previous, signer, devices):
        out = number(index + 1, 4) + previous + number(signer, 8) + bytes([len(devices)])
        return out + b"".join(number(device, 8) + key for device, key in devices)

    @classmethod
    def read(cls, data):
        reader = Reader(data)
        require(reader.number(1) == 1, "version of the list's form")
        count = reader.number(1)
        require(1 <= count <= 12, "versions of the list")
        versions, previous, before, known = [], bytes(64), None, {}
        for index in range(count):
            devices = [(reader.number(8), reader.bytes(32)) for _ in range(reader.number(1))]
            require(1 <= len(devices) <= (6 if versions else 1), "devices of the list")
            require(len({device for device, _ in devices}) == len(devices), "a device twice")
            require(len({key for _, key in devices}) == len(devices), "a key twice")
            require(all(known.setdefault(device, key) == key for device, key in devices), "another key of a device")
            signer, signature = reader.number(8), reader.bytes(64)
            keys = dict(devices if before is None else before)
            require(signer in keys, "signer is not in the list")
            verify(keys[signer], signature, "pawl device list", cls.signed(index, previous, signer, devices))
            versions.append((devices, signer, signature))
            previous, before = signature, devices
        reader.end()
        return cls(versions)

    @property
    def data(self):
        out = bytes([1, len(self.versions)])
        for devices, signer, signature in self.versions:
            out += bytes([len(devices)]) + b"".join(number(device, 8) + key for device, key in devices)
            out += number(signer, 8) + signature
        return out

    def adding(self, devices, signer, identity):
        previous = self.versions[-1][2] if self.versions else bytes(64)
        signature = identity.sign("pawl device list", self.signed(len(self.versions), previous, signer, devices))
        return DeviceList(self.versions + [(devices, signer, signature)])

    @property
    def devices(self):
        return self.versions[-1][0]

    @property
    def root(self):
        return self.versions[0][0][0][1]


def make_introduction(identity, device, message_id, time, device_list, bundle):
    body = b"\x02" + number(time, 8) + prefixed(device_list) + prefixed(bundle)
    signature = identity.sign("pawl introduction", body + number(device, 8))
    return header(INTRODUCTION, device, message_id) + body + signature


def read_introduction(envelope):
    head, rest = contents(envelope, INTRODUCTION)
    reader = Reader(rest)
    require(reader.number(1) == 2, "version of the introduction")
    time, device_list, bundle = reader.number(8), reader.prefixed(), reader.prefixed()
    signed, signature = rest[:reader.at], reader.bytes(64)
    reader.end()
    keys = dict(DeviceList.read(device_list).devices)
    device = int.from_bytes(head[1:9], "big")
    require(device in keys, "device is not in its list")
    require(bundle[2:34] == keys[device], "bundle is another device's")
    verify(keys[device], signature, "pawl introduction", signed + head[1:9])
    return time, device_list, bundle


# Bodies

def make_body(kind, tags, text, length):
    body = bytes([kind]) + prefixed(tags) + prefixed(text)
    return body + bytes(max(0, length - len(body)))


def read_body(body):
    reader = Reader(body)
    kind, tags, text = reader.number(1), reader.prefixed(), reader.prefixed()
    require(kind in (TEXT, TAGS_ONLY, CONTROL), "kind of the body")
    require(not any(reader.rest()), "padding")
    return kind, tags, text


def read_control(body):
    """The number of a control message, and what follows it."""
    kind, tags, text = read_body(body)
    require(kind == CONTROL and not tags and text, "no control message")
    return text[0], text[1:]


def make_sender_key_message(room, distribution, ended):
    """`ended` has the id and the number of messages of each earlier key."""
    numbers = b"".join(number(value, 4) for value in ended)
    return make_body(CONTROL, b"", b"\x03" + prefixed(room) + distribution + numbers, 0)


def read_sender_key_message(body):
    kind, content = read_control(body)
    require(kind == 3, "no sender key")
    reader = Reader(content)
    room, distribution = reader.prefixed(), reader.bytes(73)
    ended = []
    while reader.remaining:
        ended += [reader.number(4), reader.number(4)]
    return [room, distribution] + ended


def make_room_request(identity, device, act, counter, room, network):
    out = bytes([act]) + number(counter, 8) + prefixed(room) + prefixed(network)
    return out + identity.sign("pawl room request", out + number(device, 8))


def read_room_request(data, identity, device):
    reader = Reader(data)
    act, counter, room, network = reader.number(1), reader.number(8), reader.prefixed(), reader.prefixed()
    require(act in (1, 2), "act")
    signed, signature = data[:reader.at], reader.bytes(64)
    reader.end()
    verify(identity, signature, "pawl room request", signed + number(device, 8))
    return act, counter, room, network


# Text forms

def base64_text(data):
    return base64.b64encode(data).decode().rstrip("=")


def from_base64(text):
    require("=" not in text, "padding of Base64")
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error:
        require(False, "Base64")
    require(base64_text(data) == text, "spare bits")
    return data


def armour(envelope):
    return f"?PAWL:{base64_text(envelope)}."


def fragments(envelope, identifier, count):
    size = -(-len(envelope) // count)
    pieces = [envelope[at:at + size] for at in range(0, len(envelope), size)]
    return [
        f"?PAWL:{identifier:08x},{index},{len(pieces)}:{base64_text(piece)}." for index, piece in enumerate(pieces)
    ]


FRAGMENT = re.compile(r"\?PAWL:([0-9a-f]{8}),([0-9]{1,2}),([0-9]{1,2}):([A-Za-z0-9+/]+)\.")
WHOLE = re.compile(r"\?PAWL:([A-Za-z0-9+/]+)\.")


def unarmour(lines):
    whole = WHOLE.fullmatch(lines[0])
    if whole:
        require(len(lines) == 1, "several whole envelopes")
        return from_base64(whole.group(1))
    pieces = {}
    for line in lines:
        match = FRAGMENT.fullmatch(line)
        require(match, "armour")
        identifier, index, count, text = match.groups()
        pieces[int(index)] = (identifier, int(count), from_base64(text))
    require(len({piece[:2] for piece in pieces.values()}) == 1, "fragments of several envelopes")
    count = pieces[min(pieces)][1]
    require(2 <= count <= 16 and sorted(pieces) == list(range(count)), "missing fragment")
    return b"".join(pieces[index][2] for index in range(count))


# Control plane

def control_lines(identifier, message):
    pieces = [message[at:at + 270] for at in range(0, len(message), 270)]
    return [f"PAWL {identifier} {index} {len(pieces)} :{base64_text(piece)}" for index, piece in enumerate(pieces)]


CONTROL_LINE = re.compile(r"(?::\S+ )?PAWL (\*|[0-9]+) ([0-9]+) ([0-9]+) :([A-Za-z0-9+/]*)")


def join_control_lines(lines):
    """The id and the message."""
    pieces = []
    for index, line in enumerate(lines):
        match = CONTROL_LINE.fullmatch(line)
        require(match, "line of the control plane")
        require(int(match.group(2)) == index and int(match.group(3)) == len(lines), "order of the lines")
        pieces.append((match.group(1), from_base64(match.group(4))))
    require(len({identifier for identifier, _ in pieces}) == 1, "lines of several messages")
    return pieces[0][0], b"".join(piece for _, piece in pieces)


def publish_message(identity, nonce, account, device_list, device):
    signed = nonce + prefixed(account) + prefixed(device_list) + device
    return b"\x10" + prefixed(device_list) + prefixed(device) + identity.sign("pawl directory", signed)


def read_publish(message, nonce, account):
    reader = Reader(message)
    require(reader.number(1) == 16, "number of the message")
    device_list, device, signature = reader.prefixed(), reader.prefixed(), reader.bytes(64)
    reader.end()
    entry = read_device(device)
    keys = dict(DeviceList.read(device_list).devices)
    require(entry[0] in keys and keys[entry[0]] == entry[1][2:34], "device is not in its list")
    verify(keys[entry[0]], signature, "pawl directory", nonce + prefixed(account) + prefixed(device_list) + device)
    return device_list, device


def read_device(data):
    """The id, the bundle and the one-time prekeys."""
    reader = Reader(data)
    device, bundle, prekeys = reader.number(8), reader.prefixed(), reader.prefixed()
    reader.end()
    require(len(prekeys) % 36 == 0 and len(prekeys) <= 3600, "one-time prekeys")
    return device, bundle, [prekeys[at:at + 36] for at in range(0, len(prekeys), 36)]


def make_device(device, bundle, prekeys):
    return number(device, 8) + prefixed(bundle) + prefixed(prekeys)


def make_found(account, device_list, devices):
    return b"\x22\x02" + prefixed(account) + prefixed(device_list) + b"".join(map(prefixed, devices))


def read_found(message):
    reader = Reader(message)
    require(reader.number(1) == 34, "number of the message")
    kind = reader.number(1)
    if kind != 2:
        reader.end()
        return kind, b"", b"", []
    account, device_list = reader.prefixed(), reader.prefixed()
    devices = []
    while reader.remaining:
        devices.append(reader.prefixed())
    return kind, account, device_list, devices


CHALLENGE, LOW, FIND, REPLENISH, LIST, DONE, REFUSED = 1, 2, 17, 18, 19, 32, 33


def control_plane_content(kind, words):
    """The content of a message that is not signed, from its fields as words."""
    if kind == DONE:
        return number(int(words[0]), 1)
    return b"".join(map(bytes.fromhex, words))


def read_control_plane(message):
    """The number and the fields of a message that is not signed."""
    reader = Reader(message)
    kind = reader.number(1)
    require(kind in (CHALLENGE, LOW, FIND, REPLENISH, LIST, DONE, REFUSED), "number of the message")
    fields = [kind]
    if kind == CHALLENGE:
        fields.append(reader.bytes(32))
    if kind == DONE:
        fields.append(reader.number(1))
    elif kind != LOW:
        fields.append(reader.rest())
    reader.end()
    return fields


# A stored content key

def content_key_place(message_id, digest, expiry, conversation):
    halves = (int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big"))
    return f"content key {message_id} {halves[0]} {halves[1]} {expiry} ".encode() + conversation
