"""The custom resource: its models, values, conditions, and the CRD made from them.

Pure: values in, values out. Nothing here talks to a server, reads a clock or knows how pods look.
"""
