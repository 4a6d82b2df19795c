"""The daily TTFT analysis, made from the request log.

`lines` reads, `sample` collects, `analysis` compares; `table` and `picture` show. Nothing here
runs in a serving process.
"""
