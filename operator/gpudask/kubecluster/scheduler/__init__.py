"""The scheduler as a program has it: the wait until it is ready, the connection, outages, versions, and the lease.

How it is reached is in forward/; what the API server is asked, in kube/.
"""
