"""ML-KEM-768 in the two halves that the braid needs: the ciphertext's first part from a header alone.

Keys and decapsulation are those of the `cryptography` package.
"""

import hashlib

Q, RANK, DEPTHS = 3329, 3, (10, 4)


def bit_reversed(value):
    return int(f"{value:07b}"[::-1], 2)


ZETAS = [pow(17, bit_reversed(index), Q) for index in range(128)]
GAMMAS = [pow(17, 2 * bit_reversed(index) + 1, Q) for index in range(128)]


def ntt(poly):
    out = list(poly)
    index, length = 1, 128
    while length >= 2:
        for start in range(0, 256, 2 * length):
            zeta = ZETAS[index]
            index += 1
            for j in range(start, start + length):
                t = zeta * out[j + length] % Q
                out[j + length] = (out[j] - t) % Q
                out[j] = (out[j] + t) % Q
        length //= 2
    return out


def inverse_ntt(poly):
    out = list(poly)
    index, length = 127, 2
    while length <= 128:
        for start in range(0, 256, 2 * length):
            zeta = ZETAS[index]
            index -= 1
            for j in range(start, start + length):
                t = out[j]
                out[j] = (t + out[j + length]) % Q
                out[j + length] = zeta * (out[j + length] - t) % Q
        length *= 2
    return [value * 3303 % Q for value in out]


def product(a, b):
    out = [0] * 256
    for i in range(128):
        a0, a1, b0, b1 = a[2 * i], a[2 * i + 1], b[2 * i], b[2 * i + 1]
        out[2 * i] = (a0 * b0 + a1 * b1 * GAMMAS[i]) % Q
        out[2 * i + 1] = (a0 * b1 + a1 * b0) % Q
    return out


def total(*polys):
    return [sum(values) % Q for values in zip(*polys)]


def uniform(seed):
    stream = hashlib.shake_128(seed).digest(3 * 672)
    out, at = [], 0
    while len(out) < 256:
        a, b, c = stream[at:at + 3]
        at += 3
        for value in (a + 256 * (b & 15), (b >> 4) + 16 * c):
            if value < Q and len(out) < 256:
                out.append(value)
    return out


def noise(seed, counter):
    bits = int.from_bytes(hashlib.shake_256(seed + bytes([counter])).digest(128), "little")
    out = []
    for index in range(256):
        nibble = bits >> (4 * index) & 15
        out.append(((nibble & 1) + (nibble >> 1 & 1) - (nibble >> 2 & 1) - (nibble >> 3 & 1)) % Q)
    return out


def packed(poly, depth):
    value = sum(coefficient << (depth * index) for index, coefficient in enumerate(poly))
    return value.to_bytes(32 * depth, "little")


def unpacked(data, depth):
    value = int.from_bytes(data, "little")
    return [value >> (depth * index) & ((1 << depth) - 1) for index in range(256)]


def compressed(poly, depth):
    return packed([((value << depth) + Q // 2) // Q & ((1 << depth) - 1) for value in poly], depth)


class Encapsulation:
    """One encapsulation: the shared secret and the first part from the header, the second part from the key vector."""

    def __init__(self, seed, key_hash, message):
        both = hashlib.sha3_512(message + key_hash).digest()
        self.secret, random = both[:32], both[32:]
        self.message = message
        self.y = [ntt(noise(random, index)) for index in range(RANK)]
        self.error = noise(random, 2 * RANK)
        parts = []
        for column in range(RANK):
            matrix = [uniform(seed + bytes([column, row])) for row in range(RANK)]
            u = inverse_ntt(total(*(product(matrix[row], self.y[row]) for row in range(RANK))))
            parts.append(compressed(total(u, noise(random, RANK + column)), DEPTHS[0]))
        self.first = b"".join(parts)

    def second(self, vector):
        key = [unpacked(vector[384 * index:384 * index + 384], 12) for index in range(RANK)]
        if any(value >= Q for poly in key for value in poly):
            raise ValueError("encapsulation key")
        v = inverse_ntt(total(*(product(key[index], self.y[index]) for index in range(RANK))))
        text = [(Q + 1) // 2 * bit for bit in unpacked(self.message, 1)]
        return compressed(total(v, self.error, text), DEPTHS[1])
