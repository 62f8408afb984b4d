"""What a pass decides on: the API server's objects, read as the hostile input that they are, and put together.

Pure: JSON and times in, small frozen values out.
"""
