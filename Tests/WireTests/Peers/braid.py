"""The post-quantum ratchet: ML-KEM Braid, revision 1, over chunks, and its chains."""

import hashlib
import hmac
import os

from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

import kem
from basics import Refused, hkdf, mac, number, require

NONE, HEADER, KEY, KEY_ACKNOWLEDGING, FIRST, SECOND = range(6)
LAST_CHUNK = 16_383


def field_tables():
    """Powers and logarithms to the base x of GF(2^16) modulo x^16 + x^12 + x^3 + x + 1."""
    powers, value = [], 1
    for _ in range(65535):
        powers.append(value)
        value <<= 1
        if value >> 16:
            value ^= 0x1100B
    logarithms = {power: index for index, power in enumerate(powers)}
    assert len(logarithms) == 65535
    return powers, logarithms


POWERS, LOGARITHMS = field_tables()


def times(a, b):
    return POWERS[(LOGARITHMS[a] + LOGARITHMS[b]) % 65535] if a and b else 0


def over(a, b):
    return POWERS[(LOGARITHMS[a] - LOGARITHMS[b]) % 65535] if a else 0


def chunk_at(place, known):
    """The values at `place` of the polynomials through the chunks of `known`, a dictionary from places to chunks."""
    if place in known:
        return known[place]
    out = [0] * 16
    for own, chunk in known.items():
        factor = 1
        for other in known:
            if other != own:
                factor = times(factor, over(place ^ other, own ^ other))
        for index in range(16):
            out[index] ^= times(factor, int.from_bytes(chunk[2 * index:2 * index + 2], "big"))
    return b"".join(number(value, 2) for value in out)


class Sender:
    def __init__(self, value):
        self.known = {index: value[32 * index:32 * index + 32] for index in range(len(value) // 32)}
        self.next = 0

    def chunk(self):
        require(self.next <= LAST_CHUNK, "no chunk is left")
        self.next += 1
        return self.next - 1, chunk_at(self.next - 1, self.known)


class Receiver:
    def __init__(self, length):
        self.length = length
        self.count = length // 32
        self.known = {}

    def add(self, chunk):
        """The value, once there are enough chunks."""
        if chunk is None:
            raise Refused("chunk is missing")
        index, data = chunk
        if len(self.known) < self.count:
            self.known[index] = data
        if len(self.known) < self.count:
            return None
        return b"".join(chunk_at(place, self.known) for place in range(self.count))


class Authenticator:
    def __init__(self, secret):
        self.root = bytes(32)
        self.absorb(1, secret)

    def absorb(self, epoch, secret):
        info = b"DoubleRatchet/2 SPQR authenticator" + number(epoch, 4)
        self.root, self.key = hkdf(self.root, secret, info, 2)

    def header(self, epoch, header):
        return mac(self.key, b"DoubleRatchet/2 SPQR header" + number(epoch, 4) + header)

    def ciphertext(self, epoch, ciphertext):
        return mac(self.key, b"DoubleRatchet/2 SPQR ciphertext" + number(epoch, 4) + ciphertext)


def epoch_secret(secret, epoch):
    return hkdf(bytes(32), secret, b"DoubleRatchet/2 SPQR epoch secret" + number(epoch, 4), 1)[0]


class Braid:
    """`send` and `receive` return the secret of an epoch when they produce one, as (epoch, secret)."""

    def __init__(self, secret, makes_first_key):
        self.epoch = 1
        self.auth = Authenticator(secret)
        self.state = "keys unsampled" if makes_first_key else "no header received"
        self.receiver = Receiver(96)

    def send(self):
        output, kind = None, NONE
        if self.state == "keys unsampled":
            self.seed = os.urandom(64)
            key = MLKEM768PrivateKey.from_seed_bytes(self.seed).public_key().public_bytes_raw()
            self.vector = key[:1152]
            header = key[1152:] + hashlib.sha3_256(key).digest()
            self.sender = Sender(header + self.auth.header(self.epoch, header))
            self.state = "keys sampled"
        elif self.state == "header received":
            self.encapsulation = kem.Encapsulation(self.header[:32], self.header[32:], os.urandom(32))
            secret = epoch_secret(self.encapsulation.secret, self.epoch)
            self.auth.absorb(self.epoch, secret)
            output = self.epoch, secret
            self.sender = Sender(self.encapsulation.first)
            self.state = "first sampled"
        kind = {
            "keys sampled": HEADER, "header sent": KEY, "first received": KEY_ACKNOWLEDGING, "first sampled": FIRST,
            "key received": FIRST, "second sampled": SECOND,
        }.get(self.state, NONE)
        return (self.epoch, kind, None if kind == NONE else self.sender.chunk()), output

    def receive(self, epoch, kind, chunk):
        if self.state == "second sampled" and epoch == self.epoch + 1:
            self.epoch = epoch
            self.state = "keys unsampled"
        require(epoch <= self.epoch, "epoch has not begun")
        if epoch < self.epoch:
            return None
        if self.state == "no header received" and kind == HEADER:
            self.receive_header(chunk)
        elif self.state in ("keys sampled", "header sent") and kind == FIRST:
            self.receive_first(chunk)
        elif self.state in ("first received", "second awaited") and kind == SECOND:
            return self.receive_second(chunk)
        elif self.state in ("first sampled", "first acknowledged") and kind in (KEY, KEY_ACKNOWLEDGING):
            self.receive_key(kind, chunk)
        elif self.state == "key received" and kind == KEY_ACKNOWLEDGING:
            self.make_second()
        return None

    def receive_header(self, chunk):
        value = self.receiver.add(chunk)
        if value is None:
            return
        self.header = value[:64]
        require(hmac.compare_digest(self.auth.header(self.epoch, self.header), value[64:]), "MAC of the header")
        self.receiver = Receiver(1152)
        self.state = "header received"

    def receive_first(self, chunk):
        if self.state == "keys sampled":
            self.receiver = Receiver(960)
            self.sender = Sender(self.vector)
            self.state = "header sent"
        value = self.receiver.add(chunk)
        if value is not None:
            self.first = value
            self.receiver = Receiver(160)
            self.state = "first received"

    def receive_second(self, chunk):
        self.state = "second awaited"
        value = self.receiver.add(chunk)
        if value is None:
            return None
        ciphertext = self.first + value[:128]
        secret = epoch_secret(MLKEM768PrivateKey.from_seed_bytes(self.seed).decapsulate(ciphertext), self.epoch)
        self.auth.absorb(self.epoch, secret)
        require(hmac.compare_digest(self.auth.ciphertext(self.epoch, ciphertext), value[128:]), "MAC of the ciphertext")
        output = self.epoch, secret
        self.epoch += 1
        self.receiver = Receiver(96)
        self.state = "no header received"
        return output

    def receive_key(self, kind, chunk):
        value = self.receiver.add(chunk)
        if value is not None:
            require(hashlib.sha3_256(value + self.header[:32]).digest() == self.header[32:], "key is not the header's")
            self.vector = value
        if value is not None and (kind == KEY_ACKNOWLEDGING or self.state == "first acknowledged"):
            self.make_second()
        elif value is not None:
            self.state = "key received"
        elif kind == KEY_ACKNOWLEDGING:
            self.state = "first acknowledged"

    def make_second(self):
        second = self.encapsulation.second(self.vector)
        whole = self.encapsulation.first + second
        self.sender = Sender(second + self.auth.ciphertext(self.epoch, whole))
        self.state = "second sampled"


class Chain:
    """A chain of keys; receivers keep the keys that they skip."""

    def __init__(self, key):
        self.key = key
        self.number = 0
        self.skipped = {}

    def step(self):
        message = mac(self.key, b"\x01")
        self.key = mac(self.key, b"\x02")
        self.number += 1
        return message

    def take(self, wanted):
        if wanted < self.number:
            require(wanted in self.skipped, "key was used")
            return self.skipped.pop(wanted)
        require(wanted - self.number <= 2000, "too many skipped messages")
        while self.number < wanted:
            at = self.number
            self.skipped[at] = self.step()
        return self.step()


class PostQuantumRatchet:
    def __init__(self, secret, initiator):
        self.initiator = initiator
        self.braid = Braid(secret, makes_first_key=initiator)
        self.root, *chains = hkdf(bytes(32), secret, b"DoubleRatchet/2 SPQR start", 3)
        self.epochs = {0: self.chains(chains)}

    def chains(self, keys):
        """(sending, receiving) of the two keys: from the initiator, to it."""
        both = [Chain(key) for key in keys]
        return both if self.initiator else both[::-1]

    def output(self, output):
        if output is not None:
            epoch, secret = output
            self.root, *chains = hkdf(self.root, secret, b"DoubleRatchet/2 SPQR epoch", 3)
            self.epochs[epoch] = self.chains(chains)

    def send(self):
        (epoch, kind, chunk), output = self.braid.send()
        self.output(output)
        chain = self.epochs[epoch - 1][0]
        return epoch, kind, chain.number, chunk, chain.step()

    def receive(self, epoch, kind, number, chunk):
        self.output(self.braid.receive(epoch, kind, chunk))
        require(epoch - 1 in self.epochs, "epoch is not known")
        return self.epochs[epoch - 1][1].take(number)
