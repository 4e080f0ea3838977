"""A stand-in for a Zulip server, written from its public API documentation. See README.md, one directory up."""
