"""The observation of a pass: the API server's objects, read as hostile input, and put together.

Pure: JSON and times in, small frozen values out.
"""
