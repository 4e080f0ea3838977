"""The parts of the stand-in for a Mattermost server; `standin.py` starts it."""
