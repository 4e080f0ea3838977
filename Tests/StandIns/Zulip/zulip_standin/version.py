"""The version of the documentation that this stand-in follows."""

VERSION = "10.1"
FEATURE_LEVEL = 372
REALM_NAME = "Stand-in"
REALM_ID = 2
