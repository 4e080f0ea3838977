"""A direct connection between two devices: handshake, records and frames."""

import json

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from basics import Reader, agree, hkdf, number, open_sealed, prefixed, require, seal, verify
from envelope import base64_text, from_base64

HELLO, ANSWER, FINISH, RECORD = 1, 2, 3, 4
INITIATOR, RESPONDER = "pawl p2p initiator", "pawl p2p responder"


class Connection:
    """`own` and `other` are pairs of a device and its identity (the own one with its private key)."""

    def __init__(self, initiates, own, other, connection, secret, transport):
        self.initiates, self.own, self.other = initiates, own, other
        self.connection, self.secret, self.transport = connection, secret, transport
        self.ephemeral = X25519PrivateKey.generate()
        self.sent = self.received = 0

    @property
    def public(self):
        return self.ephemeral.public_key().public_bytes_raw()

    def agree(self, remote):
        own = number(self.own[0], 8) + self.own[1].public
        other = number(self.other[0], 8) + self.other[1]
        devices = own + other if self.initiates else other + own
        publics = self.public + remote if self.initiates else remote + self.public
        self.transcript = (
            b"pawl p2p\x01" + self.connection + prefixed(self.transport, 1) + devices + publics)
        secret = b"\xff" * 32 + agree(self.ephemeral, remote) + self.secret
        self.answer_key, self.finish_key, *records = hkdf(bytes(32), secret, self.transcript, 4)
        self.sending, self.receiving = records if self.initiates else records[::-1]

    def hello(self):
        return bytes([HELLO, 1]) + self.connection + self.public

    def receive_hello(self, packet):
        """The answer."""
        reader = Reader(packet)
        require(reader.bytes(2) == bytes([HELLO, 1]), "hello")
        require(reader.bytes(16) == self.connection, "connection")
        self.agree(reader.bytes(32))
        reader.end()
        signature = self.own[1].sign(RESPONDER, self.transcript)
        return bytes([ANSWER, 1]) + self.public + seal(self.answer_key, signature, b"")

    def receive_answer(self, packet):
        """The finish."""
        reader = Reader(packet)
        require(reader.bytes(2) == bytes([ANSWER, 1]), "answer")
        self.agree(reader.bytes(32))
        verify(self.other[1], open_sealed(self.answer_key, reader.rest(), b""), RESPONDER, self.transcript)
        signature = self.own[1].sign(INITIATOR, self.transcript)
        return bytes([FINISH]) + seal(self.finish_key, signature, b"")

    def receive_finish(self, packet):
        reader = Reader(packet)
        require(reader.number(1) == FINISH, "finish")
        verify(self.other[1], open_sealed(self.finish_key, reader.rest(), b""), INITIATOR, self.transcript)

    def seal(self, frame):
        self.sent += 1
        return b"\x04" + seal(self.sending, frame, b"\x04", number(self.sent - 1, 12))

    def open(self, packet):
        require(packet[:1] == b"\x04", "record")
        frame = open_sealed(self.receiving, packet[1:], b"\x04", number(self.received, 12))
        self.received += 1
        return read_frame(frame)


def make_frame(kind, value, content):
    if kind in (1, 2):
        return bytes([kind]) + number(value, 8) + content
    return bytes([kind, value]) + content if kind == 3 else bytes([kind])


def read_frame(frame):
    """The kind, the number or the flags, and the rest."""
    reader = Reader(frame)
    kind = reader.number(1)
    if kind == 1:
        return kind, reader.number(8), reader.rest()
    if kind == 2:
        value = reader.number(8)
        reader.end()
        return kind, value, b""
    if kind == 3:
        return kind, reader.number(1), reader.rest()
    require(kind == 4, "kind of the frame")
    reader.end()
    return kind, 0, b""


def make_magic_packet(connection, secret, transport, text, metadata, instead):
    packet = {
        "version": 1, "kind": "packet", "connection": base64_text(connection), "transport": transport.decode(),
        "text": text.decode(), "metadata": metadata.decode(),
    }
    if secret:
        packet["secret"] = base64_text(secret)
    if instead:
        packet["instead"] = base64_text(instead)
    return json.dumps(packet)


def make_refusal(connection, transport):
    return json.dumps({
        "version": 1, "kind": "refused", "connection": base64_text(connection), "transport": transport.decode()})


def read_magic_packet(text):
    packet = json.loads(text)
    require(packet["version"] == 1, "version of the magic packet")
    connection, transport = from_base64(packet["connection"]), packet["transport"].encode()
    require(len(connection) == 16, "connection")
    if packet["kind"] == "refused":
        return ["refused", connection, transport]
    require(packet["kind"] == "packet", "kind of the magic packet")
    secret, instead = (from_base64(packet.get(name, "")) for name in ("secret", "instead"))
    require(len(secret) in (0, 32) and len(instead) in (0, 16), "secret or connection")
    return ["packet", connection, secret, transport, packet["text"].encode(), packet["metadata"].encode(), instead]
