"""One page about a cluster, for people who look: from its status and its record to one HTML file.

Pure: `record.py` reads, `geometry.py` places, `sections.py` says, `page.html` draws. `commands/report.py` asks the API
server, fills that template, and writes the file.
"""
