"""Jobs: what is there of one -> what to do, and its status. Values only: time is an argument.

No requests are made here, and nothing is remembered but what the job's own status says.
"""
