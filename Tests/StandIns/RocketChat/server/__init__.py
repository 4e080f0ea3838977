"""A stand-in for a Rocket.Chat server, written from its documentation. See ../README.md."""

# The release whose documentation this follows.
VERSION = "6.9.0"
