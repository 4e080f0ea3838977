"""Bundles, PQXDH and the Triple Ratchet."""

import copy
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM1024PrivateKey, MLKEM1024PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from basics import (
    Identity, Reader, Refused, agree, hkdf, montgomery, number, open_sealed, require, seal, sha256, varint, verify,
)
from braid import NONE, Chain, PostQuantumRatchet

# Version 2 has headers as long as their content, version 3 has padded ones.
EXACT, PADDED, BRAID_VERSION = 0x20, 0x30, 0x10
HAS_PREKEY_PART, NAMES_ONE_TIME = 1, 2
# In the id of a signed prekey: its device reads version 3.
READS_PADDED = 1 << 31


def raw(private):
    return private.public_key().public_bytes_raw()


class Bundle:
    def __init__(self, data):
        reader = Reader(data)
        require(reader.number(1) == 1, "version of the bundle")
        flags = reader.number(1)
        require(flags in (0, 1), "flags of the bundle")
        self.identity = reader.bytes(32)
        self.signed_id, self.signed = reader.number(4), reader.bytes(32)
        verify(self.identity, reader.bytes(64), "prekey signed", number(self.signed_id, 4) + self.signed)
        kem = reader.bytes(4 + 1 + 1568)
        self.kem_id, self.last_resort, self.kem = int.from_bytes(kem[:4], "big"), kem[4], kem[5:]
        require(self.last_resort in (0, 1), "last resort")
        verify(self.identity, reader.bytes(64), "prekey ML-KEM-1024", kem)
        self.one_time = (reader.number(4), reader.bytes(32)) if flags else None
        reader.end()


class Prekeys:
    """A device's identity and the private halves of what it publishes. It may know version 2 only."""

    def __init__(self, reads_padded=True):
        self.identity = Identity(os.urandom(32))
        self.reads_padded = reads_padded
        self.signed_id, self.signed = 7 | (READS_PADDED if reads_padded else 0), X25519PrivateKey.generate()
        self.kem_id, self.last_resort, self.kem = 9, 1, MLKEM1024PrivateKey.generate()
        self.one_time = {}

    def bundle(self, one_time):
        signed = number(self.signed_id, 4) + raw(self.signed)
        kem = number(self.kem_id, 4) + bytes([self.last_resort]) + raw(self.kem)
        out = bytes([1, int(one_time)]) + self.identity.public
        out += signed + self.identity.sign("prekey signed", signed)
        out += kem + self.identity.sign("prekey ML-KEM-1024", kem)
        return out + self.one_time_prekey() if one_time else out

    def one_time_prekey(self):
        identifier = 100 + len(self.one_time)
        self.one_time[identifier] = X25519PrivateKey.generate()
        return number(identifier, 4) + raw(self.one_time[identifier])


def transcript(has_one_time, responder, keys, prekey_part):
    return bytes([has_one_time]) + responder + b"".join(keys) + prekey_part


def agreed_keys(agreements, kem_secret, text):
    info = b"DoubleRatchet/2 PQXDH CURVE25519 SHA-256 ML-KEM-1024" + sha256(text)
    return hkdf(bytes(32), b"\xff" * 32 + b"".join(agreements) + kem_secret, info, 4)


def padded_length(*counters):
    """Of a header in version 3, by N, PN, epoch and number."""
    return 75 if max(counters) < 16_384 else 85


def hint(header_key, sealed_header):
    block = sealed_header[-16:-1] + b"\xff"
    return Cipher(algorithms.AES(header_key), modes.ECB()).encryptor().update(block)[:1]


class Session:
    @classmethod
    def initiate(cls, own, bundle):
        ephemeral = X25519PrivateKey.generate()
        kem_secret, ciphertext = MLKEM1024PublicKey.from_public_bytes(bundle.kem).encapsulate()
        agreements = [
            agree(own.identity.agreement, bundle.signed), agree(ephemeral, montgomery(bundle.identity)),
            agree(ephemeral, bundle.signed),
        ]
        part = own.identity.public + raw(ephemeral) + number(bundle.signed_id, 4) + number(bundle.kem_id, 4)
        part += ciphertext
        keys = [bundle.signed, bytes([bundle.last_resort]), bundle.kem]
        if bundle.one_time is not None:
            part += number(bundle.one_time[0], 4)
            keys.append(bundle.one_time[1])
            agreements.append(agree(ephemeral, bundle.one_time[1]))
        text = transcript(bundle.one_time is not None, bundle.identity, keys, part)
        root, post_quantum, own_header, next_header = agreed_keys(agreements, kem_secret, text)
        version = PADDED if own.reads_padded and bundle.signed_id & READS_PADDED else EXACT
        self = cls(own.identity.public, bundle.identity, True, part, post_quantum, version)
        self.root, self.receiving_next = root, next_header
        self.ratchet = X25519PrivateKey.generate()
        self.remote = bundle.signed
        self.root, key, self.sending_next = hkdf(root, agree(self.ratchet, self.remote), b"DoubleRatchet/2 root", 3)
        self.sending, self.sending_header = Chain(key), own_header
        return self

    @classmethod
    def respond(cls, own, part, version):
        require(own.reads_padded or version == EXACT, "version of the ratchet message")
        reader = Reader(part)
        identity, ephemeral = reader.bytes(32), reader.bytes(32)
        require(reader.number(4) == own.signed_id, "signed prekey is not known")
        require(reader.number(4) == own.kem_id, "KEM prekey is not known")
        ciphertext = reader.bytes(1568)
        agreements = [
            agree(own.signed, montgomery(identity)), agree(own.identity.agreement, ephemeral),
            agree(own.signed, ephemeral),
        ]
        keys = [raw(own.signed), bytes([own.last_resort]), raw(own.kem)]
        one_time = None
        if reader.remaining:
            one_time = reader.number(4)
            require(one_time in own.one_time, "one-time prekey was used")
            keys.append(raw(own.one_time[one_time]))
            agreements.append(agree(own.one_time[one_time], ephemeral))
        text = transcript(one_time is not None, own.identity.public, keys, part)
        root, post_quantum, header, next_header = agreed_keys(agreements, own.kem.decapsulate(ciphertext), text)
        self = cls(identity, own.identity.public, False, part, post_quantum, version)
        self.root, self.receiving_next, self.sending_next = root, header, next_header
        self.ratchet = own.signed
        self.one_time = one_time
        return self

    def __init__(self, initiator, responder, is_initiator, part, post_quantum, version):
        self.version = version
        self.identities = initiator + responder
        self.is_initiator = is_initiator
        self.part = part
        self.confirmed = not is_initiator
        self.post_quantum = PostQuantumRatchet(post_quantum, is_initiator)
        self.sending = self.sending_header = None
        self.receiving = self.receiving_header = None
        self.remote = None
        self.previous = 0
        self.older = []  # (header key, chain) of chains that ended
        self.last_kind = NONE
        self.was_late = False

    @property
    def identifier(self):
        return sha256(self.part)

    @property
    def remote_identity(self):
        return self.identities[32:] if self.is_initiator else self.identities[:32]

    def encrypt(self, plaintext, associated):
        epoch, kind, pq_number, chunk, pq_key = self.post_quantum.send()
        header = raw(self.ratchet) + varint(self.sending.number) + varint(self.previous)
        header += bytes([BRAID_VERSION | kind]) + varint(epoch) + varint(pq_number)
        if chunk is not None:
            header += varint(chunk[0]) + chunk[1]
        if self.version == PADDED:
            length = padded_length(self.sending.number, self.previous, epoch, pq_number)
            header += bytes(length - len(header))
        flags = 0
        if not self.confirmed:
            flags = HAS_PREKEY_PART | (NAMES_ONE_TIME if len(self.part) == 1644 else 0)
        first = bytes([self.version | flags])
        sealed = seal(self.sending_header, header, first)
        message = first + (b"" if self.confirmed else self.part)
        message += bytes([len(header)]) + hint(self.sending_header, sealed) + sealed
        key = message_key(pq_key, self.sending.step())
        self.last_kind = kind
        return message + seal(key, plaintext, self.identities + message + associated)

    def decrypt(self, message, associated):
        """The plaintext; what is refused changes nothing."""
        after = copy.copy(self)
        after.post_quantum = copy.deepcopy(self.post_quantum)
        after.older, after.receiving = copy.deepcopy((self.older, self.receiving))
        plaintext = after.decrypt_in_place(message, associated)
        self.__dict__ = after.__dict__
        return plaintext

    def decrypt_in_place(self, message, associated):
        form = MessageForm(message)
        if form.part is not None:
            require(form.part == self.part, "prekey part is another session's")
        require(form.version == self.version, "version is not the session's")
        header, chain = self.open_header(form)
        reader = Reader(header)
        remote, n, previous = reader.bytes(32), reader.varint(), reader.varint()
        kind = reader.number(1)
        require(kind & 0xF0 == BRAID_VERSION, "version of the post-quantum ratchet")
        kind &= 0x0F
        require(kind <= 5, "kind of the chunk")
        epoch, pq_number = reader.varint(), reader.varint()
        chunk = None if kind == NONE else (reader.varint(), reader.bytes(32))
        require(chunk is None or chunk[0] < 16_384, "number of the chunk")
        if self.version == PADDED:
            require(len(header) == padded_length(n, previous, epoch, pq_number), "length of the header")
            require(not any(reader.rest()), "bytes after the header")
        reader.end()
        if chain is None:
            self.turn(remote, previous)
            chain = self.receiving
        pq_key = self.post_quantum.receive(epoch, kind, pq_number, chunk)
        self.was_late = n < chain.number
        key = message_key(pq_key, chain.take(n))
        plaintext = open_sealed(key, form.ciphertext, self.identities + form.authenticated + associated)
        self.confirmed = True
        self.last_kind = kind
        return plaintext

    def open_header(self, form):
        """The header, and its chain; None for the chain that it begins."""
        candidates = [(self.receiving_header, self.receiving), (self.receiving_next, None), *self.older]
        for key, chain in candidates:
            if key is None or hint(key, form.header) != form.hint:
                continue
            try:
                return open_sealed(key, form.header, form.first), chain
            except InvalidTag:
                continue
        raise Refused("no header key opens the header")

    def turn(self, remote, previous):
        if self.receiving is not None:
            while self.receiving.number < previous:
                at = self.receiving.number
                require(previous - at <= 2000, "too many skipped messages")
                self.receiving.skipped[at] = self.receiving.step()
            self.older.append((self.receiving_header, self.receiving))
        self.remote = remote
        self.previous = self.sending.number if self.sending is not None else 0
        self.receiving_header, self.sending_header = self.receiving_next, self.sending_next
        self.root, key, self.receiving_next = hkdf(self.root, agree(self.ratchet, remote), b"DoubleRatchet/2 root", 3)
        self.receiving = Chain(key)
        self.ratchet = X25519PrivateKey.generate()
        self.root, key, self.sending_next = hkdf(self.root, agree(self.ratchet, remote), b"DoubleRatchet/2 root", 3)
        self.sending = Chain(key)


class Sessions:
    """All sessions with one device: the current one, which sends, and earlier ones, which only receive."""

    KEPT = 2

    def __init__(self, own):
        self.own = own
        self.current = None
        self.earlier = []

    def begin(self, bundle):
        self.replace(Session.initiate(self.own, bundle))

    def replace(self, session):
        if self.current is not None:
            self.earlier.insert(0, self.current)
            del self.earlier[self.KEPT:]
        self.current = session

    @property
    def leads(self):
        return self.own.identity.public < self.current.remote_identity

    def encrypt(self, plaintext, associated):
        return self.current.encrypt(plaintext, associated)

    def decrypt(self, message, associated):
        for session in [self.current, *self.earlier]:
            if session is None:
                continue
            try:
                plaintext = session.decrypt(message, associated)
            except (Refused, InvalidTag):
                continue
            is_earlier = session is not self.current and not session.was_late
            if is_earlier and (not self.leads or not self.current.confirmed):
                self.earlier.remove(session)
                self.replace(session)
            return plaintext
        form = MessageForm(message)
        require(form.part is not None, "no session opens the message")
        session = Session.respond(self.own, form.part, form.version)
        plaintext = session.decrypt(message, associated)
        # Its one-time prekey is used up.
        self.own.one_time.pop(session.one_time, None)
        if self.current is not None and self.leads and not self.current.confirmed:
            self.earlier.insert(0, session)
            del self.earlier[self.KEPT:]
        else:
            self.replace(session)
        return plaintext


class MessageForm:
    def __init__(self, message):
        reader = Reader(message)
        self.first = reader.bytes(1)
        self.version = self.first[0] & 0xF0
        require(self.version in (EXACT, PADDED), "version of the ratchet message")
        flags = self.first[0] & 0x0F
        require(flags in (0, 1, 3), "flags of the ratchet message")
        self.part = reader.bytes(1644 if flags & NAMES_ONE_TIME else 1640) if flags else None
        length = reader.number(1)
        require(length <= 85 if self.version == EXACT else length in (75, 85), "length of the header")
        self.hint = reader.bytes(1)
        self.header = reader.bytes(length + 16)
        self.authenticated = message[:reader.at]
        self.ciphertext = reader.rest()
        require(len(self.ciphertext) >= 16, "truncated")


def message_key(post_quantum, classical):
    return hkdf(post_quantum, classical, b"DoubleRatchet/2 message", 1)[0]
