"""The commands, one file each: flags, a call of the API server, and pure functions that make lines of what came.

distributed and httpx load in the functions that need them: `gpudask --help` waits for none of them.
"""
