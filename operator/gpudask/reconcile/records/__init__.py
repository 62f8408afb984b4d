"""The records of clusters (`history`): what passes see is noted, written from time to time, and removed when it is old.

Nothing here holds up a pass, and nothing that is read here is decided on.
"""
