"""What stays of a cluster after its end: observations, events and statuses reduced to a bounded record.

Values only: time is an argument, and what is read from the API server or a scheduler is hostile input.
"""
