"""Grafana dashboards as tables of panels: `python -m charts.dashboards` writes them into the chart.

Values only, but for `__main__`, which writes the files. A pool's series come from the operator that leads, and for some
minutes after a takeover from two, so gauges are taken by `max`; what counts there is summed after `rate` or `increase`.
GPUs by cause come from the rules of files/alerts.yaml, which know them of clusters that are gone, too.
"""
