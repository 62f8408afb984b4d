"""The scheduler as a program has it: the wait until it is ready, the connection, outages, and versions.

How it is reached is in forward/; what the API server is asked, in kube/.
"""
