"""The part of MongoDB's queries that the parameter `query` of lists needs."""

import re

from .values import is_date, parse_time


def member(document, path):
    value = document
    for part in path.split("."):
        if isinstance(value, list):
            value = [item.get(part) for item in value if isinstance(item, dict)]
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            return None
    return value


def comparable(value):
    return parse_time(value) if is_date(value) or isinstance(value, str) else value


def operator_holds(operator, value, wanted, condition):
    if operator == "$regex":
        flags = re.IGNORECASE if "i" in condition.get("$options", "") else 0
        return isinstance(value, str) and re.search(wanted, value, flags) is not None
    if operator == "$options":
        return True
    if operator == "$in":
        return any(equals(value, item) for item in wanted)
    if operator == "$nin":
        return not any(equals(value, item) for item in wanted)
    if operator == "$ne":
        return not equals(value, wanted)
    if operator == "$exists":
        return (value is not None) == bool(wanted)
    if operator in ("$gt", "$gte", "$lt", "$lte"):
        left, right = comparable(value), comparable(wanted)
        if left is None or right is None:
            return False
        return {"$gt": left > right, "$gte": left >= right, "$lt": left < right, "$lte": left <= right}[operator]
    return False


def equals(value, wanted):
    return wanted in value if isinstance(value, list) and not isinstance(wanted, list) else value == wanted


def matches(document, query):
    for key, wanted in query.items():
        if key == "$or":
            if not any(matches(document, part) for part in wanted):
                return False
        elif key == "$and":
            if not all(matches(document, part) for part in wanted):
                return False
        elif isinstance(wanted, dict) and any(name.startswith("$") for name in wanted) and not is_date(wanted):
            value = member(document, key)
            if not all(operator_holds(name, value, part, wanted) for name, part in wanted.items()):
                return False
        elif not equals(member(document, key), wanted):
            return False
    return True


def sorted_by(documents, order):
    for key, direction in reversed(list(order.items())):
        def rank(document, key=key):
            value = member(document, key)
            value = value["$date"] if is_date(value) else value
            return (value is not None, str(value).lower() if not isinstance(value, (int, float)) else "",
                    value if isinstance(value, (int, float)) else 0)
        documents = sorted(documents, key=rank, reverse=direction == -1)
    return documents


def project(document, fields):
    if not fields:
        return document
    if any(fields.values()):
        return {key: value for key, value in document.items() if fields.get(key) or key == "_id"}
    return {key: value for key, value in document.items() if key not in fields}
