"""Says of JSON documents what Python's own parser makes of them.

Reads a file of documents, each behind its length (4 bytes, big-endian), and prints a line for each: "-" where it is
refused, else its value: {name:value,...} in order, [value,...], s and the UTF-8 of a string in hexadecimal (names
as well), n and a number as written, t, f, z for null.
"""
import json
import struct
import sys


class Number(str):
    pass


def refuse(word):
    raise ValueError(word)


def text(value):
    return "s" + value.encode("utf-8", "surrogatepass").hex()


def dump(value):
    if value is None:
        return "z"
    if value is True:
        return "t"
    if value is False:
        return "f"
    if isinstance(value, Number):
        return "n" + value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, tuple):
        return "{" + ",".join(text(name) + ":" + dump(member) for name, member in value) + "}"
    return "[" + ",".join(dump(element) for element in value) + "]"


def judge(document):
    try:
        value = json.loads(
            document.decode("utf-8"), parse_int=Number, parse_float=Number, parse_constant=refuse,
            object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        return "-"
    return dump(value)


with open(sys.argv[1], "rb") as file:
    data = file.read()
position = 0
while position < len(data):
    (length,) = struct.unpack_from(">I", data, position)
    print(judge(data[position + 4:position + 4 + length]))
    position += 4 + length
