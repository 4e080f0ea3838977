"""The flags that a person has on a message, as bits in the store and as names in the API."""

READ, STARRED, COLLAPSED, MENTIONED, CHANNEL_MENTIONED, TOPIC_MENTIONED, HAS_ALERT_WORD, HISTORICAL = (
    1 << bit for bit in range(8))
ANY_MENTION = MENTIONED | CHANNEL_MENTIONED | TOPIC_MENTIONED
FROM_CONTENT = ANY_MENTION | HAS_ALERT_WORD
BITS = {
    "read": READ, "starred": STARRED, "collapsed": COLLAPSED, "mentioned": MENTIONED,
    "stream_wildcard_mentioned": CHANNEL_MENTIONED, "topic_wildcard_mentioned": TOPIC_MENTIONED,
    "has_alert_word": HAS_ALERT_WORD, "historical": HISTORICAL,
}
# What a client may set; the others follow from the text.
EDITABLE = ("read", "starred", "collapsed")


def names(bits):
    result = [name for name, bit in BITS.items() if bits & bit]
    if bits & (CHANNEL_MENTIONED | TOPIC_MENTIONED):
        result.append("wildcard_mentioned")
    return result
